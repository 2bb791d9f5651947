"""The parts of one answer, which come one by one: from the store, from the coordinators of groups, or from
searches.

**Invariant:** answered once: when the last part is in, or at the deadline with what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode

Row = TypeVar("Row")


def deadline_of(broker: Broker, timeout: timedelta) -> int:
    return broker.clock.uptime_ms + max(int(timeout.total_seconds() * 1_000), 0)


class Gathering(Parked, Generic[Row]):
    """`late` stands for the parts that have not come by the deadline."""

    __slots__ = ("_answer", "_broker", "_late", "_parts", "_waiting_count")

    def __init__(
        self,
        broker: Broker,
        deadline_ms: int,
        count: int,
        late: Row,
        answer: Callable[[list[Row]], Answer],
    ) -> None:
        super().__init__(deadline_ms, [])
        self._broker = broker
        self._parts: list[Row | None] = [None] * count
        self._waiting_count = count
        self._late = late
        self._answer = answer

    def put(self, place: int, part: Row) -> None:
        """One part, once."""
        self._parts[place] = part
        self._waiting_count -= 1
        if not self._waiting_count and self.connection is not None and not self.is_gone:
            self._broker.waiting.finish(self, self.finish_late())

    def result(self) -> Answer | Parked:
        """What the handler returns: the answer if it has all parts, else this, to be parked."""
        return self if self._waiting_count else self.finish_late()

    def finish_late(self) -> Answer:
        return self._answer([self._late if part is None else part for part in self._parts])


class Part:
    """The place of one part that a coordinator gives; `failed` makes one of an error."""

    __slots__ = ("_failed", "_gathering", "_is_given", "_place")

    def __init__(self, gathering: Gathering[Any], place: int, failed: Callable[[ErrorCode], Any]) -> None:
        self._gathering = gathering
        self._place = place
        self._failed = failed
        self._is_given = False

    @property
    def is_gone(self) -> bool:
        return self._gathering.is_gone

    def give(self, answer: Any) -> None:
        self._is_given = True
        self._gathering.put(self._place, answer)

    def fail(self, code: int) -> None:
        if not self._is_given:
            self.give(self._failed(ErrorCode(code)))
