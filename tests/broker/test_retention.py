"""Old segments that leave their logs a piece at a time, once what must outlast them is durable."""

from __future__ import annotations

from tests.broker.parts import append, make_disks, make_kernel, make_partitions, make_topic
from tests.jobs import run_job
from tests.log.making import NOW_MS
from tidelog.base.limits import RETENTION_SEGMENTS_MAX
from tidelog.broker.data_plane.flushing import Flush, Flushing
from tidelog.broker.data_plane.retention import Retention
from tidelog.broker.outbox import Removal
from tidelog.broker.waiting import WaitingRoom
from tidelog.replication.partition import Partition

DAY_MS = 86_400_000


class Kept:
    """One partition of many segments, all of them old."""

    def __init__(self, segment_count: int, retention_ms: str = "1000", delay_ms: str = "60000") -> None:
        self.kernel = make_kernel(log_retention_check_interval_ms="1000")
        disks = make_disks(self.kernel)
        topic = make_topic(segment_bytes="1024", retention_ms=retention_ms, file_delete_delay_ms=delay_ms)
        partitions = make_partitions(self.kernel, disks, topic)
        (self.partition,) = partitions.all()
        self.flushing = Flushing(self.kernel.clock, self.kernel.outbox, disks)
        self.retention = Retention(self.kernel, disks, partitions, self.flushing, WaitingRoom())
        self.flushing.flushed.connect(self.retention.on_flushed)
        for _ in range(segment_count):
            append(self.partition, value=b"v" * 900)
        self.kernel.clock.now_ms = NOW_MS + 30 * DAY_MS

    def tick(self, uptime_ms: int) -> None:
        self.kernel.clock.uptime_ms = uptime_ms
        self.retention.tick()

    def work(self) -> tuple[list[Removal], list[Flush]]:
        """All pieces until there is nothing to do: what is to be removed, and what to be flushed first."""
        while self.retention.has_work:
            self.retention.work()
        effects = self.kernel.outbox.take_effects()
        removals = [effect for effect in effects if isinstance(effect, Removal)]
        return removals, [effect for effect in effects if isinstance(effect, Flush)]


def flush(partition: Partition, flushing: Flushing) -> None:
    partition.want_flush()
    flushing.maybe_begin(partition)


def test_logs_are_visited_once_each_interval() -> None:
    kept = Kept(1, retention_ms="-1")
    for uptime_ms, is_due in ((0, False), (999, False), (1_000, True), (1_500, False), (2_000, True)):
        kept.tick(uptime_ms)
        assert kept.retention.has_work is is_due, uptime_ms
        kept.work()


def test_segments_leave_only_when_what_outlasts_them_is_durable() -> None:
    kept = Kept(3)
    kept.tick(0)
    kept.tick(1_000)
    removals, (first,) = kept.work()
    assert removals == [] and kept.partition.log.start_offset == 0
    assert not kept.retention.has_work, "nothing is tried before the flush has ended"
    run_job(first)
    removals, _ = kept.work()
    assert removals and kept.partition.log.start_offset == 3


def test_a_log_of_many_segments_is_no_single_piece() -> None:
    kept = Kept(2 * RETENTION_SEGMENTS_MAX + 3)
    kept.tick(0)
    kept.tick(1_000)
    _, (first,) = kept.work()
    run_job(first)
    kept.retention.work()
    assert 0 < kept.partition.log.start_offset <= RETENTION_SEGMENTS_MAX
    kept.work()
    assert kept.partition.log.start_offset > RETENTION_SEGMENTS_MAX


def test_removals_come_when_their_readers_have_had_time() -> None:
    kept = Kept(3, delay_ms="5000")
    flush(kept.partition, kept.flushing)
    _, (first,) = kept.work()
    run_job(first)
    kept.tick(0)
    kept.tick(1_000)
    removals: list[Removal] = []
    while kept.retention.has_work:
        found, flushes = kept.work()
        removals += found
        for each in flushes:
            run_job(each)
    assert removals and {each.due_ms for each in removals} == {6_000}


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    kept = Kept(3)
    kept.tick(0)
    kept.tick(1_000)
    _, (first,) = kept.work()
    kept.retention.drop(kept.partition)
    kept.partition.become_deleted()
    run_job(first)
    assert not kept.retention.has_work
