from typing import Any, Generic, TypeVar

from launchpad import Address
from launchpad.context import LaunchContext
from launchpad.nodes import dereference

ClientT = TypeVar("ClientT", covariant=True)

class Handle(dereference.Dereferenceable[ClientT], Generic[ClientT]):
    def connect(self, node: Node, label: str) -> None: ...
    def dereference(self) -> ClientT: ...

class Node:
    _launch_context: LaunchContext
    _input_handles: list[Handle[Any]]
    _created_handles: list[Handle[Any]]
    addresses: list[Address]
    @property
    def input_handles(self) -> list[Handle[Any]]: ...
    @property
    def launch_context(self) -> LaunchContext: ...
    def _track_handle(self, handle: Handle[Any]) -> Handle[Any]: ...
    def allocate_address(self, address: Address) -> None: ...
    def create_handle(self) -> Any: ...
