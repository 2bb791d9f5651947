"""Changes of many partitions that an administrator asks for: written in pieces that the store takes at once.

**Invariant:** a piece that is refused because a leader has changed an ISR meanwhile is decided again from
what is there then; partitions that are not to be changed any more are left out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.base.limits import ELECTIONS_TOGETHER
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.cluster.facts import PartitionChange
from tidelog.cluster.store import Outcome
from tidelog.handlers.request import Result
from tidelog.handlers.store_changes import change_store, problem_of
from tidelog.protocol.errors import Problem

Place = tuple[str, int]  # topic and partition
Told = dict[Place, Problem]
Decided = dict[Place, PartitionChange]


class Piece(StoreChange[Decided, None]):
    """Partitions that are written together; `told` has what is known of each, in all pieces."""

    def __init__(self, broker: Broker, places: list[Place], told: Told) -> None:
        self._broker = broker
        self._places = places
        self._told = told

    def decide(self) -> Decided | Settled[None]:
        decided: Decided = {}
        for place in self._places:
            found = self.decide_one(*place)
            if isinstance(found, PartitionChange):
                decided[place] = found
            else:
                self._told[place] = found
        self._places = list(decided)
        return decided or Settled(None)

    def decide_one(self, name: str, index: int) -> PartitionChange | Problem:
        raise AssertionError(f"{type(self).__name__} decides nothing")

    def row_of(self, decided: Decided, outcome: Outcome) -> None:
        self._told.update(dict.fromkeys(decided, self.problem_of(outcome)))

    def problem_of(self, outcome: Outcome) -> Problem:
        return problem_of(outcome)


def change_partitions(
    broker: Broker,
    places: Iterable[Place],
    piece_of: Callable[[list[Place], Told], Piece],
    deadline_ms: int,
    answer: Callable[[Told], bytes],
) -> Result:
    """Write what is decided for these partitions; `answer` gets what is known of each by the deadline."""
    wanted = list(places)
    told: Told = {}
    pieces = [
        piece_of(wanted[at : at + ELECTIONS_TOGETHER], told)
        for at in range(0, len(wanted), ELECTIONS_TOGETHER)
    ]
    return change_store(broker, deadline_ms, pieces, None, lambda rows: answer(told))
