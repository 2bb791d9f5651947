"""Filters of a batch read that reduce the fetched ranges: on topic, partition, offset and timestamp.

Filters on offsets and partitions are applied exactly, so Spark need not repeat them. Timestamps are set by
producers and are not monotonic. A lower bound can be used: all records before the first offset with an equal
or later timestamp, as reported by brokers, are earlier. An upper bound cannot: behind any offset there may be
a record with an earlier timestamp. Either way Spark filters the rows.

**Invariant:** no row that passes the filters is omitted; a filter `is_applied` only if no row that fails it
remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.spark.ranges import RangeOf

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_MICROSECONDS = 1000  # per millisecond


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
    """Whether `narrow` removes all rows that fail the filter, so that Spark need not check it."""
    if given.op is Op.NOT_NULL:
        return given.column in NEVER_NULL
    if given.column == "topic":
        return given.op in (Op.EQUAL, Op.AMONG) and _texts(given) is not None
    if given.column == "partition":
        return _numbers(given) is not None
    one_stretch = given.op is not Op.AMONG or len(given.values) == 1
    return given.column == "offset" and one_stretch and _numbers(given) is not None


def time_lookups(filters: Iterable[Filter], ranges: Iterable[RangeOf]) -> dict[TopicPartition, int]:
    """The timestamps in milliseconds whose first offset `narrow` needs, by partition.

    Look them up after the ranges were made: a partition without such a record is not read at all.
    """
    bounds = [bound for each in filters if (bound := _earliest_ms(each)) is not None]
    # Brokers give negative timestamps a special meaning.
    if not bounds or max(bounds) < 0:
        return {}
    return {each.topic_partition: max(bounds) for each in ranges if each.size > 0}


def narrow(
    ranges: Iterable[RangeOf],
    filters: Iterable[Filter],
    by_time: Mapping[TopicPartition, int | None] | None = None,
) -> list[RangeOf]:
    """The remaining ranges; `by_time` has the answers to `time_lookups`, None for no such record."""
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
    """The lowest timestamp that passes the filter."""
    if given.column != "timestamp" or given.op in (Op.LESS, Op.AT_MOST) or not (bounds := _numbers(given)):
        return None
    lowest = min(bounds)
    return lowest // _MICROSECONDS + 1 if given.op is Op.GREATER else -(-lowest // _MICROSECONDS)


def _numbers(given: Filter) -> tuple[int, ...] | None:
    """The values, if each is a whole number; a null equals nothing."""
    values = _values(given)
    return tuple(values) if given.op is not Op.NOT_NULL and all(type(v) is int for v in values) else None  # type: ignore[arg-type]


def _texts(given: Filter) -> frozenset[str] | None:
    values = _values(given)
    return frozenset(values) if all(isinstance(v, str) for v in values) else None  # type: ignore[arg-type]


def _values(given: Filter) -> list[object]:
    return [value for value in given.values if given.op is not Op.AMONG or value is not None]
