"""Logs on the way to where their leader's ends: what is durable before and after, and what is overtaken."""

from __future__ import annotations

import pytest

from tests.broker.parts import append, disk_of, make_disks, make_kernel, make_partitions, make_topic, told
from tests.jobs import run_job
from tests.replication.leading import lead
from tidelog.broker.data_plane.checkpoints import Checkpoint, Checkpoints
from tidelog.broker.data_plane.cuts import Cuts
from tidelog.broker.data_plane.flushing import Flush, Flushing
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.outbox import Job
from tidelog.broker.standing import Standing
from tidelog.cluster.facts import PartitionFacts
from tidelog.replication.fetcher import Fetcher, FetchLimits
from tidelog.replication.follower import BeginAt, Cut
from tidelog.replication.partition import Partition

LIMITS = FetchLimits(500, 1, 1_000_000, 1_000_000, 100, 30_000)


class Following:
    """A partition of six records that follows broker 2; `committed`: the high watermark is at its end."""

    def __init__(self, committed: bool = False) -> None:
        self.kernel = make_kernel()
        self.disks = make_disks(self.kernel)
        partitions = make_partitions(self.kernel, self.disks, make_topic())
        (self.partition,) = partitions.all()
        if not committed:
            lead(self.partition, 1, (1, 2))
        for _ in range(6):
            append(self.partition)
        self.follow(2)
        self.checkpoints = Checkpoints(self.kernel, Standing(1), self.disks, partitions)
        flushing = Flushing(self.kernel.clock, self.kernel.outbox, self.disks)
        relocation = Relocation(self.kernel, self.disks, partitions, self.checkpoints)
        self.ended: list[Partition] = []
        self.cuts = Cuts(self.kernel, self.disks, self.checkpoints, relocation, flushing, self.ended.append)
        flushing.flushed.connect(self.cuts.on_flushed)
        self.kernel.outbox.take_effects()

    def follow(self, leader_epoch: int) -> None:
        self.partition.become_follower(PartitionFacts(2, leader_epoch, [2], [1, 2], 0, [], {2: 1}))

    def plan(self, step: Cut | BeginAt) -> None:
        self.cuts.plan(Fetcher(1, 1, LIMITS), [(self.partition, step)])
        self.work()

    def work(self) -> None:
        """The steps that have a turn by now."""
        while self.cuts.has_work:
            self.cuts.work()

    def jobs(self, kind: type[Job]) -> list[Job]:
        """All that is asked for now, which must be of that kind."""
        jobs = [effect for effect in self.kernel.outbox.take_effects() if isinstance(effect, Job)]
        assert [type(job) for job in jobs] == [kind] * len(jobs)
        return jobs

    def run(self, kind: type[Job]) -> int:
        jobs = self.jobs(kind)
        for job in jobs:
            run_job(job)
        self.work()
        return len(jobs)


def test_a_cut_ends_when_it_is_durable() -> None:
    following = Following()
    following.plan(Cut(3))
    assert following.partition.log.end_offset == 3 and following.cuts.is_pending(following.partition)
    assert following.ended == [] and following.partition.is_cutting
    assert following.run(Flush) == 1
    assert following.ended == [following.partition] and not following.partition.is_cutting
    assert not following.cuts.is_pending(following.partition) and following.cuts.count == 1
    assert told(following.kernel.outbox) == ["log truncated"]


def test_checkpoints_say_so_before_less_is_flushed_or_committed_than_was() -> None:
    following = Following(committed=True)
    following.plan(Cut(3))
    assert following.partition.log.end_offset == 6 and following.partition.floor == 3
    assert following.run(Checkpoint) == 1
    assert following.partition.log.end_offset == 3
    assert following.run(Flush) == 1 and following.ended == [following.partition]


def test_what_was_cleaned_is_lowered_on_the_disk_before_the_cut() -> None:
    """Else what is written next would pass for clean, and older values of its keys would stay."""
    following = Following()
    following.partition.log.clean_to(5)
    following.plan(Cut(3))
    assert following.partition.log.end_offset == 6
    (checkpoint,) = following.jobs(Checkpoint)
    assert isinstance(checkpoint, Checkpoint) and checkpoint.cleaned_offsets == {("t", 0): 3}
    run_job(checkpoint)
    following.work()
    assert (following.partition.log.end_offset, following.partition.log.cleaned_offset) == (3, 3)


def test_a_log_begins_anew_where_its_leader_s_begins() -> None:
    following = Following()
    following.plan(BeginAt(40))
    while not following.ended:
        assert following.run(Flush) == 1
    assert (following.partition.log.start_offset, following.partition.log.end_offset) == (40, 40)


@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "under another epoch"])
def test_what_a_former_leader_said_counts_no_more(is_dropped: bool) -> None:
    following = Following(committed=True)
    following.plan(Cut(3))
    if is_dropped:
        following.cuts.drop(following.partition)
    else:
        following.follow(3)
    following.run(Checkpoint)
    assert following.partition.log.end_offset == 6 and following.partition.floor is None
    assert not following.cuts.is_pending(following.partition)


def test_of_two_answers_the_last_one_counts() -> None:
    following = Following(committed=True)
    following.plan(Cut(3))
    following.plan(Cut(5))
    while following.partition.log.end_offset == 6:
        assert following.run(Checkpoint) > 0
    assert following.partition.log.end_offset == 5


def test_a_cut_that_cannot_be_made_durable_takes_the_directory_offline() -> None:
    following = Following()
    following.plan(Cut(3))
    disk_of(following.disks).fail_sync()
    following.run(Flush)
    assert following.disks.are_all_failed and following.ended == []
