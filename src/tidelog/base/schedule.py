"""What is done as time passes: rows of an interval and a call, carried out in their order.

    Schedule(
        Row(EACH_TICK, waiting.tick),
        Row(10_000, telemetry.expire),
    ).tick(uptime_ms)

**Invariant:** the rows that are due at one tick run in the order in which they stand; no clock is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

EACH_TICK = 0


class Interval:
    """Time between two rounds of something."""

    def __init__(self, every_ms: int, *, is_over_at_first: bool = False) -> None:
        self._every_ms = every_ms
        self._is_over_at_first = is_over_at_first
        self._next_ms: int | None = None

    def maybe_restart(self, uptime_ms: int) -> bool:
        """Begin the next interval if this one has passed, counted from the first call; whether it has."""
        if self._next_ms is None:
            self._next_ms = uptime_ms + (0 if self._is_over_at_first else self._every_ms)
        if uptime_ms < self._next_ms:
            return False
        self._next_ms = uptime_ms + self._every_ms
        return True


class Row(NamedTuple):
    every_ms: int
    act: Callable[[], object]
    is_due_at_first: bool = False  # else when the interval has passed once


class Schedule:
    def __init__(self, *rows: Row) -> None:
        self._rows: Sequence[tuple[Interval, Callable[[], object]]] = [
            (Interval(row.every_ms, is_over_at_first=row.is_due_at_first), row.act) for row in rows
        ]

    def tick(self, uptime_ms: int) -> None:
        for interval, act in self._rows:
            if interval.maybe_restart(uptime_ms):
                act()
