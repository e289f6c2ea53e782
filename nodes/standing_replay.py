"""Reverb servers that stand already: what they say of themselves, and whether it fits an agent.

Importing this module loads Reverb and TensorFlow.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import grpc
import tensorflow as tf
from acme import specs
from google.protobuf import descriptor_pb2, message_factory
from reverb import reverb_types

from agents.agent import TableSpec
from usage import UsageError

_ANSWER_SECONDS = 5.0
_CALLS = 16
"""A load balancer that draws one of two servers for each call shows both but once in 32,768."""
_SERVER_INFO = "/deepmind.reverb.ReverbService/ServerInfo"
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class StandingServer(NamedTuple):
    """What one server says of itself.

    Attributes:
        identity: Drawn by each server when it starts, and kept.
        tables: Its tables by name.
    """

    identity: bytes
    tables: Mapping[str, Any]


def servers_at(address: str) -> list[StandingServer]:
    """Returns the servers that answer at `address`: several where a load balancer is.

    Raises:
        UsageError: None does.
    """
    found = {server.identity: server for server in (_ask(address) for _ in range(_CALLS))}
    return list(found.values())


def check(addresses: Sequence[str], spec: TableSpec) -> None:
    """Checks that the servers at `addresses` are shards of the replay that an agent needs.

    Args:
        addresses: `host:port` of each.
        spec: The agent's table.

    Raises:
        UsageError: A server does not answer, or something of it does not fit.
    """
    servers = {address: servers_at(address) for address in addresses}
    _check_routes(servers, spec)
    for address, here in servers.items():
        for server in here:
            _check_table(address, server, spec)
    _check_limiters(servers, spec.name)


def _ask(address: str) -> StandingServer:
    """Asks the server that a connection of its own leads to."""
    with grpc.insecure_channel(address, _OWN_CONNECTION) as channel:
        call = channel.unary_unary(_SERVER_INFO, response_deserializer=_response_class().FromString)
        try:
            response = call(b"", timeout=_ANSWER_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            raise UsageError(
                f"No Reverb server answers at {address} within {_ANSWER_SECONDS:g} s "
                f"({error.code().name.lower().replace('_', ' ')}): start one there with "
                "`launch.py replay`, or give the address of another."
            ) from None
    tables = map(reverb_types.TableInfo.from_serialized_proto, response.table_info)
    return StandingServer(response.tables_state_id, {table.name: table for table in tables})


@functools.cache
def _response_class() -> Any:
    """Returns the message that a server answers with, which Reverb's wheel has for C++ only.

    Of its two fields, `Uint128 tables_state_id = 1` and `repeated TableInfo table_info = 2`, it
    leaves the contents as they were sent.
    """
    field = descriptor_pb2.FieldDescriptorProto
    fields = [
        field(name="tables_state_id", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL),
        field(name="table_info", number=2, type=field.TYPE_BYTES, label=field.LABEL_REPEATED),
    ]
    message = descriptor_pb2.DescriptorProto(name="ServerInfoResponse", field=fields)
    file = descriptor_pb2.FileDescriptorProto(name="server_info.proto", message_type=[message])
    return message_factory.GetMessages([file])["ServerInfoResponse"]


def _check_routes(servers: Mapping[str, Sequence[StandingServer]], spec: TableSpec) -> None:
    """Checks that each server is reached in one way, and new priorities find their item."""
    seen: dict[bytes, str] = {}
    for address, here in servers.items():
        if len(here) > 1 and spec.priority_exponent > 0:
            raise UsageError(
                f"Several servers answer at {address}, as behind a load balancer, through which "
                "new priorities could not reach the server that has the item: give the servers' "
                "own addresses, or do without priorities by --config.priority_exponent=0."
            )
        for server in here:
            other = seen.setdefault(server.identity, address)
            if other != address:
                raise UsageError(
                    f"The same replay server answers at {other} and {address}: give each server "
                    "once."
                )


def _check_table(address: str, server: StandingServer, spec: TableSpec) -> None:
    table = server.tables.get(spec.name)
    if table is None:
        raise UsageError(
            f"The replay server at {address} has no table {spec.name!r}, which the agent needs, "
            f"but {', '.join(map(repr, sorted(server.tables)))}: start it for this agent."
        )
    where = f"table {spec.name!r} at {address}"
    _check_columns(where, table.signature, spec)
    theirs, ours = _exponent(table.sampler_options), spec.priority_exponent
    if theirs is None:
        raise UsageError(
            f"The {where} has the sampler {table.sampler_options.WhichOneof('distribution')!r}, "
            f"but the agent's priority exponent is {ours:g}: start the server for this agent."
        )
    if theirs != ours:
        raise UsageError(
            f"The {where} has the priority exponent {theirs:g}, but the agent's is {ours:g}: make "
            "both the same by --config.priority_exponent."
        )


def _check_columns(where: str, signature: Any, spec: TableSpec) -> None:
    if not isinstance(signature, Mapping):
        raise UsageError(
            f"The {where} does not say what columns it has, but the agent's are "
            f"{', '.join(map(repr, spec.item))}: start the server with a signature."
        )
    for name in sorted({*signature, *spec.item}):
        theirs, ours = signature.get(name), spec.item.get(name)
        if ours is None or not _is_like(theirs, ours):
            raise UsageError(
                f"Column {name!r} of {where} is {_describe(theirs)}, but the agent's is "
                f"{_describe(ours)}: start the server for this agent, configuration and "
                "environment."
            )


def _is_like(theirs: Any, ours: specs.Array) -> bool:
    if not isinstance(theirs, tf.TensorSpec):
        return False
    return bool(theirs.dtype.as_numpy_dtype == ours.dtype and theirs.shape == ours.shape)


def _describe(array: Any) -> str:
    if array is None:
        return "not there"
    if not isinstance(array, (specs.Array, tf.TensorSpec)):
        return "not an array"
    known = getattr(array.shape, "rank", 0) is not None
    return f"{array.dtype.name} {list(array.shape) if known else 'of any shape'}"


def _exponent(options: Any) -> Optional[float]:
    """Returns the exponent of priorities with which a table samples, if there is one."""
    kind = options.WhichOneof("distribution")
    if kind == "prioritized":
        return float(options.prioritized.priority_exponent)
    return 0.0 if kind == "uniform" else None


def _check_limiters(servers: Mapping[str, Sequence[StandingServer]], table: str) -> None:
    """Checks that all servers hold up inserts and samples in the same way."""
    (first, said), *others = (
        (address, _describe_limiter(server.tables[table].rate_limiter_info))
        for address, here in servers.items()
        for server in here
    )
    for address, other in others:
        if other != said:
            raise UsageError(
                f"Table {table!r} at {first} {said}, but at {address} {other}: start all servers "
                "alike."
            )


def _describe_limiter(limiter: Any) -> str:
    return (
        f"gives out samples from {limiter.min_size_to_sample:,} items on, "
        f"{limiter.samples_per_insert:g} for each, kept between {limiter.min_diff:g} and "
        f"{limiter.max_diff:g}"
    )
