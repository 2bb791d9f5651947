"""The transaction machine on the runtime of coordinators, with a journal on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.transactions.desk import DeskIds, DeskSettings, Sender, Waiting
from tests.transactions.stories import A, B, raised, told
from tests.wire.harness import Harness
from tidelog.base.events import Event, error
from tidelog.broker.data_plane.runtime import Runtime
from tidelog.broker.data_plane.shard import Shard
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.transaction import Identity
from tidelog.transactions.turn import Add, End, Init, Marked, Turn

TOPIC = "transactions"


class ShardDesk:
    """The tenant: one machine for the only partition of its topic."""

    topic = TOPIC

    def __init__(self, harness: Harness) -> None:
        broker = harness.broker
        self.harness = harness
        self.settings, self.ids, self.sender = DeskSettings(), DeskIds(), Sender()
        self.runtime: Runtime[TransactionCoordinator] = Runtime(
            self,
            broker.kernel,
            broker.disks,
            broker.flushing,
            broker.statements,
            broker.checkpoints,
            broker.waiting,
        )
        broker.signals.advanced.connect(self.runtime.on_advanced)

    def new_machine(self, partition: Partition) -> TransactionCoordinator:
        self.sender = Sender()
        return TransactionCoordinator(self.sender)

    def new_turn(self, shard: Shard[TransactionCoordinator]) -> Turn:
        clock = self.harness.broker.clock
        size_max = shard.journal.record_size_max
        return Turn(clock.now_ms, clock.uptime_ms, self.settings, self.ids, record_size_max=size_max)

    def load_failed(self, partition: Partition, reason: str) -> Event:
        return error("load failed", reason=reason)

    def write_failed(self, partition: Partition, reason: str) -> Event:
        return error("write failed", reason=reason)

    def on_loaded(self, shard: Shard[TransactionCoordinator]) -> None: ...

    def on_resigned(self, shard: Shard[TransactionCoordinator]) -> None: ...

    def lead(self) -> Shard[TransactionCoordinator]:
        partition = self.harness.partition(TOPIC)
        self.runtime.resign(partition)
        self.runtime.lead(partition)
        while self.runtime.has_work:
            self.runtime.work()
        shard = self.runtime.find(partition)
        assert shard is not None and shard.is_resumed
        return shard

    def ask(self, asked: Init | Add | End) -> Waiting:
        ticket, shard = Waiting(), self.shard
        named = {Init: "init", Add: "add", End: "end"}[type(asked)]
        self.runtime.run(shard, lambda machine, turn: getattr(machine, named)(turn, asked, ticket))
        self.runtime.write()
        return ticket

    @property
    def shard(self) -> Shard[TransactionCoordinator]:
        found = self.runtime.find(self.harness.partition(TOPIC))
        assert found is not None
        return found

    @property
    def state(self) -> str:
        return self.shard.machine.transactions["t"].state.title

    def mark_all(self) -> None:
        sent, self.sender.sent = self.sender.sent, []
        for markers in sent:
            done = Marked(markers.transactional_id, markers.identity, markers.number, markers.partitions)
            self.runtime.run(self.shard, lambda machine, turn, done=done: machine.marked(turn, done))  # type: ignore[misc]
        self.runtime.write()

    def begin(self) -> Identity:
        producer: Identity = self.ask(Init("t", 60_000)).answer.identity
        assert self.ask(Add("t", producer, (A, B), True)).answer == [ErrorCode.none] * 2
        return producer


@pytest.fixture
def desk(tmp_path: Path) -> ShardDesk:
    harness = Harness(tmp_path)
    harness.create_topic(TOPIC, 1)
    desk = ShardDesk(harness)
    desk.lead()
    return desk


def test_a_transaction_goes_on_where_its_journal_ended(desk: ShardDesk) -> None:
    producer = desk.begin()
    desk.lead()
    ended = desk.ask(End("t", producer, is_commit=True, is_new_protocol=True))
    desk.lead()
    assert ended.answer.code is ErrorCode.not_coordinator
    again = desk.ask(End("t", producer, is_commit=True, is_new_protocol=True))
    assert not again.answers
    desk.mark_all()
    assert again.answer == told(raised(producer))
    desk.lead()
    assert desk.state == "CompleteCommit"


def test_markers_wait_for_the_high_watermark_and_the_end_does_not_wait_for_complete(
    desk: ShardDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_committed = [True]  # as while a follower is behind
    monkeypatch.setattr(Journal, "is_committed", lambda self, offset: is_committed[0])
    producer = desk.begin()
    is_committed[0] = False
    ended = desk.ask(End("t", producer, is_commit=True, is_new_protocol=True))
    assert desk.sender.sent == []
    desk.lead()
    assert desk.sender.sent == []
    again = desk.ask(End("t", producer, is_commit=True, is_new_protocol=True))
    is_committed[0] = True
    desk.runtime.on_advanced(desk.shard.partition)
    is_committed[0] = False
    desk.mark_all()
    assert (ended.answer.code, again.answer) == (ErrorCode.not_coordinator, told(raised(producer)))


def test_a_journal_that_is_rewritten_has_the_prepared_transaction(desk: ShardDesk) -> None:
    producer = desk.begin()
    desk.ask(End("t", producer, is_commit=False))
    held = desk.shard.machine.transactions["t"]
    journal: Any = desk.shard.journal
    journal.write_anew(desk.harness.broker.clock.now_ms)
    assert not journal.is_being_written_anew
    desk.harness.partition(TOPIC).trim(journal._anew_offset)
    assert desk.lead().machine.transactions == {"t": held}
    assert [markers.partitions for markers in desk.sender.sent] == [(A, B)]


def test_a_timer_that_cannot_be_kept_does_not_spin(desk: ShardDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.begin()
    monkeypatch.setattr(Partition, "is_under_minimum", True)
    clock = desk.harness.broker.clock
    clock.set(clock.now_ms + 61_000, clock.uptime_ms + 61_000)
    desk.runtime.tick()
    assert desk.state == "Ongoing"
    monkeypatch.setattr(Partition, "is_under_minimum", False)
    clock.set(clock.now_ms + 1_000, clock.uptime_ms + 1_000)
    desk.runtime.tick()
    assert desk.state == "PrepareAbort"
    assert len(desk.sender.sent) == 1
