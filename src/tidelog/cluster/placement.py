"""Where the replicas of a new topic go: spread over the brokers, one after the other (R10).

**Invariant:** replicas of one partition sit on different brokers.
"""

from __future__ import annotations

from collections.abc import Sequence


def place(partition_count: int, replica_count: int, broker_ids: Sequence[int], start: int) -> list[list[int]]:
    """Replicas for each partition; `start` picks the first leader, so that topics differ."""
    ids = sorted(broker_ids)
    assert 0 < replica_count <= len(ids)
    return [
        [ids[(start + partition + replica) % len(ids)] for replica in range(replica_count)]
        for partition in range(partition_count)
    ]
