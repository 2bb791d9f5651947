"""Where replicas go."""

from __future__ import annotations

from collections import Counter

from tidelog.cluster.placement import place


def test_replicas_of_a_partition_sit_on_different_brokers() -> None:
    for replica_count in (1, 2, 3):
        for replicas in place(10, replica_count, [3, 1, 2], start=1):
            assert len(set(replicas)) == replica_count


def test_leaders_are_spread_evenly() -> None:
    assert set(Counter(replicas[0] for replicas in place(12, 2, [1, 2, 3], 0)).values()) == {4}


def test_the_start_picks_the_first_leader() -> None:
    assert [place(1, 1, [7, 8, 9], start)[0] for start in range(4)] == [[7], [8], [9], [7]]
