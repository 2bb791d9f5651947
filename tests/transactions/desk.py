"""A transaction coordinator on its own: turns in, answers and markers out, its journal a list.

What is decided is committed at once, unless `is_committing` is off: then answers and markers wait for
`commit`, as they do for the high watermark. Time moves when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.base.decision import Entry, Ticket
from tidelog.broker.data_plane.runtime import Machine
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.listing import Filters, Listing
from tidelog.transactions.records import read_key, read_value
from tidelog.transactions.transaction import NO_IDENTITY, Identity, Spot, Transaction
from tidelog.transactions.turn import Add, End, Init, Marked, Markers, ProducerAnswer, Turn

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
TURNS_AT_ONCE_MAX = 1_000
FIRST_PRODUCER_ID = 1_000
ALL = Filters()
SETTINGS = {
    "transaction.max.timeout.ms": 900_000,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
}


class DeskSettings:
    def __init__(self) -> None:
        self.values = dict(SETTINGS)

    def number(self, key: str) -> int:
        return self.values[key]


class DeskIds:
    """Producer ids, one after the other; none while there are none."""

    def __init__(self) -> None:
        self.is_empty = False
        self._following = FIRST_PRODUCER_ID

    def take(self) -> int | None:
        if self.is_empty:
            return None
        self._following += 1
        return self._following - 1


class Waiting:
    """Somebody who asked, and what came back."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.is_gone = False

    def give(self, answer: Any) -> None:
        self.answers.append(answer)

    def fail(self, code: int) -> None:
        self.answers.append(ErrorCode(code))

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, self.answers
        return self.answers[0]


class Sender:
    """What is to be marked; nothing arrives anywhere until the test says so."""

    is_gone = False

    def __init__(self) -> None:
        self.sent: list[Markers] = []

    def give(self, answer: Markers) -> None:
        self.sent.append(answer)

    def fail(self, code: int) -> None:
        pass


