"""The parts of one answer, which come from the store one by one.

**Invariant:** answered once: when the last part is in, or at the deadline with what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.protocol.connection import Answer

Part = TypeVar("Part")


def deadline_of(broker: Broker, timeout: timedelta) -> int:
    return broker.uptime_ms + max(int(timeout.total_seconds() * 1_000), 0)


class Gathering(Parked, Generic[Part]):
    """`late` stands for the parts that have not come by the deadline."""

    __slots__ = ("_answer", "_broker", "_late", "_parts", "_waiting_count")

    def __init__(
        self,
        broker: Broker,
        deadline_ms: int,
        count: int,
        late: Part,
        answer: Callable[[list[Part]], Answer],
    ) -> None:
        super().__init__(deadline_ms, [])
        self._broker = broker
        self._parts: list[Part | None] = [None] * count
        self._waiting_count = count
        self._late = late
        self._answer = answer

    def put(self, place: int, part: Part) -> None:
        """One part, once."""
        self._parts[place] = part
        self._waiting_count -= 1
        if not self._waiting_count and self.slot is not None:
            self._broker.waiting.finish(self, self.finish_late())

    def result(self) -> Answer | Parked:
        """What the handler returns: the answer if it has all parts, else this, to be parked."""
        return self if self._waiting_count else self.finish_late()

    def finish_late(self) -> Answer:
        return self._answer([self._late if part is None else part for part in self._parts])
