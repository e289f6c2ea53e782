"""A program is checked before anything starts."""

import os
import threading

import launchpad as lp
import pytest

from launchers.graph import stop_wave
from launchers.layout import GroupLayout, Layout
from launchers.plan import make_plan
from nodes import contract
from usage import UsageError


class Service:
    def __init__(self, *others: object, **named: object) -> None:
        pass


def two_nodes() -> lp.Program:
    program = lp.Program("two")
    server = program.add_node(lp.CourierNode(Service), label="server")
    program.add_node(lp.CourierNode(Service, server), label="client")
    return program


def test_those_whose_handles_are_held_start_first_and_stop_last() -> None:
    program = lp.Program("chain")
    last = lp.CourierNode(Service)
    middle = lp.CourierNode(Service, last.create_handle())
    program.add_node(lp.CourierNode(Service, middle.create_handle()), label="first")
    program.add_node(middle, label="middle")
    program.add_node(last, label="last")
    plan = make_plan(program, "local_mt")
    assert list(plan.replicas) == ["last/0", "middle/0", "first/0"]
    assert stop_wave({n: r.holders for n, r in plan.replicas.items()}) == {"first/0"}


def test_nodes_that_hold_one_another_stop_together() -> None:
    program = lp.Program("circle")
    one, other = lp.CourierNode(Service), lp.CourierNode(Service)
    one.configure(other.create_handle())
    other.configure(one.create_handle())
    program.add_node(one, label="one")
    program.add_node(other, label="other")
    plan = make_plan(program, "local_mt")
    assert stop_wave({n: r.holders for n, r in plan.replicas.items()}) == {"one/0", "other/0"}


def test_an_unknown_mode_is_told_with_the_nearest_right_one() -> None:
    with pytest.raises(UsageError, match="Unknown mode 'local_mpp': did you mean local_mp"):
        make_plan(two_nodes(), "local_mpp")


def test_a_program_without_nodes_is_refused() -> None:
    with pytest.raises(UsageError, match="'empty' has no nodes"):
        make_plan(lp.Program("empty"), "local_mt")


def test_a_handle_of_a_node_in_no_program_is_refused() -> None:
    program = lp.Program("stray")
    stray = lp.CourierNode(Service).create_handle()
    program.add_node(lp.CourierNode(Service, stray), label="client")
    with pytest.raises(UsageError, match="Node client/0 holds a .* never added to the program"):
        make_plan(program, "local_mt")


def test_an_argument_that_does_not_pickle_is_named_with_its_path() -> None:
    class Box:
        def __init__(self) -> None:
            self.inner = {"locks": [threading.Lock()]}

    program = lp.Program("pickle")
    program.add_node(lp.CourierNode(Service, box=Box()), label="service")
    with pytest.raises(
        UsageError, match=r"Node service/0, argument 'box'\.inner\['locks'\]\[0\] is a lock, which"
    ):
        make_plan(program, "test_mt")
    assert make_plan(program, "local_mt")


def test_a_layout_for_a_group_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="names the group 'actor', but .* only server, client"):
        make_plan(two_nodes(), "local_mt", Layout({"actor": GroupLayout()}))


def test_two_nodes_on_one_address_are_refused() -> None:
    program = lp.Program("address")
    one, other = lp.CourierNode(Service), lp.CourierNode(Service)
    other.addresses = one.addresses
    program.add_node(one, label="one")
    program.add_node(other, label="other")
    with pytest.raises(UsageError, match="Nodes one/0 and other/0 listen on the same address"):
        make_plan(program, "local_mt")


def test_more_gpus_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "4,7"})
    with pytest.raises(UsageError, match="wants 3 GPUs for server/0: .* with .* 2 GPUs"):
        make_plan(two_nodes(), "local_mp", Layout({"server": GroupLayout(gpus=3)}))


def test_a_node_that_wants_a_gpu_gets_it_and_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "4"})
    program = two_nodes()
    contract.set_traits(program.groups["client"][0], contract.Traits(wants_gpu=True))
    plan = make_plan(program, "local_mp")
    assert {name: replica.seat.gpus for name, replica in plan.replicas.items()} == {
        "server/0": (),
        "client/0": ("4",),
    }


def test_without_a_gpu_a_node_that_wants_one_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": ""})
    program = two_nodes()
    contract.set_traits(program.groups["client"][0], contract.Traits(wants_gpu=True))
    assert make_plan(program, "local_mp").replicas["client/0"].seat.gpus == ()


def test_the_layouts_policy_stands_over_the_nodes_own() -> None:
    plan = make_plan(two_nodes(), "local_mt", Layout({"client": GroupLayout(on_failure="ignore")}))
    assert plan.replicas["client/0"].traits.on_failure == "ignore"
    assert plan.replicas["server/0"].traits.on_failure == "stop"
