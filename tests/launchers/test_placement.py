"""Which replica goes where."""

from collections.abc import Sequence

import launchpad as lp
import pytest

from launchers.hosts import Host, this_machine
from launchers.layout import GroupLayout, Layout
from launchers.placement import Need, Seating, Wish
from launchers.plan import Nearness, make_plan
from nodes import contract
from usage import UsageError

HEAD = Host("10.0.0.1", cpus=4, memory=16)
BOX = Host("10.0.0.2", cpus=40, memory=500, gpus=("0", "1"), tags=frozenset({"gpu_box", "zone=a"}))
SMALL = Host("10.0.0.3", cpus=4, memory=16)
HOSTS = (HEAD, BOX, SMALL)


def places(wish: Wish, count: int, hosts: Sequence[Host] = HOSTS) -> list[str]:
    names = [f"group/{index}" for index in range(count)]
    seats = Seating(hosts).place({"group": names}, {"group": wish})
    return [seats[name].host.address[-1] for name in names]


def test_what_packs_fills_the_first_host_before_the_next() -> None:
    assert places(Wish(Need(cpus=2), "pack"), 4) == ["1", "1", "2", "2"]


def test_what_spreads_goes_where_there_are_fewest_a_core() -> None:
    assert places(Wish(Need(), "spread"), 6, (HEAD, SMALL)) == ["1", "3", "1", "3", "1", "3"]
    assert places(Wish(Need(), "spread"), 48).count("2") == 40


def test_one_a_host_never_puts_two_on_one() -> None:
    assert places(Wish(Need(), "one_per_host"), 3) == ["1", "2", "3"]
    with pytest.raises(UsageError, match="for group/3, on a host of its own: there is no room"):
        places(Wish(Need(), "one_per_host"), 4)


@pytest.mark.parametrize("called", ["10.0.0.2", "gpu_box", "zone=a"])
def test_a_host_is_named_by_its_address_a_resource_or_a_label(called: str) -> None:
    assert places(Wish(Need(), "spread", called), 3) == ["2", "2", "2"]


def test_a_host_that_is_not_there_is_told_with_what_is_there() -> None:
    with pytest.raises(UsageError, match="group on '10.0.0.9', but there is only 10.0.0.1 with 4"):
        places(Wish(Need(), "pack", "10.0.0.9"), 1)


def test_more_than_the_hosts_have_is_told_with_what_is_left() -> None:
    with pytest.raises(UsageError, match="wants 3 CPUs for group/1 on '10.0.0.1'.* 1 CPUs.* left"):
        places(Wish(Need(cpus=3), "pack", "10.0.0.1"), 2)
    with pytest.raises(UsageError, match="wants 20 GiB for group/0 on '10.0.0.3'"):
        places(Wish(Need(memory=20), "pack", "10.0.0.3"), 1)


def test_parts_of_gpus_share_one_until_it_is_full() -> None:
    names = [f"group/{index}" for index in range(4)]
    seats = Seating(HOSTS).place({"group": names}, {"group": Wish(Need(gpus=0.4), "pack")})
    assert [seats[name].gpus for name in names] == [("0",), ("0",), ("1",), ("1",)]
    with pytest.raises(UsageError, match="wants 0.4 GPUs for group/4"):
        places(Wish(Need(gpus=0.4), "pack"), 5)


def test_whole_gpus_are_its_own() -> None:
    seats = Seating([BOX]).place(
        {"learner": ["learner/0"], "actor": ["actor/0"]},
        {"learner": Wish(Need(gpus=1), "pack"), "actor": Wish(Need(gpus=0.5), "spread")},
    )
    assert (seats["learner/0"].gpus, seats["actor/0"].gpus) == (("0",), ("1",))


def test_a_node_that_takes_a_gpu_if_any_goes_where_one_is() -> None:
    assert places(Wish(Need(), "pack", gpu_if_any=True), 3) == ["2", "2", "1"]


def test_the_choosy_are_seated_first() -> None:
    seats = Seating([HEAD]).place(
        {"actor": ["actor/0"], "learner": ["learner/0"]},
        {"actor": Wish(Need(), "spread"), "learner": Wish(Need(cpus=4), "pack", "10.0.0.1")},
    )
    assert len(seats) == 2


def test_cuda_visible_devices_says_what_may_be_handed_out() -> None:
    assert this_machine({"CUDA_VISIBLE_DEVICES": "4,7,-1,2"}).gpus == ("4", "7")
    assert this_machine({"CUDA_VISIBLE_DEVICES": ""}).gpus == ()


class Service:
    def __init__(self, *others: object) -> None:
        pass


