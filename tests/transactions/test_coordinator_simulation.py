"""The machine alone, on a seeded walk with restarts. `TIDELOG_SEED=7` looks at one seed."""

from __future__ import annotations

import os
from collections import Counter

from tests.transactions.simulation import walk

SEED = os.environ.get("TIDELOG_SEED")
SEEDS = [int(SEED)] if SEED else range(60)
COMMITS_MIN = 100  # told in all walks, or they show nothing


def test_no_walk_has_a_violation() -> None:
    outcomes: Counter[bool] = Counter()
    for seed in SEEDS:
        try:
            outcomes.update(walk(seed).outcomes.values())
        except Exception as violation:
            raise AssertionError(f"seed {seed}: {violation!r}") from violation
    if SEED is None:
        assert min(outcomes[True], outcomes[False]) > COMMITS_MIN
