"""Compaction of the logs of one broker: which is cleaned, and what may happen beside a round and its swap."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.broker.parts import disk_of, make_disks, make_kernel, make_partitions, make_topic, told
from tests.jobs import run_job
from tests.log.making import NOW_MS, make_batch, read_log, split
from tests.replication.leading import lead
from tidelog.base.config import TopicSettings
from tidelog.broker.data_plane.checkpoints import Checkpoint, Checkpoints
from tidelog.broker.data_plane.compacting import Compacting, Round, RoundFailed, RunRound, SwapSync
from tidelog.broker.data_plane.cuts import Cuts
from tidelog.broker.data_plane.flushing import Flush, Flushing
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.data_plane.retention import Retention
from tidelog.broker.outbox import Job
from tidelog.broker.standing import Standing
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.facts import PartitionFacts
from tidelog.log.compaction.cleaning import clean
from tidelog.protocol.records import read_records
from tidelog.replication.fetcher import Fetcher, FetchLimits
from tidelog.replication.follower import Cut
from tidelog.replication.partition import Partition

BACKOFF_MS = 15_000
LIMITS = FetchLimits(500, 1, 1_000_000, 1_000_000, 100, 30_000)
VALUE = b"v" * 300


class Compacted:
    """Partitions of a compacted topic; jobs run when a test says so."""

    def __init__(self, count: int = 1, run: RunRound = clean, disk_count: int = 1, **config: str) -> None:
        self.kernel = make_kernel()
        self.disks = make_disks(self.kernel, disk_count)
        settings = {"cleanup_policy": "compact", "segment_bytes": "1024", "file_delete_delay_ms": "0"}
        self.topic = make_topic(partition_count=count, **{**settings, **config})
        self.partitions = make_partitions(self.kernel, self.disks, self.topic)
        self.all = list(self.partitions.all())
        self.partition = self.all[0]
        self.flushing = Flushing(self.kernel.clock, self.kernel.outbox, self.disks)
        self.checkpoints = Checkpoints(self.kernel, Standing(1), self.disks, self.partitions)
        self.relocation = Relocation(self.kernel, self.disks, self.partitions, self.checkpoints)
        self.cuts = Cuts(
            self.kernel, self.disks, self.checkpoints, self.relocation, self.flushing, lambda _: None
        )
        self.compacting = Compacting(
            self.kernel,
            self.disks,
            self.partitions,
            self.checkpoints,
            self.flushing,
            self.relocation,
            run,
        )
        self.compacting.swapped.connect(self.cuts.on_swapped)
        self.flushing.flushed.connect(self.cuts.on_flushed, self.compacting.on_flushed)
        self.kernel.clock.set(NOW_MS, 0)
        self.kernel.outbox.take_effects()

    @property
    def log(self):  # type: ignore[no-untyped-def]
        return self.partition.log

    def fill(self, keys: str = "aabbccaabbcc", partition: Partition | None = None) -> None:
        """A segment has two of those batches."""
        for key in keys:
            batch = make_batch(key=key.encode(), value=VALUE, timestamp=self.kernel.clock.now_ms)
            (partition or self.partition).append(memoryview(batch), 0, len(batch), self.kernel.clock.now_ms)

    def advance(self, delay_ms: int = BACKOFF_MS) -> None:
        clock = self.kernel.clock
        clock.set(clock.now_ms + delay_ms, clock.uptime_ms + delay_ms)
        self.compacting.tick()
        self.work()

    def work(self) -> None:
        while self.compacting.has_work or self.cuts.has_work:
            for part in (self.compacting, self.cuts):
                if part.has_work:
                    part.work()

    def jobs(self) -> list[Job]:
        return [effect for effect in self.kernel.outbox.take_effects() if isinstance(effect, Job)]

    def run(self, until: type[Job] | None = None) -> list[Job]:
        """Run all jobs, and what they lead to, up to one of that kind; what has been asked for by then."""
        while jobs := self.jobs():
            if until is not None and any(isinstance(job, until) for job in jobs):
                return jobs
            for job in jobs:
                run_job(job)
            self.work()
        return []

    def upto(self, kind: type[Job]) -> list[Job]:
        """The same from the next look on."""
        self.advance()
        return self.run(kind)


def records_of(partition: Partition) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.key)
        for _, batch in split(read_log(partition.log))
        for record in read_records(batch)
    ]


def test_a_dirty_log_is_flushed_and_cleaned_up_to_its_active_segment() -> None:
    here = Compacted()
    here.fill()
    (flush,) = here.upto(Flush)
    assert here.compacting.round is None
    run_job(flush)
    (round_,) = here.run(Round)
    assert isinstance(round_, Round)
    assert round_.request.end_offset == here.log.active.base_offset <= here.log.recovery_point


def test_of_each_key_the_last_record_stays() -> None:
    here = Compacted()
    here.fill()
    active = here.log.active.base_offset
    here.advance()
    here.run()
    found = records_of(here.partition)
    assert [each for each in found if each[0] < active] == [(5, b"c"), (7, b"a"), (9, b"b")]
    assert here.log.cleaned_offset == active
    assert not here.partition.is_swapping
    assert "log cleaned" in told(here.kernel.outbox)
    assert here.compacting.figures.round_count == 1
    assert not [name for name in here.log.directory.names() if name.endswith((".cleaned", ".swap"))]
    taken = here.checkpoints.of(here.partition.directory)
    assert taken.cleaned_offsets == {("t", 0): active}


def test_a_log_that_is_clean_enough_is_left_alone() -> None:
    """The share must be above the ratio: at it is not enough."""
    for ratio, is_due in (("0.999", True), ("1.0", False)):
        here = Compacted(min_cleanable_dirty_ratio=ratio)
        here.fill()
        assert bool(here.upto(Round)) is is_due


def test_the_dirtiest_log_is_first() -> None:
    here = Compacted(2)
    first, second = here.all
    for partition in here.all:
        here.fill(partition=partition)
    first.log.clean_to(first.log.bases[2])
    (round_,) = here.upto(Round)
    assert isinstance(round_, Round) and round_.partition is second


def test_nothing_is_read_above_the_high_watermark() -> None:
    here = Compacted()
    lead(here.partition, 1, (1, 2))
    here.fill()
    assert here.partition.high_watermark == 0
    assert here.upto(Round) == []
    here.partition.high_watermark = here.log.bases[2] + 1
    (round_,) = here.upto(Round)
    assert isinstance(round_, Round) and round_.request.end_offset == here.log.bases[2]


def test_young_records_wait() -> None:
    here = Compacted(min_compaction_lag_ms="60000")
    here.fill("aaaaaa")
    here.kernel.clock.now_ms += 40_000
    here.fill("aaaaaa")
    assert here.upto(Round) == []
    (round_,) = here.upto(Round)
    assert isinstance(round_, Round) and round_.request.end_offset == 6


def test_an_idle_log_is_rolled_and_cleaned_when_its_records_must_be() -> None:
    here = Compacted(max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1.0")
    here.fill("aa")
    assert here.upto(Round) == [] and len(here.log.segments) == 1
    here.advance(60_000)
    here.run()
    assert records_of(here.partition) == [(1, b"a")]
    assert here.log.cleaned_offset == 2


def test_history_that_is_written_today_rolls_no_segment_with_each_look() -> None:
    here = Compacted(max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1.0")
    here.kernel.clock.now_ms -= 10**9
    here.fill("a")
    here.kernel.clock.now_ms += 10**9
    here.advance()
    assert len(here.log.segments) == 1


def test_a_passed_horizon_is_reason_enough() -> None:
    here = Compacted(delete_retention_ms="60000")
    batch = make_batch(key=b"a", value=None)  # type: ignore[arg-type]
    here.partition.append(memoryview(batch), 0, len(batch), NOW_MS)
    here.fill("bbbbbb")
    here.advance()
    here.run()
    assert records_of(here.partition)[0] == (0, b"a")
    assert here.upto(Round) == []
    here.advance(60_000)
    here.run()
    assert (0, b"a") not in records_of(here.partition)
    assert here.upto(Round) == []


def test_journals_and_other_topics_are_skipped() -> None:
    plain = Compacted(cleanup_policy="delete")
    plain.fill()
    assert plain.upto(Round) == []
    journal = Compacted()
    journal.partition.is_internal = True
    journal.fill()
    assert journal.upto(Round) == []


def test_nothing_is_cleaned_if_the_cleaner_is_off() -> None:
    here = Compacted()
    here.kernel.settings.values = {**here.kernel.settings.values, "log.cleaner.enable": False}
    here.fill()
    assert here.upto(Round) == []


# Beside a round.


def follow(here: Compacted) -> None:
    here.partition.become_follower(PartitionFacts(2, 2, [2], [1, 2], 0, [], {2: 1}))


def cut(here: Compacted) -> None:
    follow(here)
    here.cuts.plan(Fetcher(1, 1, LIMITS), [(here.partition, Cut(4))])


def retain(here: Compacted) -> None:
    here.partition.trim(here.log.bases[1])
    retention = Retention(here.kernel, here.disks, here.partitions, here.flushing, WaitingRoom())
    retention.tick()
    here.kernel.clock.uptime_ms += 10**9
    retention.tick()
    while retention.has_work:
        retention.work()


def use_delete(here: Compacted) -> None:
    settings = TopicSettings(here.kernel.settings, {"cleanup.policy": "delete"})
    here.partitions.use_settings(here.topic, settings)


def retire(here: Compacted) -> None:
    here.partitions.retire(here.partition, bytes(16))


def move(here: Compacted) -> None:
    here.relocation.move(here.partition, here.disks.directories[1])


BESIDE: dict[str, Callable[[Compacted], None]] = {
    "cut": cut,
    "retention": retain,
    "settings": use_delete,
    "deletion": retire,
    "move": move,
}


@pytest.mark.parametrize("beside", BESIDE)
def test_a_round_is_dropped_whose_log_has_something_else_to_do(beside: str) -> None:
    here = Compacted(disk_count=2)
    here.fill()
    (round_,) = here.upto(Round)
    assert isinstance(round_, Round)
    BESIDE[beside](here)
    others = here.jobs()
    if beside != "retention":  # which is noticed when the round ends
        here.compacting.tick()
    else:
        here.advance(1)
    here.cuts.work() if here.cuts.has_work else None
    for job in others:
        run_job(job)
    here.work()
    run_job(round_)
    here.work()
    assert here.compacting.round is None and not here.partition.is_swapping
    assert here.compacting.figures.round_count == 0
    assert here.log.cleaned_offset == 0
    assert not {"log cleaning blocked", "log cleaning failed", "directory offline"} & set(
        told(here.kernel.outbox)
    )


def test_a_cancelled_round_ends_when_it_next_reads() -> None:
    here = Compacted()
    here.fill()
    (round_,) = here.upto(Round)
    assert isinstance(round_, Round)
    use_delete(here)
    here.compacting.tick()
    assert round_.is_cancelled
    round_.run()
    assert round_.result is None


def test_a_cut_waits_for_a_prepared_swap() -> None:
    here = Compacted()
    here.fill()
    (sync,) = here.upto(SwapSync)
    assert here.partition.is_swapping
    cut(here)
    assert all(isinstance(job, Checkpoint) for job in here.run(SwapSync) or here.jobs())
    here.work()
    assert here.log.end_offset == 12, "the cut has not waited"
    run_job(sync)
    here.work()
    here.run()
    assert here.log.end_offset <= 4 and not here.partition.is_swapping
    assert here.log.cleaned_offset <= here.log.end_offset
    assert not [name for name in here.log.directory.names() if name.endswith(".swap")]


def test_retention_and_moves_wait_for_a_prepared_swap() -> None:
    here = Compacted(disk_count=2)
    here.fill()
    (sync,) = here.upto(SwapSync)
    bases = list(here.log.bases)
    retain(here)
    move(here)
    assert here.log.bases == bases and here.relocation.moves.next_move() is None
    run_job(sync)
    assert here.relocation.moves.next_move() is not None


def test_what_is_cleaned_is_written_down_only_when_all_of_it_is_swapped() -> None:
    """Else a crash leaves dirty records that pass for clean: older values of their keys stay for good."""
    here = Compacted()
    here.fill("aabbccaabbccddeeddee")
    syncs = 0
    jobs = here.upto(SwapSync)
    while jobs:
        assert here.log.cleaned_offset == 0
        assert here.checkpoints.of(here.partition.directory).cleaned_offsets == {}
        syncs += 1
        for job in jobs:
            run_job(job)
        here.work()
        jobs = [job for job in here.jobs() if isinstance(job, SwapSync)]
    assert syncs > 1 and here.log.cleaned_offset > 0


def test_what_is_appended_beside_a_round_stays() -> None:
    here = Compacted()
    here.fill()
    (round_,) = here.upto(Round)
    here.fill("zzzz")
    run_job(round_)
    here.work()
    here.run()
    assert [key for _, key in records_of(here.partition)][-4:] == [b"z"] * 4
    assert here.compacting.figures.round_count >= 1


# What goes wrong.


def test_a_damaged_batch_is_named_once_and_tried_again_when_its_segment_has_gone() -> None:
    here = Compacted(2)
    first, second = here.all
    for partition in here.all:
        here.fill(partition=partition)
        partition.want_flush()
        here.flushing.maybe_begin(partition)
    here.run()
    first.log.directory.flip(f"{2:020}.log", 100, 1)  # type: ignore[attr-defined]
    for _ in range(4):
        here.advance()
        here.run()
    events = [event for event in here.kernel.outbox.take_events() if event.name == "log cleaning blocked"]
    assert [event.fields["file"] for event in events] == [f"{2:020}.log"]
    assert events[0].fields["position"] == 0
    assert list(here.compacting.uncleanable) == [first] and second.log.cleaned_offset > 0
    first.trim(6)
    retained = Retention(here.kernel, here.disks, here.partitions, here.flushing, WaitingRoom())
    retained.tick()
    here.kernel.clock.uptime_ms += 10**9
    retained.tick()
    while retained.has_work:
        retained.work()
    here.run()
    here.advance()
    here.run()
    assert first.log.bases[0] == 6 and not here.compacting.uncleanable
    assert first.log.cleaned_offset > 6


@pytest.mark.parametrize("failure", [RoundFailed("the cleaner has died"), ValueError("a bug")])
def test_a_round_that_failed_by_no_fault_of_the_disk_is_told_once_and_tried_again(failure: Exception) -> None:
    tries = 0

    def fail(*asked: object) -> None:
        nonlocal tries
        tries += 1
        raise failure

    here = Compacted(run=fail)  # type: ignore[arg-type]
    here.fill()
    for _ in range(3):
        here.advance()
        here.run()
    assert tries == 3 and told(here.kernel.outbox).count("log cleaning failed") == 1
    assert not here.disks.are_all_failed


def test_a_full_disk_ends_the_round_and_leaves_the_log_as_it_was() -> None:
    here = Compacted()
    here.fill()
    (round_,) = here.upto(Round)
    before = read_log(here.log)
    disk_of(here.disks).fail_write(code=errno.ENOSPC)
    run_job(round_)
    disk_of(here.disks).repair()
    here.work()
    assert not here.disks.are_all_failed and read_log(here.log) == before
    assert told(here.kernel.outbox) == ["log cleaning failed"]
    assert not [name for name in here.log.directory.names() if name.endswith(".cleaned")]


@pytest.mark.parametrize("kind", [Round, SwapSync])
def test_a_failing_disk_takes_the_directory_offline(kind: type[Job]) -> None:
    here = Compacted()
    here.fill()
    (job,) = here.upto(kind)
    disk_of(here.disks).fail_sync()
    run_job(job)
    assert here.disks.are_all_failed and here.compacting.round is None and not here.partition.is_swapping


def test_a_swap_is_not_begun_with_files_that_somebody_has_changed() -> None:
    here = Compacted()
    here.fill()
    (round_,) = here.upto(Round)
    round_.run()
    here.log.directory.remove(f"{0:020}.log.cleaned")
    round_.on_done(None)
    here.work()
    assert here.compacting.round is None and not here.partition.is_swapping
    assert not here.disks.are_all_failed
