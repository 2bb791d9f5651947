"""The log on a disk that loses what was not synced: whatever the seed, what was flushed is there."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.log.making import NOW_MS, append, flush, make_batch, make_settings, read_log
from tests.sim.disk import SimulatedDisk
from tests.sim.log_on_disk import LogOnDisk
from tests.soak import is_soak
from tidelog.log.recovery import open_log

SAMPLE_COUNT = 100
SOAK_COUNT = 2_000
PART_COUNT = 20
STEP_COUNT = 150


def seeds(part: int) -> list[int]:
    """This part of so many seeds, or the one that TIDELOG_SEED names."""
    named = os.environ.get("TIDELOG_SEED")
    if named:
        return [int(named)] if part == 0 else []
    return list(range(part, SOAK_COUNT if is_soak() else SAMPLE_COUNT, PART_COUNT))


def live(seed: int) -> LogOnDisk:
    lived = LogOnDisk(seed)
    for _ in range(STEP_COUNT):
        lived.step()
    lived.crash()
    return lived


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_whatever_was_flushed_survives_and_nothing_else_appears(part: int) -> None:
    for seed in seeds(part):
        try:
            assert live(seed).crash_count > 0
        except Exception as failure:
            failure.add_note(f"TIDELOG_SEED={seed}")
            raise


def test_what_recovery_cut_does_not_come_back_behind_what_is_written_next() -> None:
    size = len(make_batch())
    for seed in range(60):
        disk = SimulatedDisk()
        log, _ = open_log(disk.root, make_settings(), NOW_MS)
        for value in (b"a", b"b", b"c"):
            append(log, make_batch(value=value * 30))
        flush(log)
        content = disk.root.open(f"{0:020}.log")
        whole = content.read(0, content.size)
        content.truncate(size)
        content.append(whole[size : 2 * size - 1] + b"?" + whole[2 * size :])  # a bad byte in the second one
        content.sync()
        log, _ = open_log(disk.root, make_settings(), NOW_MS)
        assert log.end_offset == 1
        append(log, make_batch(value=b"d" * 30), epoch=1)
        log, _ = open_log(disk.crash(Random(seed)), make_settings(), NOW_MS)
        assert log.end_offset in (1, 2) and b"ccc" not in read_log(log), f"seed {seed}"


def test_a_segment_dropped_by_one_recovery_does_not_come_back_in_the_next() -> None:
    for seed in range(30):
        disk = SimulatedDisk()
        log, _ = open_log(disk.root, make_settings(), NOW_MS)
        append(log, make_batch())
        append(log, make_batch())
        log.roll(NOW_MS)
        append(log, make_batch(value=b"from the first life"))
        flush(log)
        damaged = disk.root.open(f"{0:020}.log")
        damaged.truncate(damaged.size - 1)
        damaged.sync()
        log, _ = open_log(disk.root, make_settings(), NOW_MS)
        assert log.end_offset == 1
        append(log, make_batch(), epoch=1)
        log, _ = open_log(disk.crash(Random(seed)), make_settings(), NOW_MS)
        assert log.end_offset in (1, 2), f"seed {seed}"
        assert b"from the first life" not in read_log(log), f"seed {seed}"
