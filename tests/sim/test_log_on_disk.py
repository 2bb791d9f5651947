"""The log on a disk that loses what was not synced: whatever the seed, what was flushed is there."""

from __future__ import annotations

import os

import pytest

from tests.sim.log_on_disk import LogOnDisk
from tests.soak import is_soak

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
