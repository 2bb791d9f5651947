"""Clusters with transactional producers: no transaction is torn, lost, doubled or shown early."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.sim.transactions_cluster import TransactionWorld
from tests.soak import is_soak

SAMPLE_COUNT = 30
SOAK_COUNT = 10_000
PART_COUNT = 2
# What the seeds of one part must have had in them, all together.
EXERCISED = (
    "new leader epochs",
    "controllers",
    "expiries",
    "kill",
    "power loss",
    "pause",
    "block",
    "connections cut",
    "end: none",
    "end: network_exception",
    "end: not_coordinator",
    "transactional produce: concurrent_transactions",
    "transactional produce: not_leader_or_follower",
    "instance over: producer_fenced",
    "instance over: walked away",
    "stable offset row: none",
    "stable offset row: unstable_offset_commit",
    "told committed",
    "told aborted",
    "left open",
)


def seeds(part: int) -> list[int]:
    """This part of so many seeds, or the one that TIDELOG_SEED names."""
    named = os.environ.get("TIDELOG_SEED")
    if named:
        return [int(named)] if part == 0 else []
    return list(range(part, SOAK_COUNT if is_soak() else SAMPLE_COUNT, PART_COUNT))


def run(seed: int) -> TransactionWorld:
    """One life of a cluster; its trace goes with whatever is wrong."""
    world = TransactionWorld(seed)
    try:
        world.run()
    except Exception as failure:
        failure.add_note("\n".join([*world.clock.trace, *world.describe(), f"make sim SEED={seed}"]))
        raise
    return world


@pytest.mark.soak
@pytest.mark.timeout(9_000 if is_soak() else 600)
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_transactions_are_whole_whatever_happens(part: int) -> None:
    total: Counter[str] = Counter()
    chosen = seeds(part)
    for seed in chosen:
        total.update(run(seed).tally())
    if len(chosen) > 1:
        assert [name for name in EXERCISED if not total[name]] == []
