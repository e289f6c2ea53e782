"""The account of every gradient that was pushed: what became of it, once and for all."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from nodes.contributions import Ticket

Fate = Literal["applied", "late", "refused", "again", "pending"]
"""The last two are no gradient's fate, but answers: push it again, or wait for its fate."""

_REMEMBERED = 64
"""Newest numbers of a client whose fate is known one by one."""
_LIVES = 2
"""Newest lives of a learner that are known one by one: more than one may be on their way."""


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

    Of a learner's earlier lives only the sum is kept.
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
            if client is None:  # It came before its life was forgotten, and was counted then.
                self._former = self._former.plus(fate)
                continue
            client.account = client.account.plus(fate)
            client.fates[ticket.number] = fate
            if len(client.fates) > _REMEMBERED:
                del client.fates[min(client.fates)]
            self._void.pop(ticket[:3], None)

    def withdraw(self, ticket: Ticket) -> None:
        """Lets this attempt, and those before it, come to nothing whenever they arrive."""
        self._void[ticket.member, ticket.client, ticket.number] = ticket.attempt

    def is_void(self, ticket: Ticket) -> bool:
        """Returns whether an attempt comes to nothing.

        It was withdrawn, its gradient has a fate already, or it is of a life that was forgotten.
        """
        withdrawn = self._void.get(ticket[:3], -1) >= ticket.attempt
        return withdrawn or self.fate(ticket) is not None or self._is_forgotten(ticket)

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

    def _hear_of(self, ticket: Ticket) -> Optional[_Client]:
        """Returns the client, which may be a new one, or None if it was forgotten."""
        if self._is_forgotten(ticket):
            return None
        key = ticket.member, ticket.client
        if key not in self._clients:
            self._clients[key] = _Client(0, Account(), {})
            for life in self._lives(ticket.member)[:-_LIVES]:
                self._forget((ticket.member, life))
        client = self._clients[key]
        client.pushed = max(client.pushed, ticket.number + 1)
        return client

    def _is_forgotten(self, ticket: Ticket) -> bool:
        lives = self._lives(ticket.member)
        return len(lives) >= _LIVES and ticket.client < lives[-_LIVES]

    def _lives(self, member: int) -> list[int]:
        return sorted(client for other, client in self._clients if other == member)

    def _forget(self, key: tuple[int, int]) -> None:
        client = self._clients.pop(key)
        self._void = {void: attempt for void, attempt in self._void.items() if void[:2] != key}
        self._former_pushed += client.pushed
        self._former = Account(*map(sum, zip(self._former, client.account, strict=True)))
