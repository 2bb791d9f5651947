"""Flushes of partitions: how many at once, who shares one, and what a failed one does."""

from __future__ import annotations

import errno

import pytest

from tests.broker.parts import append, disk_of, make_disks, make_kernel, make_partitions, make_topic
from tests.jobs import run_job
from tidelog.base.limits import FLUSHES_MAX
from tidelog.broker.data_plane.flushing import Flush, Flushing
from tidelog.replication.partition import Partition, Role


class Flushed:
    def __init__(self, partition_count: int = 1) -> None:
        self.kernel = make_kernel()
        self.disks = make_disks(self.kernel)
        topic = make_topic(partition_count=partition_count, flush_messages="1")
        self.partitions = list(make_partitions(self.kernel, self.disks, topic).all())
        self.flushing = Flushing(self.kernel.clock, self.kernel.outbox, self.disks)
        self.heard: list[Partition] = []
        self.flushing.flushed.connect(self.heard.append)

    def begin(self, partition: Partition) -> None:
        append(partition)
        self.flushing.maybe_begin(partition)

    def taken(self) -> list[Flush]:
        return [effect for effect in self.kernel.outbox.take_effects() if isinstance(effect, Flush)]


def test_what_is_appended_during_a_flush_shares_the_next_one() -> None:
    flushed = Flushed()
    (partition,) = flushed.partitions
    for _ in range(3):
        flushed.begin(partition)
    (first,) = flushed.taken()
    run_job(first)
    assert partition.high_watermark == 1
    (second,) = flushed.taken()
    run_job(second)
    assert partition.high_watermark == 3 and flushed.taken() == []
    assert flushed.heard == [partition, partition]


def test_so_many_are_under_way_and_the_others_wait_in_their_order() -> None:
    flushed = Flushed(FLUSHES_MAX + 2)
    for partition in flushed.partitions:
        flushed.begin(partition)
    begun = flushed.taken()
    assert [each.partition for each in begun] == flushed.partitions[:FLUSHES_MAX]
    run_job(begun[0])
    (next_one,) = flushed.taken()
    assert next_one.partition is flushed.partitions[FLUSHES_MAX]
    assert flushed.flushing.under_way_count == FLUSHES_MAX


def test_a_failed_fsync_acknowledges_nothing_and_takes_the_directory_offline() -> None:
    flushed = Flushed()
    (partition,) = flushed.partitions
    flushed.begin(partition)
    (flush,) = flushed.taken()
    disk_of(flushed.disks).fail_sync()
    run_job(flush)
    assert flushed.disks.are_all_failed and flushed.heard == [] and partition.high_watermark == 0
    assert flushed.flushing.under_way_count == 0


def test_the_fsync_of_a_deleted_topic_may_find_its_folder_gone() -> None:
    flushed = Flushed()
    (partition,) = flushed.partitions
    flushed.begin(partition)
    (flush,) = flushed.taken()
    partition.become_deleted()
    flush.on_done(OSError(errno.ENOENT, "No such file or directory"))
    assert not flushed.disks.are_all_failed and partition.role is Role.DELETED


def test_a_flush_that_finds_no_descriptor_is_begun_later(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = Flushed()
    (partition,) = flushed.partitions

    def refuse(self: Partition) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "begin_flush", refuse)
        flushed.begin(partition)
    assert flushed.taken() == [] and not flushed.disks.are_all_failed
    flushed.flushing.begin_queued()
    assert [each.partition for each in flushed.taken()] == [partition]
