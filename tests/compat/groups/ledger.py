"""What the members of a group told, put together, and what must be true of it.

Each check is a function from the events (in the order of their stamps) to the lines that say what is wrong.

**Invariant:** a partition is somebody's from the moment he is told so until he was told (or decided, or was
made) to give it up; what the broker thinks meanwhile does not count. Who is leaving takes nothing on: his
client may still be in a rebalance and tell of its end, but nobody polls any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.compat.groups.spec import Event, Partition

ENDS = ("leaving", "stopped")
NEVER = 1 << 62


@dataclass
class Tenure:
    """One member's time with one partition; `generation` is the one in which it was given to him."""

    partition: Partition
    member: str
    member_id: str
    generation: int
    from_ns: int
    until_ns: int = NEVER


def tenures(events: Sequence[Event]) -> list[Tenure]:
    found: list[Tenure] = []
    current: dict[tuple[str, Partition], Tenure] = {}
    leaving: set[str] = set()
    for event in events:
        if event.kind == "leaving":
            leaving.add(event.member)
        if event.kind == "assigned" and event.member not in leaving:
            for partition in event.partitions:
                if (event.member, partition) not in current:
                    begun = Tenure(partition, event.member, event.member_id, event.generation, event.at_ns)
                    current[event.member, partition] = begun
                    found.append(begun)
        elif event.kind in ("revoked", "lost", *ENDS):
            for member, partition in list(current):
                if member == event.member and (event.kind in ENDS or partition in event.partitions):
                    current.pop((member, partition)).until_ns = event.at_ns
    return found


def owned(events: Sequence[Event]) -> dict[str, set[Partition]]:
    """Who has what now."""
    now: dict[str, set[Partition]] = defaultdict(set)
    for tenure in tenures(events):
        if tenure.until_ns == NEVER:
            now[tenure.member].add(tenure.partition)
    return now


def two_owners(events: Sequence[Event]) -> list[str]:
    """Partitions that were two members' at once, by the clock or by the generation."""
    wrong = []
    by_partition: dict[Partition, list[Tenure]] = defaultdict(list)
    for tenure in tenures(events):
        by_partition[tenure.partition].append(tenure)
    for held in by_partition.values():
        held.sort(key=lambda tenure: tenure.from_ns)
        for earlier, later in pairwise(held):
            if later.from_ns < earlier.until_ns:
                wrong.append(f"at the same time: {earlier} and {later}")
            if later.member != earlier.member and later.generation <= earlier.generation:
                wrong.append(f"in the same generation: {earlier} and {later}")
    return wrong


def outside_tenure(events: Sequence[Event]) -> list[str]:
    """Records that a member read from a partition that was not his."""
    mine: dict[str, set[Partition]] = defaultdict(set)
    wrong = []
    for event in events:
        if event.kind == "assigned":
            mine[event.member] |= set(event.partitions)
        elif event.kind in ("revoked", "lost"):
            mine[event.member] -= set(event.partitions)
        elif event.kind == "records":
            strange = {place.of for place in event.places} - mine[event.member]
            wrong += [f"{event.member} read {partition} without having it" for partition in sorted(strange)]
    return wrong


def committed_again(events: Sequence[Event]) -> list[str]:
    """Records that were handed to somebody after they had been committed."""
    committed: dict[Partition, int] = {}
    wrong = []
    for event in events:
        if event.kind == "committed":
            for place in event.places:
                committed[place.of] = max(committed.get(place.of, 0), place.offset)
        elif event.kind == "records":
            wrong += [
                f"{event.member} got {place.of} at {place.offset}, committed up to {committed[place.of]}"
                for place in event.places
                if place.offset < committed.get(place.of, 0)
            ]
    return wrong


def deliveries(events: Iterable[Event]) -> dict[tuple[Partition, int], int]:
    """How often each record came."""
    counts: dict[tuple[Partition, int], int] = defaultdict(int)
    for event in events:
        if event.kind == "records":
            for place in event.places:
                counts[place.of, place.offset] += 1
    return counts


def missing(events: Sequence[Event], ends: Mapping[Partition, int]) -> list[str]:
    """What was acknowledged (every offset below the ends) and reached nobody."""
    came = deliveries(events)
    return [
        f"{partition} at {offset} came to nobody"
        for partition, end in ends.items()
        for offset in range(end)
        if (partition, offset) not in came
    ]


def twice(events: Sequence[Event]) -> list[str]:
    return [f"{place} came {count} times" for place, count in deliveries(events).items() if count > 1]


def faults(events: Sequence[Event]) -> list[str]:
    """All that must never be, whatever happens to members."""
    return two_owners(events) + outside_tenure(events) + committed_again(events)
