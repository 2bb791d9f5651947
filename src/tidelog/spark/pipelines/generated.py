"""The parts of a generator of realistic data: blocks, a day curve, late arrivals, popularity.

A generator works in blocks of some thousand events, vectorised by numpy, and returns plain tuples in the
order of arrival. Each block has its own random stream, from the seed and the block's number, so that
memory stays bounded at any size and the same seed gives the same bytes.

**Invariant:** no clock, no Spark; a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

Record = tuple[str, bytes, bytes, int]
"""Topic, key, value and the time of arrival in milliseconds."""

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]

BLOCK_EVENTS = 20_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000
MONDAY_OFFSET = 3
"""1970-01-01 was a Thursday."""


@dataclass(frozen=True)
class Arrivals:
    """The delays of events: most arrive at once, some after minutes (a phone in a tunnel), a few after
    hours."""

    delayed: float = 0.01
    very_late: float = 0.001

    def lags_ms(self, random: np.random.Generator, count: int) -> Integers:
        lags = 20 + random.exponential(150, count)
        chance = random.random(count)
        delayed, very_late = random.exponential(3 * MINUTE_MS, count), random.uniform(15, 180, count)
        lags += np.where(chance < self.delayed, np.minimum(delayed, 9 * MINUTE_MS), 0)
        lags += np.where(chance > 1 - self.very_late, very_late * MINUTE_MS, 0)
        return lags.astype(np.int64)


@dataclass(frozen=True)
class Batch:
    """Records as columns."""

    arrived_ms: Integers
    topics: Objects
    keys: Objects
    values: Objects

    def take(self, which: npt.NDArray[np.bool_] | Integers) -> Batch:
        return Batch(self.arrived_ms[which], self.topics[which], self.keys[which], self.values[which])

    def records(self) -> Iterator[Record]:
        columns = (self.topics, self.keys, self.values, self.arrived_ms)
        return zip(*(column.tolist() for column in columns), strict=True)


EMPTY = Batch(np.zeros(0, np.int64), *(np.zeros(0, np.object_) for _ in range(3)))


def joined(first: Batch, second: Batch) -> Batch:
    return Batch(
        np.concatenate((first.arrived_ms, second.arrived_ms)),
        np.concatenate((first.topics, second.topics)),
        np.concatenate((first.keys, second.keys)),
        np.concatenate((first.values, second.values)),
    )


def in_order_of_arrival(blocks: Iterator[tuple[int, Batch]]) -> Iterator[Record]:
    """Merge blocks of (time before which no later block has records, records)."""
    waiting = EMPTY
    for horizon_ms, block in blocks:
        waiting = joined(waiting, block)
        due = waiting.arrived_ms < horizon_ms
        ready = waiting.take(due)
        yield from ready.take(np.argsort(ready.arrived_ms, kind="stable")).records()
        waiting = waiting.take(~due)
    yield from waiting.take(np.argsort(waiting.arrived_ms, kind="stable")).records()


def millis(moment: datetime) -> int:
    """Milliseconds since 1970; a time without zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int((aware - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def blocks_of(events: int) -> Iterator[tuple[int, int, float, float]]:
    """(number, events in the block, its start and end as shares of the whole)."""
    for number, begin in enumerate(range(0, events, BLOCK_EVENTS)):
        end = min(events, begin + BLOCK_EVENTS)
        yield number, end - begin, begin / events, end / events


class DayCurve:
    """More activity at noon and in the evening, less at night and at the weekend."""

    def __init__(self, start_ms: int, duration_ms: int) -> None:
        steps = max(2, -(-duration_ms // MINUTE_MS) + 1)
        self._grid = np.linspace(start_ms, start_ms + duration_ms, min(steps, 100_000))
        weights = intensity(self._grid)
        passed = np.concatenate(([0.0], np.cumsum((weights[1:] + weights[:-1]) / 2)))
        self._share = passed / passed[-1]

    def times_ms(self, shares: Floats) -> Integers:
        """The times at which the given shares of all events have happened."""
        return np.interp(shares, self._share, self._grid).astype(np.int64)


def intensity(times_ms: Floats) -> Floats:
    hour = (times_ms % DAY_MS) / 3_600_000
    noon = np.exp(-(((hour - 12.5) / 3.0) ** 2))
    evening = 1.3 * np.exp(-(((hour - 20.0) / 2.2) ** 2))
    weekday = (times_ms // DAY_MS + MONDAY_OFFSET) % 7
    return np.where(weekday >= 5, 0.8, 1.0) * (0.15 + noon + evening)


def zipf_shares(count: int, exponent: float) -> Floats:
    """Cumulative popularity of `count` things, the first the most popular."""
    weights = 1.0 / np.arange(1, count + 1) ** exponent
    shares: Floats = np.cumsum(weights) / weights.sum()
    return shares


def drawn(random: np.random.Generator, shares: Floats, count: int) -> Integers:
    places: Integers = np.searchsorted(shares, random.random(count) * shares[-1], side="right")
    return places.astype(np.int64)


def objects(values: list[bytes] | list[str]) -> Objects:
    column = np.empty(len(values), np.object_)
    column[:] = values
    return column
