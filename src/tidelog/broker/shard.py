"""One partition of groups that this broker coordinates, and a request that waits for what it decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.base.decision import Entry, Ticket
from tidelog.broker.waiting import Parked
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.turn import Turn
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

Command = Callable[[GroupCoordinator, Turn], None]


class Awaited(Parked):
    """A request that a coordinator answers: at once, or when its answer is decided and committed."""

    __slots__ = ("_broker", "_encode", "_ready", "_refuse")

    def __init__(
        self,
        broker: Broker,
        deadline_ms: int,
        encode: Callable[[Any], Answer],
        refuse: Callable[[ErrorCode], Answer],
    ) -> None:
        super().__init__(deadline_ms, [])
        self._broker = broker
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
            self._broker.waiting.finish(self, answer)

    def result(self) -> Answer | Parked:
        """What the handler returns: the answer if there is one, else this, to be parked."""
        return self if self._ready is None else self._ready

    def finish_late(self) -> Answer | None:
        return self._refuse(ErrorCode.coordinator_not_available)  # what clients try again


Answers = list[tuple[Ticket, Any]]


class Shard:
    """One partition of groups: its journal, its coordinator, what was decided and is yet to be written, with
    the answers that wait for that, and those that wait for a commit."""

    __slots__ = ("answers", "commits", "coordinator", "entries", "journal", "uncommitted")

    def __init__(self, journal: Journal, coordinator: GroupCoordinator) -> None:
        self.journal = journal
        self.coordinator = coordinator
        self.entries: list[Entry] = []
        self.answers: Answers = []
        self.commits: Turn | None = None  # of commits, which has yet to take effect
        self.uncommitted: deque[tuple[int, Answers]] = deque()

    def drop_gone(self) -> None:
        """Who has been told that it took too long waits no more."""
        if self.uncommitted:
            waiting = [
                (end_offset, [each for each in answers if not each[0].is_gone])
                for end_offset, answers in self.uncommitted
            ]
            self.uncommitted = deque(each for each in waiting if each[1])

    @property
    def partition(self) -> Partition:
        return self.journal.partition


def give(answers: Answers) -> None:
    for ticket, answer in answers:
        ticket.give(answer)


def fail(answers: Answers, code: ErrorCode) -> None:
    for ticket, _ in answers:
        ticket.fail(code)
