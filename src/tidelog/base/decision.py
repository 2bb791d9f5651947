"""What a state machine decides: records to be appended, and answers that wait until they are committed.

**Invariant:** deciding changes nothing that a record stands for; that happens when the record is replayed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Entry(NamedTuple):
    """One record of a journal; no value takes the key away."""

    key: bytes
    value: bytes | None
    fact: object | None = None  # what it says, if somebody has that at hand


class Ticket(Protocol):
    """The place of somebody who waits for an answer."""

    @property
    def is_gone(self) -> bool:
        """Nobody waits there any more."""
        ...

    def give(self, answer: Any) -> None:
        """The answer, once."""
        ...

    def fail(self, code: int) -> None:
        """There will be no answer, for that reason; nothing if there was one."""
        ...


class Decision:
    """What one input leads to, while it is being put together."""

    __slots__ = ("answers", "entries")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.answers: list[tuple[Ticket, Any]] = []

    def answer(self, ticket: Ticket, answer: Any) -> None:
        self.answers.append((ticket, answer))
