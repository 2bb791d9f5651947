"""The runtime of coordinators with another machine than groups: a counter for each name, with alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.parts import Stored, make_disks, make_kernel, make_partitions, make_topic
from tests.memory_store import MemoryStore
from tidelog.base.decision import Decision, Entry
from tidelog.base.events import Event, error
from tidelog.base.pending import Pending
from tidelog.base.timers import Timer, Timers
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.runtime import Runtime
from tidelog.broker.data_plane.shard import Shard
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.standing import Standing
from tidelog.broker.waiting import WaitingRoom
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition

TOPIC = "counts"


class CountTurn:
    def __init__(self, uptime_ms: int) -> None:
        self.uptime_ms = uptime_ms
        self.decision = Decision()
        self.is_refused = False


class Counts:
    """Numbers by name. One may be set to go up by itself, unless it is set again before."""

    def __init__(self) -> None:
        self.values: dict[bytes, int] = {}
        self.pending = Pending()
        self.timers: Timers[bytes] = Timers()
        self.alarms: dict[bytes, Timer[bytes]] = {}
        self.undone: list[ErrorCode] = []
        self.is_stopped = False

    @property
    def record_count(self) -> int:
        return len(self.values)

    def replay(self, entry: Entry) -> None:
        if entry.value is None:
            self.values.pop(entry.key, None)
        else:
            self.values[entry.key] = int(entry.value)

    def stored(self) -> Iterator[list[Entry]]:
        yield [Entry(name, b"%d" % value) for name, value in self.values.items()]

    def stored_at(self, key: bytes) -> Entry | None:
        return Entry(key, b"%d" % self.values[key]) if key in self.values else None

    def resume(self, turn: CountTurn) -> None:
        for name in self.values:
            self._set_alarm(turn, name)

    def _set_alarm(self, turn: CountTurn, name: bytes) -> None:
        alarm = self.alarms.setdefault(name, Timer(name))
        self.timers.set(alarm, turn.uptime_ms + 1_000)

    def tick(self, turn: CountTurn) -> None:
        name = self.timers.pop_due(turn.uptime_ms)
        if name is not None and name in self.values:  # it may have gone since
            self._write(turn, name, self.values[name] + 1)

    def _write(self, turn: CountTurn, name: bytes, value: int) -> None:
        turn.decision.entries.append(Entry(name, b"%d" % value))
        self._set_alarm(turn, name)

    def set(self, turn: CountTurn, name: bytes, value: int, ticket: Told) -> None:
        self._write(turn, name, value)
        turn.decision.answer(ticket, value)

    def forget(self, turn: CountTurn, name: bytes) -> None:
        turn.decision.entries.append(Entry(name, None))

    def get(self, turn: CountTurn, name: bytes, ticket: Told) -> None:
        turn.decision.answer(ticket, self.values.get(name))

    def stop(self, turn: CountTurn) -> None:
        self.is_stopped = True

    def undo(self, turn: CountTurn, refused: CountTurn, code: ErrorCode) -> None:
        self.undone.append(code)


class Told:
    """A ticket, or an effect: what it heard."""

    is_gone = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def give(self, answer: Any) -> None:
        self.heard.append(answer)

    def fail(self, code: int) -> None:
        self.heard.append(ErrorCode(code))


class CountDesk:
    """The tenant: one machine for each partition of its topic."""

    topic = TOPIC

    def __init__(self, topic: str = TOPIC) -> None:
        kernel = self.kernel = make_kernel()
        disks, standing = make_disks(kernel), Standing(kernel.node_id)
        partitions = make_partitions(kernel, disks, make_topic(topic))
        (self.partition,) = partitions.all()
        flushing = Flushing(kernel.clock, kernel.outbox, disks)
        self.loaded: list[int] = []
        self.resigned: list[int] = []
        self.runtime: Runtime[Counts] = Runtime(
            self,
            kernel,
            disks,
            flushing,
            Statements(kernel.node_id, standing, Stored(kernel, MemoryStore()).desk, partitions),
            Checkpoints(kernel, standing, disks, partitions),
            WaitingRoom(),
        )
        flushing.flushed.connect(self.runtime.on_advanced)

    def new_machine(self, partition: Partition) -> Counts:
        return Counts()

    def new_turn(self, shard: Shard[Counts]) -> CountTurn:
        return CountTurn(self.kernel.clock.uptime_ms)

    def load_failed(self, partition: Partition, reason: str) -> Event:
        return error("count load failed", reason=reason)

    def write_failed(self, partition: Partition, reason: str) -> Event:
        return error("count write failed", reason=reason)

    def on_loaded(self, shard: Shard[Counts]) -> None:
        self.loaded.append(shard.partition.index)

    def on_resigned(self, shard: Shard[Counts]) -> None:
        self.resigned.append(shard.partition.index)

    def lead(self) -> Shard[Counts]:
        self.runtime.lead(self.partition)
        while self.runtime.has_work:
            self.runtime.work()
        shard = self.runtime.find(self.partition)
        assert shard is not None
        return shard

    def ask(self, shard: Shard[Counts], command: Callable[[Counts, Any, Told], None]) -> Told:
        ticket = Told()
        self.runtime.run(shard, lambda machine, turn: command(machine, turn, ticket))
        return ticket

    def set(self, shard: Shard[Counts], name: bytes, value: int) -> Told:
        return self.ask(shard, lambda machine, turn, ticket: machine.set(turn, name, value, ticket))

    def get(self, shard: Shard[Counts], name: bytes) -> Told:
        return self.ask(shard, lambda machine, turn, ticket: machine.get(turn, name, ticket))

    def advance(self, milliseconds: int) -> None:
        clock = self.kernel.clock
        clock.set(clock.now_ms + milliseconds, clock.uptime_ms + milliseconds)
        self.runtime.tick()


@pytest.fixture
def desk() -> CountDesk:
    return CountDesk()


def test_an_effect_leaves_when_its_records_are_committed_and_a_read_waits_with_it(
    desk: CountDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_committed = [False]  # as while a follower is behind
    monkeypatch.setattr(Journal, "is_committed", lambda self, offset: is_committed[0])
    shard = desk.lead()
    effect, early = desk.set(shard, b"a", 5), desk.get(shard, b"a")
    desk.runtime.write()
    late = desk.get(shard, b"a")
    assert (effect.heard, early.heard, late.heard) == ([], [], [])
    is_committed[0] = True
    desk.runtime.on_advanced(shard.partition)
    assert (effect.heard, early.heard, late.heard) == ([5], [5], [5])


def test_an_answer_that_waits_for_nothing_leaves_before_the_records_of_its_turn_are_committed(
    desk: CountDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "is_committed", lambda self, offset: False)
    shard, known = desk.lead(), Told()

    def set_and_tell(machine: Counts, turn: CountTurn, ticket: Told) -> None:
        machine.set(turn, b"a", 5, ticket)
        turn.decision.tell(known, "known")

    decided = desk.ask(shard, set_and_tell)
    assert (known.heard, decided.heard) == (["known"], [])
    desk.runtime.resign(shard.partition)
    assert (known.heard, decided.heard) == (["known"], [ErrorCode.not_coordinator])


def test_who_is_to_be_told_at_once_hears_of_a_bug(desk: CountDesk) -> None:
    shard = desk.lead()

    def tell_and_fail(machine: Counts, turn: CountTurn, ticket: Told) -> None:
        turn.decision.tell(known, "known")
        raise RuntimeError("a bug")

    known = Told()
    with pytest.raises(RuntimeError):
        desk.ask(shard, tell_and_fail)
    assert known.heard == [ErrorCode.unknown_server_error]


def test_what_was_decided_is_there_after_another_load(desk: CountDesk) -> None:
    shard = desk.lead()
    desk.set(shard, b"a", 5)
    desk.set(shard, b"b", 7)
    desk.runtime.write()
    machine = shard.machine
    desk.runtime.resign(shard.partition)
    assert machine.is_stopped and desk.resigned == [0]
    again = desk.lead()
    assert again is not shard and again.machine.values == {b"a": 5, b"b": 7}
    assert desk.loaded == [0, 0]


def test_a_timer_looks_at_the_state_as_it_is_when_it_fires(desk: CountDesk) -> None:
    shard = desk.lead()
    desk.set(shard, b"a", 5)
    desk.set(shard, b"b", 7)
    desk.runtime.run(shard, lambda machine, turn: machine.forget(turn, b"b"))
    desk.advance(1_500)
    assert shard.machine.values == {b"a": 6}
    assert desk.runtime.next_due_ms is not None


def test_a_timer_that_is_due_fires_before_a_request_that_came_late(desk: CountDesk) -> None:
    shard = desk.lead()
    desk.set(shard, b"a", 5)
    desk.runtime.write()
    clock = desk.kernel.clock
    clock.set(clock.now_ms, clock.uptime_ms + 1_500)
    read = desk.get(shard, b"a")
    desk.runtime.write()
    assert read.heard == [6]


def test_who_waits_is_told_when_the_partition_is_led_elsewhere(desk: CountDesk) -> None:
    shard = desk.lead()
    ticket = desk.set(shard, b"a", 5)
    desk.runtime.resign(shard.partition)
    assert ticket.heard == [ErrorCode.not_coordinator]
    assert not desk.runtime.run(shard, lambda machine, turn: None)


def test_a_bug_leaves_the_journal_and_is_told_by_the_tenant(desk: CountDesk) -> None:
    shard = desk.lead()
    desk.set(shard, b"a", 5)

    def fail(machine: Counts, turn: CountTurn) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        desk.runtime.run(shard, fail)
    again = desk.lead()
    assert again is not shard and again.machine.values == {b"a": 5}
    events = desk.kernel.outbox.events
    assert [event.name for event in events if event.name.startswith("count")] == ["count write failed"]


def test_a_decision_that_too_few_replicas_would_keep_is_undone(
    desk: CountDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = desk.lead()
    monkeypatch.setattr(Partition, "is_under_minimum", property(lambda self: True))
    ticket = desk.set(shard, b"a", 5)
    assert ticket.heard == [ErrorCode.coordinator_not_available]
    assert shard.machine.undone == [ErrorCode.coordinator_not_available] and shard.machine.values == {}


def test_partitions_of_other_topics_are_nobodys() -> None:
    desk = CountDesk("other")
    desk.runtime.lead(desk.partition)
    assert list(desk.runtime.all()) == []