def program_with_relay(num_users: int) -> lp.Program:
    """A source, a relay that stands in for it on other hosts, and who reads."""
    program = lp.Program("relayed")
    source = lp.CourierNode(Service)
    handle = program.add_node(source, label="source")
    contract.set_traits(source, contract.Traits(place="pack"))
    relay = lp.CourierNode(Service, handle)
    contract.set_traits(relay, contract.Traits(per_host=True, stands_in_for=source.addresses[0]))
    near = program.add_node(relay, label="relay")
    with program.group("user"):
        for _ in range(num_users):
            program.add_node(lp.CourierNode(Service, near))
    return program


def test_each_other_host_with_users_gets_a_relay_and_they_are_connected_to_it() -> None:
    program = program_with_relay(6)
    plan = make_plan(program, "ray", hosts=(HEAD, SMALL, Host("10.0.0.4", cpus=4)))
    where = {name: replica.seat.host.address for name, replica in plan.replicas.items()}
    assert {n: h for n, h in where.items() if n.startswith("relay")} == {
        "relay/0": "10.0.0.3",
        "relay/1": "10.0.0.4",
    }
    (address,) = program.groups["relay"][0].addresses

    def server(host: str) -> str:
        near = {True: Nearness.NEAR, False: Nearness.THERE}
        found = plan.server_of(address, lambda name: near[where[name] == host])
        assert found is not None
        return found.replica

    served = {host: server(host) for host in set(where.values())}
    assert served == {"10.0.0.1": "source/0", "10.0.0.3": "relay/0", "10.0.0.4": "relay/1"}


def test_no_relay_goes_where_nobody_needs_it() -> None:
    layout = Layout({"user": GroupLayout(host="10.0.0.3")})
    plan = make_plan(program_with_relay(2), "ray", layout, HOSTS)
    assert plan.replicas["relay/0"].seat.host == SMALL and "relay/1" not in plan.replicas


def test_on_one_host_a_stand_in_is_left_out_and_its_users_hold_the_source() -> None:
    plan = make_plan(program_with_relay(2), "local_mp")
    assert set(plan.replicas) == {"source/0", "user/0", "user/1"}
    assert plan.replicas["source/0"].holders == {"user/0", "user/1"}


def test_a_group_with_a_replica_a_host_has_one_node() -> None:
    program = program_with_relay(1)
    extra = lp.CourierNode(Service)
    contract.set_traits(extra, contract.Traits(per_host=True))
    program.add_node(extra, label="relay")
    with pytest.raises(UsageError, match="Group relay gets a replica on each host"):
        make_plan(program, "ray", hosts=HOSTS)


def test_a_layout_does_not_say_where_a_replica_a_host_goes() -> None:
    with pytest.raises(UsageError, match="The layout says where relay runs, but it runs on each"):
        make_plan(
            program_with_relay(1), "ray", Layout({"relay": GroupLayout(host="10.0.0.3")}), HOSTS
        )


def test_a_replica_a_host_that_nobody_uses_has_none() -> None:
    program = program_with_relay(1)
    unused = lp.CourierNode(Service)
    contract.set_traits(unused, contract.Traits(per_host=True))
    program.add_node(unused, label="unused")
    for plan in (make_plan(program, "local_mp"), make_plan(program, "ray", hosts=HOSTS)):
        assert not [name for name in plan.replicas if name.startswith("unused")]
        assert plan.server_of(unused.addresses[0], lambda name: Nearness.NEAR) is None


def test_a_relay_of_a_relay_stands_where_its_users_are() -> None:
    program = program_with_relay(1)
    (relay,) = program.groups["relay"]
    second = lp.CourierNode(Service, relay.create_handle())
    traits = contract.Traits(per_host=True, stands_in_for=relay.addresses[0])
    contract.set_traits(second, traits)
    program.add_node(lp.CourierNode(Service, program.add_node(second, label="second")), label="far")
    layout = Layout({"far": GroupLayout(host="10.0.0.3"), "user": GroupLayout(host="10.0.0.1")})
    plan = make_plan(program, "ray", layout, HOSTS)
    where = {name: replica.seat.host.address for name, replica in plan.replicas.items()}
    assert (where["second/0"], where["relay/0"]) == ("10.0.0.3", "10.0.0.3")
    assert set(make_plan(program, "local_mp").replicas) == {"source/0", "user/0", "far/0"}


def test_of_several_servers_one_that_is_lost_is_the_last() -> None:
    program = program_with_relay(0)
    shared = lp.CourierNode(Service)
    contract.set_traits(shared, contract.Traits(per_host=True))
    handle = program.add_node(shared, label="shared")
    with program.group("worker"):
        for _ in range(3):
            program.add_node(lp.CourierNode(Service, handle))
    layout = Layout({"worker": GroupLayout(place="one_per_host")})
    plan = make_plan(program, "ray", layout, HOSTS)
    lost = {"shared/0": Nearness.LOST}
    found = plan.server_of(shared.addresses[0], lambda name: lost.get(name, Nearness.THERE))
    assert found is not None and found.replica == "shared/1"