class Desk:
    def __init__(self) -> None:
        self.settings, self.ids, self.sender = DeskSettings(), DeskIds(), Sender()
        self.uptime_ms = 0
        self.now_ms = START_MS
        self.is_committing = True
        self.is_refusing = False  # nothing can be written
        self.may_raise_epochs = True
        self.record_size_max = 1_000_000
        self.journal: list[Entry] = []
        self.committed = 0
        self._uncommitted: list[tuple[int, list[tuple[Ticket, Any]]]] = []
        self.coordinator = TransactionCoordinator(self.sender)
        _: Machine[Turn] = self.coordinator  # it runs where the groups do
        self.run(self.coordinator.resume)

    # The runtime's part.

    def turn(self) -> Turn:
        return Turn(
            self.now_ms,
            self.uptime_ms,
            self.settings,
            self.ids,
            self.may_raise_epochs,
            self.record_size_max,
        )

    def run(self, *commands: Callable[[Turn], object]) -> None:
        """Commands that share a turn."""
        turn = self.turn()
        for command in commands:
            command(turn)
        decision = turn.decision
        for ticket, answer in decision.told:
            ticket.give(answer)
        if decision.entries and self.is_refusing:
            self._refuse(turn)
            return
        for entry in decision.entries:
            _check(entry)
            assert len(entry.key) + len(entry.value or b"") <= self.record_size_max
            self.journal.append(entry)
            self.coordinator.replay(entry)
        self._uncommitted.append((len(self.journal), decision.answers))
        if self.is_committing:
            self.commit()

    def _refuse(self, turn: Turn) -> None:
        turn.is_refused = True
        for ticket, _ in turn.decision.answers:
            ticket.fail(ErrorCode.coordinator_not_available)
        undone = self.turn()
        self.coordinator.undo(undone, turn, ErrorCode.coordinator_not_available)
        assert not undone.decision.entries
        for ticket, answer in undone.decision.answers:
            ticket.give(answer)

    def commit(self) -> None:
        """All that was written so far."""
        self.committed = len(self.journal)
        ready, self._uncommitted = self._uncommitted, []
        for _, answers in ready:
            for ticket, answer in answers:
                ticket.give(answer)

    def restart(self, *, losing: int = 0) -> None:
        """A new coordinator, from the bytes that were written, but for some at the end that were not
        committed: the last value of each key."""
        assert len(self.journal) - losing >= self.committed
        self.journal = self.journal[: len(self.journal) - losing]
        self._uncommitted, self.sender = [], Sender()
        self.coordinator = TransactionCoordinator(self.sender)
        for key, value in latest(self.journal).items():
            self.coordinator.replay(Entry(key, value))
        self.run(self.coordinator.resume)

    def tick(self, delay_ms: int) -> None:
        until_ms = self.uptime_ms + delay_ms
        timers, turns = self.coordinator.timers, 0
        while (next_ms := timers.next_ms) is not None and next_ms <= until_ms:
            turns = turns + 1 if next_ms <= self.uptime_ms else 0
            assert turns < TURNS_AT_ONCE_MAX, "timers that fire at once, again and again"
            self._set_time(max(self.uptime_ms, next_ms))
            self.run(self.coordinator.tick)
        self._set_time(until_ms)

    def _set_time(self, uptime_ms: int) -> None:
        self.now_ms += uptime_ms - self.uptime_ms
        self.uptime_ms = uptime_ms

    # Requests.

    def _ask(self, command: Callable[[Turn, Waiting], object]) -> Waiting:
        waiting = Waiting()
        self.run(lambda turn: command(turn, waiting))
        return waiting

    def init(
        self, identity: Identity = NO_IDENTITY, timeout_ms: int = TIMEOUT_MS, tid: str = "t", **how: Any
    ) -> Waiting:
        asked = Init(tid, timeout_ms, identity, **how)
        return self._ask(lambda turn, ticket: self.coordinator.init(turn, asked, ticket))

    def add(
        self,
        identity: Identity,
        *partitions: Spot,
        problems: Mapping[Spot, ErrorCode] | None = None,
        tid: str = "t",
        **how: Any,
    ) -> Waiting:
        asked = Add(tid, identity, partitions, **how)
        return self._ask(lambda turn, ticket: self.coordinator.add(turn, asked, ticket, problems))

    def verify(self, identity: Identity, *partitions: Spot, tid: str = "t") -> Waiting:
        asked = Add(tid, identity, partitions)
        return self._ask(lambda turn, ticket: self.coordinator.verify(turn, asked, ticket))

    def end(self, identity: Identity, is_commit: bool = True, *, tid: str = "t", **how: Any) -> Waiting:
        asked = End(tid, identity, is_commit, **how)
        return self._ask(lambda turn, ticket: self.coordinator.end(turn, asked, ticket))

    def commit_new(self, identity: Identity) -> Waiting:
        return self.end(identity, is_new_protocol=True)

    def abort_new(self, identity: Identity) -> Waiting:
        return self.end(identity, False, is_new_protocol=True)

    def listed(self, filters: Filters = ALL) -> Listing:
        found: Listing = self._ask(
            lambda turn, ticket: self.coordinator.list_transactions(turn, filters, ticket)
        ).answer
        return found

    def described(self, tid: str = "t") -> Transaction | None:
        found: Transaction | None = self._ask(
            lambda turn, ticket: self.coordinator.describe(turn, [tid], ticket)
        ).answer[0]
        return found

    # Markers.

    def mark(self, markers: Markers, *partitions: Spot) -> None:
        """They are written and committed in some partitions, or in all."""
        spots = partitions or markers.partitions
        done = Marked(markers.transactional_id, markers.identity, markers.number, spots)
        self.run(lambda turn: self.coordinator.marked(turn, done))

    def mark_all(self) -> None:
        sent, self.sender.sent = self.sender.sent, []
        for markers in sent:
            self.mark(markers)

    # What a story needs.

    def found(self, tid: str = "t") -> Transaction:
        return self.coordinator.transactions[tid]

    @property
    def state(self) -> str:
        return self.found().state.title

    def producer(self, **how: Any) -> Identity:
        """A new instance."""
        answer: ProducerAnswer = self.init(**how).answer
        assert answer.code == ErrorCode.none, answer
        return answer.identity

    def begin(self, *partitions: Spot, is_new_protocol: bool = True) -> Identity:
        """A new instance with an open transaction."""
        producer = self.producer()
        self.add(producer, *(partitions or (("a", 0),)), is_new_protocol=is_new_protocol)
        assert self.state == "Ongoing"
        return producer


def latest(journal: list[Entry]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for entry in journal:
        if entry.value is None:
            found.pop(entry.key, None)
        else:
            found[entry.key] = entry.value
    return found


def _check(entry: Entry) -> None:
    """What an entry carries along is what its bytes say."""
    if entry.value is not None:
        assert read_value(read_key(entry.key), entry.value) == entry.fact


def code_of(waiting: Waiting) -> ErrorCode:
    """Of an answer, or the first of its codes."""
    answer = waiting.answer
    code = answer[0] if isinstance(answer, list) else answer.code
    assert isinstance(code, ErrorCode)
    return code
