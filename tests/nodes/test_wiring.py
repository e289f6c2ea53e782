"""Mistakes in the wiring are told while the graph is drawn."""

import launchpad as lp
import pytest

from nodes import counter, service, variables, wiring
from nodes.counter import CounterClient
from nodes.service import deref, node
from programs.program import Program


class Consumer:
    def __init__(self, counter: CounterClient, limit: int = 3) -> None:
        pass


class Gatherer:
    def __init__(self, counters: list[CounterClient]) -> None:
        pass


@pytest.fixture
def program() -> Program:
    return Program("wiring")


def add_counter(program: Program) -> service.Handle[CounterClient]:
    return program.add_node(counter.counter_node(), label="counter")


def test_a_right_program_can_be_drawn(program: Program) -> None:
    handle = add_counter(program)
    program.add_node(node(Consumer, deref(handle), limit=2), label="consumer")
    program.add_node(node(Gatherer, [deref(handle), deref(handle)]), label="gatherer")


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(wiring.WiringError, match="Consumer: missing .* argument: 'counter'"):
        node(Consumer)  # type: ignore[call-arg]


def test_a_misspelt_argument_is_named(program: Program) -> None:
    handle = add_counter(program)
    with pytest.raises(wiring.WiringError, match="Consumer: got an unexpected .*'limits'"):
        node(Consumer, deref(handle), limits=2)  # type: ignore[call-arg]


def test_an_argument_of_a_wrong_type_is_named(program: Program) -> None:
    handle = add_counter(program)
    with pytest.raises(wiring.WiringError, match="parameter 'limit' wants int, got 'two'"):
        node(Consumer, deref(handle), limit="two")  # type: ignore[arg-type]


def test_a_handle_of_the_wrong_kind_is_named_with_its_node(program: Program) -> None:
    handle = program.add_node(variables.variable_source_node(), label="variables")
    with pytest.raises(wiring.WiringError) as error:
        node(Consumer, deref(handle))  # type: ignore[arg-type]
    assert str(error.value) == (
        "Node Consumer: parameter 'counter' wants nodes.counter.CounterClient, "
        "got a handle of VariableClient (handle of node 'variables/0')."
    )


def test_a_wrong_handle_inside_a_list_is_noticed(program: Program) -> None:
    right = add_counter(program)
    wrong = program.add_node(variables.variable_source_node(), label="variables")
    with pytest.raises(wiring.WiringError, match="'counters'"):
        node(Gatherer, [deref(right), deref(wrong)])  # type: ignore[list-item]


def test_an_untyped_handle_fits_everywhere(program: Program) -> None:
    handle = program.add_node(lp.CourierNode(object), label="untyped")
    node(Consumer, handle)


def test_using_a_handle_as_if_it_were_the_client_says_what_to_do(program: Program) -> None:
    handle = add_counter(program)
    with pytest.raises(AttributeError, match="pass the handle to a node"):
        handle.snapshot()  # type: ignore[attr-defined]


def test_each_of_several_arguments_is_checked(program: Program) -> None:
    def several(*limits: int, **named: int) -> None:
        pass

    handle = add_counter(program)
    node(several, 1, 2, three=3)
    with pytest.raises(wiring.WiringError, match="'limits' wants int, got a handle of Counter"):
        node(several, 1, handle)  # type: ignore[arg-type]
    with pytest.raises(wiring.WiringError, match="'named' wants int, got 'x'"):
        node(several, three="x")  # type: ignore[arg-type]


def test_a_node_in_place_of_its_handle_is_told(program: Program) -> None:
    with pytest.raises(wiring.WiringError, match="got a node: pass the handle that"):
        node(Consumer, counter.counter_node())  # type: ignore[arg-type]
