"""What must go on under which faults: a broker may be in trouble, and a member of ZooKeeper besides."""

from __future__ import annotations

import pytest

from tests.chaos.faults import Fault, Progress
from tests.chaos.nemesis import progress_of


def fault(brokers: set[int], members: set[int], progress: Progress = Progress.ALL) -> Fault:
    return Fault("any", frozenset(brokers), print, print, progress, frozenset(members))


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([fault({1}, set())], Progress.ALL),
        ([fault(set(), {1, 2, 3})], Progress.ALL),
        ([fault({1}, set(), Progress.SOME)], Progress.SOME),
        ([fault({1}, set()), fault(set(), {2})], Progress.ALL),
        ([fault(set(), {2}), fault({1}, set(), Progress.SOME)], Progress.SOME),
        ([fault({1}, set()), fault({2}, set())], Progress.NONE),
        ([fault({1}, set()), fault(set(), {1, 2, 3})], Progress.NONE),
    ],
)
def test_a_minority_in_trouble_stops_nothing_and_more_may(faults: list[Fault], expected: Progress) -> None:
    assert progress_of(faults) is expected
