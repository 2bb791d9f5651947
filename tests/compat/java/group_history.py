"""What members of a group wrote together, and what must hold of it.

The file has the order in which everything happened, over threads and processes: a member says that it gave a
partition up before it asks for others, and that it has one after it was told.

**Invariant:** the checks read only what clients saw: nothing of the broker.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Partition = tuple[str, int]


@dataclass(frozen=True)
class Event:
    """One line of the history. `gone` is written by the test, for a member that cannot say so."""

    member: str
    event: str
    partitions: tuple[Partition, ...] = ()
    first: int = -1
    end: int = -1
    generation: int = -1
    error: str = ""

    @property
    def partition(self) -> Partition:
        (partition,) = self.partitions
        return partition


def parse_event(line: bytes) -> Event:
    fields = json.loads(line)
    partitions = tuple((topic, index) for topic, index in fields.pop("partitions", ()))
    return Event(partitions=partitions, **fields)


class Ownership:
    """Who owns what, event by event. Fails where a partition is given while another member still has it."""

    def __init__(self) -> None:
        self.owned: defaultdict[str, set[Partition]] = defaultdict(set)

    def follow(self, event: Event) -> None:
        mine = self.owned[event.member]
        if event.event == "assigned":
            for other, theirs in self.owned.items():
                both = theirs & set(event.partitions)
                assert other == event.member or not both, f"{event}: still {other}'s"
            mine |= set(event.partitions)
        elif event.event in ("revoked", "lost"):
            mine -= set(event.partitions)
        elif event.event in ("closed", "gone"):
            mine.clear()


def committed_ends(history: Sequence[Event]) -> dict[Partition, int]:
    return {event.partition: event.end for event in history if event.event == "committed"}


def check_deliveries(history: Sequence[Event], ends: Mapping[Partition, int]) -> None:
    """Every record came, none after it was committed, and only owners commit, never backwards."""
    committed: dict[Partition, int] = dict.fromkeys(ends, 0)
    delivered: dict[Partition, int] = dict.fromkeys(ends, 0)
    ownership = Ownership()
    for event in history:
        ownership.follow(event)
        if event.event == "delivered":
            assert event.first >= committed[event.partition], f"{event}: was committed already"
            assert event.first <= delivered[event.partition], f"{event}: leaves records out"
            delivered[event.partition] = max(event.end, delivered[event.partition])
        elif event.event == "committed":
            assert event.end >= committed[event.partition], f"{event}: goes back"
            assert event.partition in ownership.owned[event.member], f"{event}: is not its own"
            committed[event.partition] = event.end
    assert delivered == ends


def check_generations(history: Sequence[Event]) -> None:
    """In one generation a partition has one member."""
    owners = {
        (event.generation, partition, event.member)
        for event in history
        if event.event == "assigned"
        for partition in event.partitions
    }
    counts = Counter((generation, partition) for generation, partition, _ in owners)
    assert [place for place, count in counts.items() if count > 1] == []


def taken_for_nothing(history: Sequence[Event]) -> list[tuple[str, Partition]]:
    """Partitions that were taken from a member and then given to nobody else before it had them again."""
    last_owner: dict[Partition, str] = {}
    returned = []
    for event in history:
        if event.event == "assigned":
            returned += [
                (event.member, each) for each in event.partitions if last_owner.get(each) == event.member
            ]
            last_owner.update(dict.fromkeys(event.partitions, event.member))
    return returned
