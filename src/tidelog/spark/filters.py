"""Filters of a batch read that narrow what is fetched: on topic, partition, offset and timestamp.

Offsets and partitions are cut exactly, so such a filter need not be looked at again. A timestamp is another
matter: producers set it, so it goes up and down. A lower bound can be used: before the first offset with a
timestamp or a later one, as brokers answer it, all are smaller. An upper bound cannot: behind any offset
there may be a record with an earlier timestamp. Either way Spark filters the rows.

**Invariant:** no row that passes the filters is left out; a filter `is_applied` only if no row that fails it
is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.spark.ranges import RangeOf

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_MICROSECONDS = 1000  # of a millisecond


class Op(Enum):
    EQUAL = "="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    AMONG = "in"
    NOT_NULL = "is not null"


class Filter(NamedTuple):
    """`values` are numbers or texts as in the column; timestamps are microseconds since 1970."""

    column: str
    op: Op
    values: tuple[object, ...] = ()


_KEEPS: dict[Op, Callable[[int, int], bool]] = {
    Op.EQUAL: lambda number, bound: number == bound,
    Op.LESS: lambda number, bound: number < bound,
    Op.AT_MOST: lambda number, bound: number <= bound,
    Op.GREATER: lambda number, bound: number > bound,
    Op.AT_LEAST: lambda number, bound: number >= bound,
}


def is_applied(given: Filter) -> bool:
    """Whether `narrow` leaves no row that fails it, so that nobody else has to look."""
    if given.op is Op.NOT_NULL:
        return given.column in NEVER_NULL
    if given.column == "topic":
        return given.op in (Op.EQUAL, Op.AMONG) and _texts(given) is not None
    if given.column == "partition":
        return _numbers(given) is not None
    one_stretch = given.op is not Op.AMONG or len(given.values) == 1
    return given.column == "offset" and one_stretch and _numbers(given) is not None


def time_lookups(filters: Iterable[Filter], ranges: Iterable[RangeOf]) -> dict[TopicPartition, int]:
    """The timestamps in milliseconds whose first offset `narrow` wants to know, by partition.

    They are to be asked after the ranges were made: of a partition that has no such record then, nothing
    is read.
    """
    bounds = [bound for each in filters if (bound := _earliest_ms(each)) is not None]
    # Brokers take negative timestamps for something else.
    if not bounds or max(bounds) < 0:
        return {}
    return {each.topic_partition: max(bounds) for each in ranges if each.size > 0}


def narrow(
    ranges: Iterable[RangeOf],
    filters: Iterable[Filter],
    by_time: Mapping[TopicPartition, int | None] | None = None,
) -> list[RangeOf]:
    """What is left to read; `by_time` has the answers to `time_lookups`, None for no such record."""
    chosen = tuple(filters)
    left = [_narrow_one(each, chosen) for each in ranges if _is_wanted(each, chosen)]
    late = [_start_late(each, by_time or {}) for each in left]
    return [each for each in late if each.size > 0]


def _is_wanted(each: RangeOf, filters: tuple[Filter, ...]) -> bool:
    for given in filters:
        if given.column == "topic" and given.op in (Op.EQUAL, Op.AMONG):
            names = _texts(given)
            if names is not None and each.topic not in names:
                return False
        if given.column == "partition" and (bounds := _numbers(given)) is not None:
            keeps = _KEEPS[Op.EQUAL if given.op is Op.AMONG else given.op]
            if not any(keeps(each.partition, bound) for bound in bounds):
                return False
    return True


def _narrow_one(each: RangeOf, filters: tuple[Filter, ...]) -> RangeOf:
    start, end = each.start, each.end
    for given in filters:
        bounds = _numbers(given) if given.column == "offset" else None
        if not bounds:
            end = start if bounds == () else end
            continue
        if given.op in (Op.EQUAL, Op.AMONG, Op.AT_LEAST, Op.GREATER):
            start = max(start, min(bounds) + (given.op is Op.GREATER))
        if given.op in (Op.EQUAL, Op.AMONG, Op.AT_MOST, Op.LESS):
            end = min(end, max(bounds) + (given.op is not Op.LESS))
    return each._replace(start=start, end=end)


def _start_late(each: RangeOf, by_time: Mapping[TopicPartition, int | None]) -> RangeOf:
    if each.topic_partition not in by_time:
        return each
    first = by_time[each.topic_partition]
    return each._replace(start=each.end if first is None else max(each.start, first))


def _earliest_ms(given: Filter) -> int | None:
    """The lowest timestamp that a record may have and pass."""
    if given.column != "timestamp" or given.op in (Op.LESS, Op.AT_MOST) or not (bounds := _numbers(given)):
        return None
    lowest = min(bounds)
    return lowest // _MICROSECONDS + 1 if given.op is Op.GREATER else -(-lowest // _MICROSECONDS)


def _numbers(given: Filter) -> tuple[int, ...] | None:
    """The values, if each is a whole number; nothing equals a null among others."""
    values = _values(given)
    return tuple(values) if given.op is not Op.NOT_NULL and all(type(v) is int for v in values) else None  # type: ignore[arg-type]


def _texts(given: Filter) -> frozenset[str] | None:
    values = _values(given)
    return frozenset(values) if all(isinstance(v, str) for v in values) else None  # type: ignore[arg-type]


def _values(given: Filter) -> list[object]:
    return [value for value in given.values if given.op is not Op.AMONG or value is not None]
