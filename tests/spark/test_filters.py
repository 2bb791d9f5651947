"""Filters that narrow what is fetched: never a row too few; what is certain is taken off Spark's hands."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.filters import Filter, Op, is_applied, narrow, time_lookups
from tidelog.spark.ranges import RangeOf

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
RANGES = [RangeOf("t", None, 0, 10, 20), RangeOf("t", None, 1, 0, 5), RangeOf("u", None, 0, 100, 200)]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (Filter("partition", Op.EQUAL, (1,)), [(1, 0, 5)]),
        (Filter("partition", Op.AMONG, (1, 7, None)), [(1, 0, 5)]),
        (Filter("partition", Op.AMONG, ()), []),
        (Filter("partition", Op.LESS, (1,)), [(0, 10, 20), (0, 100, 200)]),
        (Filter("partition", Op.GREATER, (0,)), [(1, 0, 5)]),
        (Filter("partition", Op.AT_LEAST, (1,)), [(1, 0, 5)]),
        (Filter("partition", Op.AT_LEAST, (2,)), []),
        (Filter("partition", Op.AT_MOST, (0,)), [(0, 10, 20), (0, 100, 200)]),
        (Filter("topic", Op.EQUAL, ("u",)), [(0, 100, 200)]),
        (Filter("topic", Op.AMONG, ("u", "v", None)), [(0, 100, 200)]),
        (Filter("offset", Op.EQUAL, (15,)), [(0, 15, 16)]),
        (Filter("offset", Op.AT_LEAST, (15,)), [(0, 15, 20), (0, 100, 200)]),
        (Filter("offset", Op.GREATER, (15,)), [(0, 16, 20), (0, 100, 200)]),
        (Filter("offset", Op.LESS, (15,)), [(0, 10, 15), (1, 0, 5)]),
        (Filter("offset", Op.AT_MOST, (15,)), [(0, 10, 16), (1, 0, 5)]),
        (Filter("offset", Op.AMONG, (3, 12)), [(0, 10, 13), (1, 3, 5)]),
        (Filter("offset", Op.AMONG, ()), []),
        (Filter("offset", Op.EQUAL, (-5,)), []),
    ],
)
def test_a_filter_narrows_the_ranges(given: Filter, left: list[tuple[int, int, int]]) -> None:
    assert [(each.partition, each.start, each.end) for each in narrow(RANGES, [given])] == left


@pytest.mark.parametrize(
    "given",
    [
        Filter("value", Op.EQUAL, (b"x",)),
        Filter("offset", Op.EQUAL, (None,)),
        Filter("offset", Op.AT_LEAST, (1.5,)),
        Filter("offset", Op.AT_LEAST, (True,)),
        Filter("partition", Op.AMONG, ("1",)),
        Filter("topic", Op.LESS, ("u",)),
        Filter("topic", Op.EQUAL, (7,)),
        Filter("topic", Op.NOT_NULL),
        Filter("timestamp", Op.LESS, (5,)),
        Filter("timestamp", Op.AT_LEAST, (5,)),
    ],
)
def test_what_cannot_be_applied_leaves_the_ranges_alone(given: Filter) -> None:
    assert narrow(RANGES, [given]) == RANGES


@pytest.mark.parametrize(
    ("given", "applied"),
    [
        (Filter("partition", Op.EQUAL, (1,)), True),
        (Filter("partition", Op.AMONG, (1, 2)), True),
        (Filter("partition", Op.AT_MOST, (1.0,)), False),
        (Filter("topic", Op.AMONG, ("t",)), True),
        (Filter("topic", Op.GREATER, ("t",)), False),
        (Filter("offset", Op.LESS, (7,)), True),
        (Filter("offset", Op.AMONG, (7,)), True),
        (Filter("offset", Op.AMONG, (7, 9)), False),
        (Filter("offset", Op.EQUAL, (None,)), False),
        (Filter("timestamp", Op.AT_LEAST, (7,)), False),
        (Filter("timestamp", Op.LESS, (7,)), False),
        (Filter("timestamp", Op.NOT_NULL), True),
        (Filter("offset", Op.NOT_NULL), True),
        (Filter("key", Op.NOT_NULL), False),
        (Filter("value", Op.EQUAL, (7,)), False),
    ],
)
def test_only_what_is_certain_is_taken_off_spark_s_hands(given: Filter, applied: bool) -> None:
    assert is_applied(given) is applied


def at(op: Op, *microseconds: Any) -> Filter:
    return Filter("timestamp", op, microseconds)


@pytest.mark.parametrize(
    ("filters", "asked_ms"),
    [
        ([at(Op.AT_LEAST, 5_000)], 5),
        ([at(Op.AT_LEAST, 5_001)], 6),
        ([at(Op.GREATER, 5_000)], 6),
        ([at(Op.GREATER, 5_999)], 6),
        ([at(Op.EQUAL, 5_000)], 5),
        ([at(Op.AMONG, 9_000, 7_000, None)], 7),
        ([at(Op.AT_LEAST, 5_000), at(Op.AT_LEAST, 8_000), at(Op.LESS, 1)], 8),
        ([at(Op.AT_LEAST, -9_000), at(Op.AT_LEAST, 5_000)], 5),
        ([at(Op.AT_LEAST, 0)], 0),
        ([at(Op.AT_LEAST, -1)], 0),
        ([at(Op.AT_LEAST, -1_000)], None),
        ([at(Op.LESS, 5_000)], None),
        ([at(Op.AT_MOST, 5_000)], None),
        ([at(Op.NOT_NULL)], None),
        ([at(Op.AT_LEAST, None)], None),
        ([Filter("offset", Op.AT_LEAST, (5,))], None),
    ],
)
def test_only_a_lower_bound_of_timestamps_is_looked_up(filters: list[Filter], asked_ms: int | None) -> None:
    asked = time_lookups(filters, [*RANGES[:2], RangeOf("u", None, 0, 5, 6), RangeOf("t", None, 9, 5, 5)])
    assert asked == ({} if asked_ms is None else dict.fromkeys((T0, T1, U0), asked_ms))


def test_a_range_starts_at_the_first_record_of_the_time() -> None:
    left = narrow(RANGES, [at(Op.AT_LEAST, 5_000)], {T0: 13, T1: None, U0: 50})
    assert [(each.partition, each.start, each.end) for each in left] == [(0, 13, 20), (0, 100, 200)]


COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQUAL: operator.eq,
    Op.LESS: operator.lt,
    Op.AT_MOST: operator.le,
    Op.GREATER: operator.gt,
    Op.AT_LEAST: operator.ge,
}
Row = dict[str, Any]


def passes(row: Row, filters: list[Filter]) -> bool:
    return all(
        row[each.column] in each.values
        if each.op is Op.AMONG
        else each.op is Op.NOT_NULL or COMPARE[each.op](row[each.column], each.values[0])
        for each in filters
    )


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    single = st.builds(lambda op, value: Filter(column, op, (value,)), st.sampled_from(list(COMPARE)), values)
    among = st.builds(lambda many: Filter(column, Op.AMONG, tuple(many)), st.lists(values, max_size=3))
    return single | among | st.just(Filter(column, Op.NOT_NULL))


some_filters = st.lists(
    filters_on("topic", st.sampled_from("tuv"))
    | filters_on("partition", st.integers(-1, 3))
    | filters_on("offset", st.integers(-1, 12))
    | filters_on("timestamp", st.integers(-3_000, 12_000)),
    max_size=4,
)
# Timestamps in milliseconds, by offset, in any order, as producers write them.
logs = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 2)),
    st.lists(st.integers(-1, 10), max_size=10),
    max_size=4,
)


@given(logs, some_filters)
def test_no_row_that_passes_is_left_out_and_none_that_fails_an_applied_filter_stays(
    log: dict[TopicPartition, list[int]], filters: list[Filter]
) -> None:
    ranges = [RangeOf(p.topic, None, p.partition, 0, len(times)) for p, times in log.items()]
    answers = {
        partition: next((n for n, time in enumerate(log[partition]) if time >= asked_ms), None)
        for partition, asked_ms in time_lookups(filters, ranges).items()
    }
    left = {
        (each.topic_partition, offset)
        for each in narrow(ranges, filters, answers)
        for offset in range(each.start, each.end)
    }
    applied = [each for each in filters if is_applied(each)]
    for partition, times in log.items():
        for offset, time_ms in enumerate(times):
            row = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
            row["timestamp"] = time_ms * 1000
            if passes(row, filters):
                assert (partition, offset) in left
            if not passes(row, applied):
                assert (partition, offset) not in left
