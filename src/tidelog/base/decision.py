"""The outcome of a state machine's input: records to append, and answers that wait for their commit.

| machine                   | what it changes while it decides                                             |
|---------------------------|------------------------------------------------------------------------------|
| transactions              | nothing that a record stands for                                             |
| consumer groups, offsets  | nothing that a record stands for                                             |
| classic groups            | generation, leader, protocol and members, before their record is written, as |
|                           | Kafka does: `Turn.formers` has the former group, to revert to                |

**Invariant:** after a decision is replayed, refused or reverted, the state is what the journal gives.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Entry(NamedTuple):
    """One record of a journal; an entry without a value deletes its key."""

    key: bytes
    value: bytes | None
    fact: object | None = None  # the decoded value, if the caller has it at hand


class Writer(NamedTuple):
    """Whose transaction entries belong to."""

    producer_id: int
    epoch: int


class Ticket(Protocol):
    """The place of a client that waits for an answer."""

    @property
    def is_gone(self) -> bool:
        """Whether the client stopped waiting: its connection was closed."""
        ...

    def give(self, answer: Any) -> None:
        """Deliver the answer, once."""
        ...

    def fail(self, code: int) -> None:
        """End the wait with an error code; without effect after an answer."""
        ...


class Decision:
    """What one input leads to, while the state machine decides it."""

    __slots__ = ("answers", "entries", "told", "writer")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.writer: Writer | None = None  # if they are of a transaction: they count with its marker
        self.answers: list[tuple[Ticket, Any]] = []
        self.told: list[tuple[Ticket, Any]] = []

    def answer(self, ticket: Ticket, answer: Any) -> None:
        """When the entries are committed, and all that was decided before them."""
        self.answers.append((ticket, answer))

    def tell(self, ticket: Ticket, answer: Any) -> None:
        """Now: the answer reflects only what is committed already."""
        self.told.append((ticket, answer))
