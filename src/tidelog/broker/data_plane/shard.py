"""One partition whose state machine runs here, and a request that waits for what it decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidelog.base.decision import Entry, Ticket
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition

M = TypeVar("M")


class Awaited(Parked):
    """A request that a coordinator answers: at once, or when its answer is decided and committed."""

    __slots__ = ("_encode", "_ready", "_refuse", "_waiting")

    def __init__(
        self,
        waiting: WaitingRoom,
        deadline_ms: int,
        encode: Callable[[Any], Answer],
        refuse: Callable[[ErrorCode], Answer],
    ) -> None:
        super().__init__(deadline_ms, [])
        self._waiting = waiting
        self._encode = encode
        self._refuse = refuse
        self._ready: Answer | None = None

    def give(self, answer: Any) -> None:
        self._leave(self._encode(answer))

    def fail(self, code: int) -> None:
        self._leave(self._refuse(ErrorCode(code)))

    def _leave(self, answer: Answer) -> None:
        if self.connection is None:
            self._ready = self._ready or answer
        else:
            self._waiting.finish(self, answer)

    def result(self) -> Answer | Parked:
        """What the handler returns: the answer if there is one, else this, to be parked."""
        return self if self._ready is None else self._ready

    def finish_late(self) -> Answer | None:
        return self._refuse(ErrorCode.coordinator_not_available)  # what clients try again


Answers = list[tuple[Ticket, Any]]


class Shard(Generic[M]):
    """One partition that is the memory of a machine: its journal, what was decided and is yet to be written,
    with the answers that wait for that, and those that wait for a commit."""

    __slots__ = (
        "answers",
        "entries",
        "failure_count",
        "gathered",
        "is_resumed",
        "journal",
        "machine",
        "uncommitted",
    )

    def __init__(self, journal: Journal, machine: M) -> None:
        self.journal = journal
        self.machine = machine
        self.entries: list[Entry] = []
        self.answers: Answers = []
        self.gathered: Any = None  # the turn that independent commands share, which has yet to take effect
        self.uncommitted: deque[tuple[int, Answers]] = deque()
        self.is_resumed = False  # it is loaded, and its machine goes on
        self.failure_count = 0  # of the attempts before this one, since its machine went on

    def drop_gone(self) -> None:
        """Who has been told that it took too long waits no more. A ticket hears of that: others may stand in
        line behind it."""
        if self.uncommitted:
            gone = [each for _, answers in self.uncommitted for each in answers if each[0].is_gone]
            waiting = [
                (end_offset, [each for each in answers if not each[0].is_gone])
                for end_offset, answers in self.uncommitted
            ]
            self.uncommitted = deque(each for each in waiting if each[1])
            fail(gone, ErrorCode.coordinator_not_available)

    @property
    def partition(self) -> Partition:
        return self.journal.partition


def give(answers: Answers) -> None:
    for ticket, answer in answers:
        ticket.give(answer)


def fail(answers: Answers, code: ErrorCode) -> None:
    for ticket, _ in answers:
        ticket.fail(code)
