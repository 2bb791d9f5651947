"""Many partitions at once: flushes wait for one another, retention and checkpoints come in portions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.log.making import make_batch
from tests.sim.node import BrokerOnDisk
from tests.wire.harness import Harness, batch_of
from tidelog.base.files import DiskFile
from tidelog.base.limits import FLUSHES_MAX, RETENTION_FLUSHES_MAX, RETENTION_SEGMENTS_MAX
from tidelog.broker.data_plane.checkpoints import Checkpoint

PARTITIONS = FLUSHES_MAX + 10


def unflushed_harness(folder: Path, partitions: int = PARTITIONS) -> Harness:
    """A broker with a record in each partition; every partition wants to be flushed, no flush ends."""
    harness = Harness(folder)
    harness.create_topic("t", partitions)
    harness.holds_flushes = True
    for index in range(partitions):
        partition = harness.partition("t", index)
        batch = memoryview(bytearray(batch_of()))
        partition.append(batch, 0, len(batch), harness.broker.clock.now_ms)
        partition.want_flush()
        harness.broker.flushing.maybe_begin(partition)
    harness.settle()
    return harness


def flushed_count(harness: Harness) -> int:
    return sum(partition.log.recovery_point == 1 for partition in harness.broker.partitions.all())


def test_flushes_beyond_the_bound_wait_for_others_to_end(tmp_path: Path) -> None:
    harness = unflushed_harness(tmp_path)
    assert len(harness.held_flushes) == FLUSHES_MAX
    harness.release_flushes()
    assert flushed_count(harness) == PARTITIONS


def test_a_failed_flush_makes_room_too(tmp_path: Path) -> None:
    harness = unflushed_harness(tmp_path)
    harness.held_flushes.pop(0).on_done(OSError(errno.EIO, "broken"))
    assert harness.broker.flushing.under_way_count == FLUSHES_MAX - 1
    harness.release_flushes()
    assert harness.broker.flushing.under_way_count == 0


def test_a_flush_that_finds_no_descriptor_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = unflushed_harness(tmp_path, 1)
    harness.release_flushes()
    partition = harness.partition("t")
    batch = memoryview(bytearray(batch_of()))
    partition.append(batch, 0, len(batch), harness.broker.clock.now_ms)

    def refuse(file: DiskFile) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as limited:
        limited.setattr(DiskFile, "pin", refuse)
        partition.want_flush()
        harness.broker.flushing.maybe_begin(partition)
        assert partition.log.recovery_point == 1 and partition.error_code == 0
    harness.advance(1)
    assert partition.log.recovery_point == 2


def expiring(partition_count: int) -> BrokerOnDisk:
    """A broker whose retention is about to look at partitions with three segments each, all too old."""
    node = BrokerOnDisk(retention_ms=1_000, segment_bytes=1_024)
    node.create_topic(partition_count=partition_count)
    for index in range(partition_count):
        for _ in range(3):
            batch = memoryview(bytearray(make_batch(value=bytes(800))))
            node.partition(index).append(batch, 0, len(batch), node.broker.clock.now_ms)
    node.tick(1)
    node.broker.clock.set(node.broker.clock.now_ms + 400_000, node.broker.clock.uptime_ms + 400_000)
    node.broker.tick()
    return node


def flush_all(node: BrokerOnDisk) -> None:
    for partition in node.broker.partitions.all():
        partition.want_flush()
        node.broker.flushing.maybe_begin(partition)
    node.end_flushes_alone()


def test_retention_removes_from_one_partition_at_a_time() -> None:
    node = expiring(3)
    for partition in node.broker.partitions.all():
        partition.log.roll(node.broker.clock.now_ms)
    flush_all(node)
    for done in range(3):
        starts = [node.partition(index).log.start_offset for index in range(3)]
        assert starts == [3] * done + [0] * (3 - done)
        node.broker.work()


def test_many_segments_of_one_partition_leave_a_few_at_a_time() -> None:
    node = expiring(1)
    log = node.partition().log
    for _ in range(2 * RETENTION_SEGMENTS_MAX):
        batch = memoryview(bytearray(make_batch(value=bytes(800), timestamp=1)))
        node.partition().append(batch, 0, len(batch), node.broker.clock.now_ms)
    flush_all(node)
    before = len(log.segments)
    node.broker.work()
    assert len(log.segments) == before - RETENTION_SEGMENTS_MAX
    node.settle()
    node.end_flushes()
    assert (log.start_offset, log.size) == (log.end_offset, 0)


def test_retention_leaves_room_for_flushes_that_somebody_waits_for() -> None:
    node = expiring(3 * RETENTION_FLUSHES_MAX)
    node.settle()
    assert len(node.flushes) == RETENTION_FLUSHES_MAX
    for _ in range(3):
        node.end_flushes()
    assert all(partition.log.start_offset == 3 for partition in node.broker.partitions.all())


def test_a_topic_that_is_deleted_while_its_retention_waits_holds_up_nobody() -> None:
    node = expiring(RETENTION_FLUSHES_MAX)
    node.settle()
    node.delete_topic()
    assert not node.broker.retention._held


def test_topics_deleted_together_make_one_checkpoint(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for name in ("a", "b", "c"):
        harness.create_topic(name)
    for name in ("a", "b"):
        harness.broker.topics.delete(harness.broker.image.topics[name], lambda outcome: None)
    harness.settle()
    harness.broker.tick()
    harness.broker.clock.set(harness.broker.clock.now_ms + 2_000, harness.broker.clock.uptime_ms + 2_000)
    harness.broker.tick()
    written = [effect for effect in harness.broker.outbox.effects if isinstance(effect, Checkpoint)]
    assert [list(checkpoint.recovery_points) for checkpoint in written] == [[("c", 0)]]
