"""Whole clusters, a seed each: nothing acknowledged is lost, whatever happens, and all is well afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.cluster import World
from tests.sim.cluster_compacted import CompactedWorld
from tests.sim.cluster_restored import RestoredWorld
from tests.soak import Tally, is_soak, record

SAMPLE_COUNT = 120
SOAK_COUNT = 10_000
PART_COUNT = 2
RESTORED_SAMPLE_COUNT, RESTORED_SOAK_COUNT = 20, 1_000
ROOT = Path(__file__).parents[2]
# What the seeds of one part must have had in them, all together.
EXERCISED = (
    "elections",
    "new leader epochs",
    "cuts",
    "ISR changes",
    "controllers",
    "expiries",
    "lost, applied",
    "lost, not applied",
    "kill",
    "power loss",
    "blackout",
    "clean stop",
    "pause",
    "block",
    "isolation",
    "clock jump",
    "store down",
    "disk fault",
    "connections cut",
    "disk full",
    "disk replaced",
    "directory gone",
    "directory left out",
    "folder gone",
    "older copy",
    "flipped bit",
    "lost end",
    "end lost by repair",
    "killed while it writes",
    "killed before it registered",
    "remount",
    "restart within the session",
    "ambush: joining",
    "ambush: growth",
    "ambush: election",
    "produce: none",
    "produce: not_enough_replicas",
    "latest: offset_not_available",
    "commit: none",
    "commit: not_coordinator",
    "offsets: none",
    "move: none",
    "cancel: none",
    "replicas moved",
)


def seeds(part: int) -> list[int]:
    """This part of so many seeds, or the one that TIDELOG_SEED names."""
    named = os.environ.get("TIDELOG_SEED")
    if named:
        return [int(named)] if part == 0 else []
    count = (SOAK_COUNT if is_soak() else SAMPLE_COUNT) // PART_COUNT
    return list(range(part * count, (part + 1) * count))


def run(seed: int, kind: type[World] = World) -> World:
    """One life of a cluster; its trace goes with whatever is wrong."""
    world = kind(seed)
    try:
        world.run()
    except Exception as failure:
        failure.add_note("\n".join([*world.clock.trace, *world.describe(), f"make sim SEED={seed}"]))
        raise
    return world


@pytest.mark.soak
@pytest.mark.timeout(9_000 if is_soak() else 600)
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_a_cluster_loses_nothing_whatever_happens(part: int) -> None:
    total: Counter[str] = Counter()
    chosen, outcome = seeds(part), "failed"
    try:
        for seed in chosen:
            total.update(run(seed).tally())
            total["seeds"] += 1
        if len(chosen) > 1:
            assert [name for name in EXERCISED if not total[name]] == []
        outcome = "passed"
    finally:
        counts = total["kill"] + total["power loss"], total["produce: none"]  # batches of one to four records
        tally = Tally(f"{outcome}: {total['seeds']:,} seeds; batches acknowledged", *counts, 0, 0, 0)
        record(f"simulated clusters, part {part + 1} of {PART_COUNT}", tally)


@pytest.mark.soak
@pytest.mark.timeout(3_000 if is_soak() else 600)
def test_a_store_that_is_restored_from_a_backup_loses_nothing() -> None:
    for seed in range(RESTORED_SOAK_COUNT if is_soak() else RESTORED_SAMPLE_COUNT):
        run(seed, RestoredWorld)


COMPACTED_SAMPLE_COUNT, COMPACTED_SOAK_COUNT = 30, 2_000
CLEANED = ("log cleaned", "cuts", "kill", "power loss", "elections", "replicas moved", "flipped bit")


@pytest.mark.soak
@pytest.mark.timeout(6_000 if is_soak() else 600)
def test_compacted_topics_end_with_the_newest_values_whatever_happens() -> None:
    total: Counter[str] = Counter()
    for seed in range(COMPACTED_SOAK_COUNT if is_soak() else COMPACTED_SAMPLE_COUNT):
        total.update(run(seed, CompactedWorld).tally())
    assert [name for name in CLEANED if not total[name]] == []


DIGEST = """
from tests.sim.test_cluster import run
world = run({seed})
print(world.clock.digest, sorted(world.tally().items()))
"""


def test_a_seed_gives_one_trace_however_hashes_fall() -> None:
    """Sets and dictionaries keyed by hash must not decide anything."""
    seed = int(os.environ.get("TIDELOG_SEED") or 5)
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", DIGEST.format(seed=seed)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        traces.append(done.stdout)
    assert traces[0] == traces[1] and traces[0]
