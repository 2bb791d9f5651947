"""Ranges between two positions, and how they are cut: as spark-sql-kafka does, and again the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.positions import Positions, Split
from tidelog.spark.ranges import RangeOf, between, cut, was_made_again

OLD, NEW = b"o" * 16, b"n" * 16
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

# minPartitions, maxRecordsPerPartition, ranges, and what KafkaOffsetRangeCalculator of 4.2.0 makes of them.
AS_THE_CONNECTOR = [
    (None, None, "0:5 7:7 9:3", "0:0:5"),
    (4, None, "0:29 0:29 0:29", "0:0:29 1:0:29 2:0:29"),
    (3, None, "0:5", "0:0:1 0:1:3 0:3:5"),
    (3, None, "0:1 0:20", "0:0:1 1:0:10 1:10:20"),
    (6, None, "0:10 0:1000 0:2", "0:0:10 1:0:250 1:250:500 1:500:750 1:750:1000 2:0:2"),
    (5, None, "0:2", "0:0:1 0:1:2"),
    (None, 10, "0:25", "0:0:8 0:8:16 0:16:25"),
    (None, 3, "0:3 10:11", "0:0:3 1:10:11"),
    (6, 10, "0:25 0:4", "0:0:4 0:4:8 0:8:12 0:12:16 0:16:20 0:20:25 1:0:4"),
    (9, 10, "0:21 0:5", "0:0:3 0:3:7 0:7:10 0:10:14 0:14:17 0:17:21 1:0:2 1:2:5"),
    (4, None, "0:3 0:1 0:1", "0:0:1 0:1:3 1:0:1 2:0:1"),
    (2, 1, "0:3", "0:0:1 0:1:2 0:2:3"),
    (2, None, "0:1 0:100", "0:0:1 1:0:100"),
    (3, None, "0:4 0:4", "0:0:2 0:2:4 1:0:2 1:2:4"),
]


@pytest.mark.parametrize(("least", "most", "whole", "parts"), AS_THE_CONNECTOR)
def test_ranges_are_cut_as_by_the_connector(
    least: int | None, most: int | None, whole: str, parts: str
) -> None:
    pairs = [tuple(map(int, pair.split(":"))) for pair in whole.split()]
    ranges = [RangeOf("t", None, index, start, end) for index, (start, end) in enumerate(pairs)]
    found = cut(ranges, Split(least, most))
    assert " ".join(f"{each.partition}:{each.start}:{each.end}" for each in found) == parts


whole_ranges = st.lists(
    st.builds(
        lambda topic, partition, start, size: RangeOf(topic, None, partition, start, max(0, start + size)),
        st.sampled_from("tuv"),
        st.integers(0, 3),
        st.integers(0, 2**40),
        st.one_of(st.integers(-3, 200), st.integers(0, 2**45)),
    ),
    max_size=6,
    unique_by=lambda each: (each.topic, each.partition),
)


@given(whole_ranges, st.none() | st.integers(1, 60), st.none() | st.integers(1, 40))
def test_pieces_cover_each_range_once(ranges: list[RangeOf], least: int | None, pieces: int | None) -> None:
    largest = max((each.size for each in ranges), default=0)
    most = None if pieces is None else largest // pieces + 1
    found = cut(ranges, Split(least, most))
    for each in ranges:
        parts = [part for part in found if part.topic_partition == each.topic_partition]
        assert all(part.size > 0 for part in parts)
        edges = [each.start, *(part.end for part in parts)]
        assert [part.start for part in parts] == edges[:-1]
        assert not parts or edges[-1] == each.end
        assert bool(parts) == (each.end > each.start)
    assert found == sorted(found)
    assert most is None or all(part.size <= most for part in found)


@given(whole_ranges, st.integers(1, 60))
def test_more_tasks_come_of_a_larger_minimum(ranges: list[RangeOf], least: int) -> None:
    whole = cut(ranges, Split())
    found = cut(ranges, Split(min_partitions=least))
    assert len(found) >= len(whole)
    assert len(found) <= max(least + len(whole), len(whole))


@given(whole_ranges, st.none() | st.integers(1, 20))
def test_a_batch_that_is_run_again_is_cut_as_before(ranges: list[RangeOf], least: int | None) -> None:
    start = Positions({each.topic_partition: each.start for each in ranges})
    end = Positions({each.topic_partition: each.end for each in ranges}, {"t": NEW}, Split(least))
    first = between(start, end)
    replayed = between(Positions.from_json(start.to_json()), Positions.from_json(end.to_json()))
    assert replayed == first
    assert all(each.topic_id == (NEW if each.topic == "t" else None) for each in first)


def test_the_split_is_that_of_the_end() -> None:
    start, end = Positions({T0: 0}, split=Split(9)), Positions({T0: 10}, split=Split(2))
    assert [(each.start, each.end) for each in between(start, end)] == [(0, 5), (5, 10)]


def test_a_partition_that_fell_back_is_not_read() -> None:
    assert between(Positions({T0: 10, T1: 4}), Positions({T0: 7, T1: 4})) == []


def test_a_new_partition_is_read_from_where_its_batch_says() -> None:
    start = Positions({T0: 5})
    end = Positions({T0: 8, T1: 3, U0: 60}, starts={U0: 50})
    assert [each[2:] for each in between(start, end)] == [(0, 5, 8), (1, 0, 3), (0, 50, 60)]


def test_a_first_batch_that_is_run_again_begins_where_it_began() -> None:
    """Spark asks for the start of a query again, and by then the topic is longer, or begins later."""
    began = Positions({T0: 5, T1: 0})
    end = Positions({T0: 8, T1: 3}).begun_at(began)
    for asked_again in (began, Positions({T0: 9, T1: 2}), Positions({})):
        replayed = between(asked_again, Positions.from_json(end.to_json()))
        assert [each[2:] for each in replayed] == [(0, 5, 8), (1, 0, 3)]


def test_records_that_are_gone_are_not_asked_for() -> None:
    assert [each[3:] for each in between(Positions({T0: 5}), Positions({T0: 80}, starts={T0: 50}))] == [
        (50, 80)
    ]


def test_a_topic_that_was_made_again_is_read_from_its_own_beginning() -> None:
    start = Positions({T0: 100, T1: 7}, {"t": OLD})
    end = Positions({T0: 9, T1: 12}, {"t": NEW}, starts={T1: 10})
    assert between(start, end) == [RangeOf("t", NEW, 0, 0, 9), RangeOf("t", NEW, 1, 10, 12)]


def test_nothing_lies_between_equal_positions() -> None:
    same = Positions({T0: 80}, {"t": NEW}, Split(4), {T0: 50})
    assert between(same, same) == []


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [(OLD, NEW, True), (OLD, OLD, False), (OLD, None, False), (OLD, bytes(16), False), (None, NEW, False)],
)
def test_without_two_ids_nobody_can_tell_that_a_topic_was_made_again(
    before: bytes | None, now: bytes | None, again: bool
) -> None:
    start = Positions({T0: 0}, {} if before is None else {"t": before})
    assert was_made_again("t", start, now) is again
