"""Many partitions at once: flushes wait for one another, retention and checkpoints come in portions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.log.making import make_batch
from tests.sim.node import BrokerOnDisk
from tests.wire.harness import Harness, batch_of
from tidelog.base.files import DiskFile
from tidelog.base.limits import FLUSHES_MAX, RETENTION_SLICE
from tidelog.broker.partitions import Checkpoint

PARTITIONS = FLUSHES_MAX + 10


def unflushed_harness(folder: Path, partitions: int = PARTITIONS) -> Harness:
    """A broker with a record in each partition; every partition wants to be flushed, no flush ends."""
    harness = Harness(folder)
    harness.create_topic("t", partitions)
    harness.holds_flushes = True
    for index in range(partitions):
        partition = harness.partition("t", index)
        batch = memoryview(bytearray(batch_of()))
        partition.append(batch, 0, len(batch), harness.broker.now_ms)
        partition.is_flush_wanted = True
        harness.broker.maybe_flush(partition)
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
    partition, job = harness.held_flushes.pop(0)
    job.release()
    harness.broker.on_flushed(partition, OSError(errno.EIO, "broken"))
    assert harness.broker._flushing_count == FLUSHES_MAX - 1
    harness.release_flushes()
    assert harness.broker._flushing_count == 0 and not harness.broker._flush_queue


def test_a_flush_that_finds_no_descriptor_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = unflushed_harness(tmp_path, 1)
    harness.release_flushes()
    partition = harness.partition("t")
    batch = memoryview(bytearray(batch_of()))
    partition.append(batch, 0, len(batch), harness.broker.now_ms)

    def refuse(file: DiskFile) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as limited:
        limited.setattr(DiskFile, "pin", refuse)
        partition.is_flush_wanted = True
        harness.broker.maybe_flush(partition)
        assert partition.log.recovery_point == 1 and partition.error_code == 0
    harness.advance(1)
    assert partition.log.recovery_point == 2


def test_retention_looks_at_some_partitions_in_each_tick() -> None:
    node = BrokerOnDisk(retention_ms=1_000)
    count = RETENTION_SLICE + 5
    node.create_topic(partition_count=count)
    for index in range(count):
        batch = memoryview(bytearray(make_batch()))
        node.partition(index).append(batch, 0, len(batch), node.broker.now_ms)
    node.tick(1)
    node.tick(400_000)
    starts = [node.partition(index).log.start_offset for index in range(count)]
    assert starts == [1] * RETENTION_SLICE + [0] * 5
    node.tick(100)
    assert all(node.partition(index).log.start_offset == 1 for index in range(count))


def test_topics_deleted_together_make_one_checkpoint(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for name in ("a", "b", "c"):
        harness.create_topic(name)
    for name in ("a", "b"):
        harness.broker.delete_topic(harness.broker.image.topics[name], lambda outcome: None)
    harness.settle()
    harness.broker.tick()
    harness.broker.set_time(harness.broker.now_ms + 2_000, harness.broker.uptime_ms + 2_000)
    harness.broker.tick()
    written = [effect for effect in harness.broker.effects if isinstance(effect, Checkpoint)]
    assert [list(checkpoint.recovery_points) for checkpoint in written] == [[("c", 0)]]
