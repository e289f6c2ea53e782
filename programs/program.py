"""A Launchpad program whose handles are typed."""

from typing import Any, Optional, TypeVar, overload

import launchpad as lp
from launchpad.nodes import base

from nodes import service

ClientT = TypeVar("ClientT")


class Program(lp.Program):
    """A `lp.Program` that returns typed handles and knows their places in the graph."""

    @overload
    def add_node(
        self, node: service.ServiceNode[ClientT], label: Optional[str] = None
    ) -> service.Handle[ClientT]: ...

    @overload
    def add_node(self, node: base.Node, label: Optional[str] = None) -> Any: ...

    def add_node(self, node: base.Node, label: Optional[str] = None) -> Any:
        """Adds `node` to the current group, or to the group `label`, and returns its handle."""
        handle = super().add_node(node, label)
        for group, nodes in self.groups.items():
            if nodes[-1] is node and isinstance(handle, service.Handle):
                handle.name = f"{group}/{len(nodes) - 1}"
        return handle
