"""Placement of the replicas of new partitions: over all racks first, then over all brokers (R10).

The brokers form a ring in which neighbours sit in different racks, as far as the racks' sizes allow. The
partitions are led by the brokers of the ring in turn; a partition's followers are the brokers after its
leader, each in a rack with the fewest replicas so far. With each turn of the ring the followers shift by one,
so that the partitions of a failed leader are spread over all other brokers. Racks count only if every broker
has one.

**Invariant:** replicas of one partition sit on different brokers, and no two in one rack while there is a
rack with none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.cluster.facts import BrokerFacts


def racks_of(brokers: Mapping[int, BrokerFacts]) -> dict[int, str]:
    """The brokers that can get replicas, with their racks: available and not stopping."""
    return {node_id: facts.rack for node_id, facts in brokers.items() if not facts.is_stopping}


def place(
    partition_count: int, replica_count: int, brokers: Mapping[int, str], start: int
) -> list[list[int]]:
    """Replicas for each partition, the first one leads. `brokers` has each broker's rack, or ''; `start`
    selects the first leader, so that topics differ."""
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
        chosen = min(others, key=lambda node_id: held[racks[node_id]])  # the first of equals
        others.remove(chosen)
        held[racks[chosen]] += 1
        replicas.append(chosen)
    return replicas
