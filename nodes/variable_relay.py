"""The variable relay: fetches each version once for all who read it on one host."""

from typing import NoReturn

from nodes import contract
from nodes.service import Handle, ServiceNode, deref
from nodes.shared_versions import Writer
from nodes.variables import VariableClient, VersionServer
from usage import UsageError

_LOOK_SECONDS = 0.02


class VariableRelay(VersionServer):
    """Has the newest version that it has seen at the source, always a whole one.

    It looks at the source while a reader waits for something newer, one look at a time. While the
    source is away, the last version stays.
    """

    def __init__(self, source: VariableClient) -> None:
        """Initializes the relay.

        Args:
            source: Where the versions come from.
        """
        super().__init__()
        self._runtime = contract.runtime()
        self._source = source
        self._writer = Writer(self._store.place(), self._store.add_buffer)

    def receive(self, *_: object) -> NoReturn:
        """Refuses: what is published to one relay would not reach the others' readers.

        Raises:
            UsageError: Always.
        """
        raise UsageError("A relay only hands variables on: publish to the variable source.")

    add_buffer = receive

    def run(self) -> None:
        """Looks at the source when it was asked, until the program stops."""
        try:
            while not self._runtime.wait_for_stop(_LOOK_SECONDS):
                if self._board.take_question():
                    self._source.request()
                version = self._source.poll()
                if version is not None:
                    self._writer.write(version)
        finally:
            self._store.close()


def variable_relay_node(source: Handle[VariableClient]) -> ServiceNode[VariableClient]:
    """Returns the node that stands, on each host with readers, between them and `source`.

    Whoever reads variables takes its handle like that of the source.
    """
    return ServiceNode(
        VariableRelay,
        deref(source),
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(
            on_failure="restart",
            endless=True,
            dispensable=True,
            per_host=True,
            stands_in_for=source.address,
        ),
    )
