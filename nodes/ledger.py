"""The account of every gradient that was pushed: what became of it, once and for all."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from nodes.contributions import Ticket

Fate = Literal["applied", "late", "refused", "again"]
"""`again` is no gradient's fate: what was pushed has come to nothing, and may be pushed again."""

_REMEMBERED = 64
"""Newest numbers of a client whose fate is known one by one."""
_MOST_CLIENTS = 1_000


class Account(NamedTuple):
    """What became of gradients.

    Attributes:
        applied: They are in the model.
        late: They were computed on a model that was too old.
        refused: They were no gradients of the model.
    """

    applied: int = 0
    late: int = 0
    refused: int = 0

    def plus(self, fate: Fate) -> "Account":
        """Returns the account with one gradient more."""
        return self._replace(**{fate: getattr(self, fate) + 1})


class _Client:
    """What is known of one client.

    Attributes:
        pushed: How many gradients it has pushed, as far as they, or later ones, have come.
        account: What became of them.
        fates: Fates of the newest, by number.
    """

    def __init__(self, pushed: int, account: Account, fates: dict[int, Fate]) -> None:
        self.pushed = pushed
        self.account = account
        self.fates = fates


class Ledger:
    """Knows the fate of each gradient, which never changes once it has one.

    Of clients that were forgotten, as there have been many since, only the sum is kept.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[int, int], _Client] = {}
        self._former = Account()
        self._former_pushed = 0
        self._void: dict[tuple[int, ...], int] = {}

    @property
    def total(self) -> Account:
        """The account of all clients together."""
        accounts = [self._former, *(client.account for client in self._clients.values())]
        return Account(*map(sum, zip(*accounts, strict=True)))

    @property
    def pushed(self) -> int:
        """Gradients that were pushed, as far as they, or later ones, have come."""
        return self._former_pushed + sum(client.pushed for client in self._clients.values())

    def of(self, member: int, client: int) -> Account:
        """Returns the account of one client."""
        known = self._clients.get((member, client))
        return Account() if known is None else known.account

    def fate(self, ticket: Ticket) -> Optional[Fate]:
        """Returns a gradient's fate, or None before it has one."""
        client = self._clients.get((ticket.member, ticket.client))
        return None if client is None else client.fates.get(ticket.number)

    def note(self, tickets: Iterable[Ticket]) -> None:
        """Takes note of gradients that have come, and have no fate yet."""
        for ticket in tickets:
            self._hear_of(ticket)

    def settle(self, tickets: Iterable[Ticket], fate: Fate) -> None:
        """Gives a fate to gradients; those that have one keep it."""
        for ticket in tickets:
            if self.fate(ticket) is not None:
                continue
            client = self._hear_of(ticket)
            client.account = client.account.plus(fate)
            client.fates[ticket.number] = fate
            if len(client.fates) > _REMEMBERED:
                del client.fates[min(client.fates)]
            self._void.pop(ticket[:3], None)

    def withdraw(self, ticket: Ticket) -> None:
        """Lets this attempt, and those before it, come to nothing whenever they arrive."""
        self._void[ticket.member, ticket.client, ticket.number] = ticket.attempt

    def is_void(self, ticket: Ticket) -> bool:
        """Returns whether an attempt was withdrawn, or its gradient has a fate already."""
        key = ticket.member, ticket.client, ticket.number
        return self.fate(ticket) is not None or self._void.get(key, -1) >= ticket.attempt

    def pack(self) -> NDArray[np.uint8]:
        """Returns the ledger as an array; what was withdrawn is left out."""
        content: dict[str, Any] = {
            "former": [self._former_pushed, self._former],
            "clients": [
                [*key, client.pushed, client.account, list(client.fates.items())]
                for key, client in self._clients.items()
            ],
        }
        return np.frombuffer(json.dumps(content).encode(), np.uint8)

    @classmethod
    def unpack(cls, packed: Union[NDArray[np.uint8], Sequence[int]]) -> "Ledger":
        """Returns the ledger that was packed."""
        content = json.loads(bytes(packed))
        ledger = cls()
        ledger._former_pushed = content["former"][0]
        ledger._former = Account(*content["former"][1])
        for member, client, pushed, account, fates in content["clients"]:
            ledger._clients[member, client] = _Client(pushed, Account(*account), dict(fates))
        return ledger

    def _hear_of(self, ticket: Ticket) -> _Client:
        key = ticket.member, ticket.client
        client = self._clients.pop(key, None) or _Client(0, Account(), {})
        client.pushed = max(client.pushed, ticket.number + 1)
        self._clients[key] = client  # Who was heard of last stands last.
        self._forget_old_clients()
        return client

    def _forget_old_clients(self) -> None:
        while len(self._clients) > _MOST_CLIENTS:
            client = self._clients.pop(next(iter(self._clients)))
            self._former_pushed += client.pushed
            self._former = Account(*map(sum, zip(self._former, client.account, strict=True)))
