"""A follower's log on a disk that loses what was not synced: what was cut does not come back, what was
flushed below the cut stays."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.log.making import NOW_MS, append, flush, make_batch, make_settings, read_log
from tests.sim.disk import SimulatedDisk
from tests.sim.log_on_disk import LogOnDisk
from tests.soak import is_soak
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.replica import append_replica, end_below, restart, truncate
from tidelog.protocol.batch import stamp

SAMPLE_COUNT = 40
SOAK_COUNT = 1_000
PART_COUNT = 10
STEP_COUNT = 150


class ReplicaOnDisk(LogOnDisk):
    """Cut now and then, with or without a flush under way, with or without a crash in the middle."""

    cut_count = 0

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.05:
            self.cut()
        elif chance < 0.08:
            self.fail_in_cut()
        else:
            super().step()

    def _append(self, batch: bytearray) -> None:
        if self.settings.uses_append_time or self.random.random() < 0.3:
            super()._append(batch)
            return
        view = memoryview(batch)
        stamp(view, 0, self.log.end_offset, self.leader_epoch)
        torn = batch + batch[: self.random.randrange(len(batch))]
        assert append_replica(self.log, memoryview(torn), self.clock, False) == 1
        self.model.add(batch)

    def _choose(self, least: int) -> int | None:
        """Where to cut: most often near the end. None if what is left would be less than that."""
        low = max(self.log.bases[0], self.log.end_offset - self.random.choice((5, 20, 200)))
        offset = self.random.randint(low, self.log.end_offset)
        return offset if end_below(self.log, offset) >= least else None

    def _truncate(self, offset: int) -> None:
        if self.job is not None:
            self.end_flush()
        end_offset = end_below(self.log, offset)
        self.checkpoint = min(self.checkpoint, end_offset)
        self.flushed = min(self.flushed, end_offset)
        while end_below(self.log, offset) < self.log.end_offset:
            for name in truncate(self.log, offset, self.clock):
                if self.random.random() < 0.5:
                    self.folder.remove(name)
            job = self.log.begin_flush()
            job.run()
            job.release()
            self.log.end_flush(job, self.clock)
        assert self.log.end_offset == end_offset
        self.model.cut(end_offset)
        self.model.start_offset = min(self.model.start_offset, end_offset)
        self._remember_producers()
        self.leader_epoch += self.random.randrange(2)
        self.cut_count += 1

    def cut(self) -> None:
        offset = self._choose(self.log.bases[0] + 1)
        if offset is not None:
            self._truncate(offset)
            if self.random.random() < 0.3:
                self.verify()

    def fail_in_cut(self) -> None:
        """The power goes at some fsync or write of it."""
        offset = self._choose(max(self.log.bases[0] + 1, self.model.start_offset))
        if offset is None:
            return
        if self.random.random() < 0.7:
            self.disk.fail_sync(self.random.randrange(9))
        else:
            self.disk.fail_write(self.random.randrange(3), errno.EIO, self.random.random())
        try:
            self._truncate(offset)
        except OSError:
            pass
        self.crash()


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_what_is_cut_stays_away_and_what_is_flushed_stays(part: int) -> None:
    cut_count = 0
    for seed in range(part, SOAK_COUNT if is_soak() else SAMPLE_COUNT, PART_COUNT):
        try:
            lived = ReplicaOnDisk(seed)
            for _ in range(STEP_COUNT):
                lived.step()
            lived.crash()
            cut_count += lived.cut_count
        except Exception as failure:
            failure.add_note(f"seed {seed}")
            raise
    assert cut_count > 0


def test_a_crash_while_a_log_begins_anew_leaves_a_part_of_the_old_one_or_none() -> None:
    for seed in range(100):
        random = Random(seed)
        disk, log, old = filled()
        disk.fail_sync(random.randrange(4))
        try:
            restart(log, 1_000, NOW_MS)
            flush(log)
        except OSError:
            pass
        again, _ = open_log(disk.crash(random), log.settings, NOW_MS, 30)
        assert again.end_offset in (*range(31), 1_000), f"seed {seed}"
        assert again.start_offset in (0, 1_000) and old.startswith(read_log(again)), f"seed {seed}"


def test_a_log_that_has_begun_anew_has_nothing_of_the_old_one_after_a_crash() -> None:
    for seed in range(100):
        disk, log, _ = filled()
        restart(log, 1_000, NOW_MS)
        flush(log)
        append(log, make_batch(value=b"new"), epoch=9)
        again, _ = open_log(disk.crash(Random(seed)), log.settings, NOW_MS, 30)
        assert again.start_offset == 1_000 and again.end_offset in (1_000, 1_001), f"seed {seed}"
        assert again.epochs.entries() in ([], [(9, 1_000)]), f"seed {seed}"
        assert len(again.producers) == 0, f"seed {seed}"


def filled() -> tuple[SimulatedDisk, Log, bytes]:
    """Thirty batches in some segments, flushed; and their bytes."""
    disk = SimulatedDisk()
    log, _ = open_log(disk.root, make_settings(segment_bytes=1_024), NOW_MS)
    for number in range(30):
        append(log, make_batch(producer_id=7, sequence=number), epoch=number)
    log.write_snapshot()
    flush(log)
    assert len(log.bases) > 2
    return disk, log, read_log(log)
