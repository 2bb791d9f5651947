"""Where the replicas of new partitions go: over all racks first, then over all brokers (R10).

The brokers form a ring in which neighbours sit in different racks, as far as the racks' sizes allow. One
partition after the other is led by the next broker of the ring; its followers are the next ones after the
leader that bring a rack in which it has the fewest replicas. With each turn of the ring the followers move
on by one, so that the partitions which one broker leads fall to all the others when it dies. Racks count
only if every broker has one.

**Invariant:** replicas of one partition sit on different brokers, and no two in one rack while there is a
rack with none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.cluster.image import BrokerFacts


def racks_of(brokers: Mapping[int, BrokerFacts]) -> dict[int, str]:
    """Where something new can go: brokers that mean to stay."""
    return {node_id: facts.rack for node_id, facts in brokers.items() if not facts.is_stopping}


def place(
    partition_count: int, replica_count: int, brokers: Mapping[int, str], start: int
) -> list[list[int]]:
    """Replicas for each partition, the first leads. `brokers` has each one's rack, or ''; `start` picks the
    first leader, so that topics differ."""
    assert 0 < replica_count <= len(brokers)
    racks = dict(brokers) if all(brokers.values()) else dict.fromkeys(brokers, "")
    ring = _ring(racks)
    return [_replicas(ring, racks, start + partition, replica_count) for partition in range(partition_count)]


def _ring(racks: Mapping[int, str]) -> list[int]:
    """The first broker of each rack, then the second of each, and so on."""
    counts = dict.fromkeys(racks.values(), 0)
    rows = []
    for node_id in sorted(racks):
        rows.append((counts[racks[node_id]], racks[node_id], node_id))
        counts[racks[node_id]] += 1
    return [node_id for _, _, node_id in sorted(rows)]


def _replicas(ring: list[int], racks: Mapping[int, str], number: int, replica_count: int) -> list[int]:
    turn, position = divmod(number, len(ring))
    others = ring[position + 1 :] + ring[:position]
    shift = turn % max(len(others), 1)
    others = others[shift:] + others[:shift]
    replicas = [ring[position]]
    held = dict.fromkeys(racks.values(), 0)
    held[racks[replicas[0]]] += 1
    while len(replicas) < replica_count:
        chosen = min(others, key=lambda node_id: held[racks[node_id]])  # of equals the first
        others.remove(chosen)
        held[racks[chosen]] += 1
        replicas.append(chosen)
    return replicas
