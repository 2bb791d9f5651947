"""How many inputs each target gets."""

from __future__ import annotations

from tests.fuzz.__main__ import FULL_RUNS, shares
from tests.fuzz.targets import TARGETS


def test_the_inputs_of_all_targets_are_no_fewer_than_asked_for() -> None:
    for runs in (1, 7, 100_000, FULL_RUNS):
        counts = shares(list(TARGETS), runs)
        assert runs <= sum(counts.values()) <= runs + len(TARGETS)
        assert min(counts.values()) > 0


def test_a_full_run_is_ten_million() -> None:
    assert FULL_RUNS >= 10_000_000
