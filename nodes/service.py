"""Typed handles, and the node that all kinds of service share."""

from collections.abc import Callable
from typing import Any, Generic, Optional, ParamSpec, TypeVar, cast

import courier
import launchpad as lp
from launchpad.nodes import base

from nodes import contract, wiring

ClientT = TypeVar("ClientT", covariant=True)
ServiceT = TypeVar("ServiceT")
P = ParamSpec("P")

_THREADS = 16

MakeClient = Callable[[str], Any]
"""Makes a client from the `host:port` of a service."""


class Handle(base.Handle[ClientT]):
    """Stands, while the graph is drawn, for the client that a node will get when it runs.

    Attributes:
        client_type: What the handle dereferences to.
        name: Where the node is in the graph, as `group/index`, once it was added to a program.
    """

    client_type: type
    name: Optional[str] = None

    def __init__(self, address: lp.Address, client_type: type, make_client: MakeClient) -> None:
        self._address = address
        self._make_client = make_client
        self.client_type = client_type

    @property
    def address(self) -> lp.Address:
        """Where the service will be; it tells the service from all others before it is bound."""
        return self._address

    def dereference(self) -> ClientT:
        """Returns a client; the address must be bound, as it is once the program is launched."""
        return cast(ClientT, self._make_client(self._address.resolve()))

    def __repr__(self) -> str:
        return f"handle of node {self.name!r}" if self.name else "handle of a node in no program"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"A {self!r} has no {name!r}: pass the handle to a node, which gets the "
            f"{self.client_type.__name__} itself when it runs."
        )


class ServiceNode(lp.CourierNode, Generic[ClientT]):
    """A `lp.CourierNode` whose arguments are checked at once and whose handle is typed."""

    def __init__(
        self,
        constructor: Callable[..., Any],
        *args: Any,
        client_type: type,
        make_client: MakeClient = courier.Client,
        traits: Optional[contract.Traits] = None,
        threads: int = _THREADS,
        **kwargs: Any,
    ) -> None:
        """Initializes the node.

        Args:
            constructor: Makes the service when the node runs; its public methods can be called
                from other nodes, and its `run()`, where it has one, is the node's own work.
            *args: The constructor's arguments; handles among them are dereferenced first.
            client_type: What the node's handle dereferences to.
            make_client: Makes the client from the service's address; a Courier client unless told.
            traits: What the node says of itself to a launcher.
            threads: Calls that the service answers at a time; the others wait.
            **kwargs: The constructor's named arguments, likewise.

        Raises:
            wiring.WiringError: The arguments do not fit the constructor's signature.
        """
        wiring.check_arguments(constructor, args, kwargs)
        super().__init__(constructor, *args, courier_kwargs={"thread_pool_size": threads}, **kwargs)
        self._client_type = client_type
        self._make_client = make_client
        if traits is not None:
            contract.set_traits(self, traits)

    def create_handle(self) -> Handle[ClientT]:
        """Returns a handle to the service."""
        handle: Handle[ClientT] = Handle(self._address, self._client_type, self._make_client)
        self._track_handle(handle)
        return handle


def node(
    constructor: Callable[P, ServiceT], *args: P.args, **kwargs: P.kwargs
) -> ServiceNode[ServiceT]:
    """Returns a node for a service of one's own.

    Its handle dereferences to a Courier client, which has the service's public methods and, under
    `futures`, the same without waiting. Handles of other nodes are passed as `deref(handle)`.

    Raises:
        wiring.WiringError: The arguments do not fit the constructor's signature.
    """
    kind = constructor if isinstance(constructor, type) else object
    arguments: dict[str, Any] = kwargs
    return ServiceNode(constructor, *args, client_type=kind, **arguments)


def deref(handle: base.Handle[ClientT]) -> ClientT:
    """Passes `handle` where its client is wanted: nodes get the client when they run.

    To a type checker the result is the client, so that wiring is checked while typing; in truth it
    is the handle itself.
    """
    return cast(ClientT, handle)
