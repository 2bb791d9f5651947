"""Which partitions a query reads, where it starts and ends, and what a batch cannot read."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.losses import DataLoss, DataLossError, Loss
from tidelog.spark.option_forms import (
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Limit,
    Selection,
    Subscribe,
    SubscribePattern,
)
from tidelog.spark.plan import (
    BatchPlan,
    Bound,
    ByTime,
    PlanError,
    Seen,
    Selected,
    Side,
    missing_topics,
    plan_batch,
    resolve,
    select,
    time_lookups,
    topics_to_ask,
)
from tidelog.spark.ranges import RangeOf

T0, T1, T2, U0 = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("t", 2),
    TopicPartition("u", 0),
)
BOTH = (T0, T1)
SEEN = Seen({T0: 100, T1: 50}, {"t": b"i" * 16}, {T0: 10, T1: 0})
TOPICS = {"u": [0], "t": [1, 0], "a.t": [0], "__consumer_offsets": [0, 1]}


@pytest.mark.parametrize(
    ("selection", "asked", "partitions"),
    [
        (Assign((T0, T2, U0)), ("t", "u"), (T0, U0)),
        (Subscribe(("u", "t")), ("u", "t"), (T0, T1, U0)),
        (Subscribe(("__consumer_offsets",)), ("__consumer_offsets",), ()),
        (SubscribePattern("t"), None, (TopicPartition("a.t", 0), T0, T1)),
        (SubscribePattern("^t|u$"), None, (T0, T1, U0)),
        (SubscribePattern("."), None, (TopicPartition("a.t", 0), T0, T1, U0)),
    ],
)
def test_a_selection_finds_its_partitions(
    selection: Selection, asked: tuple[str, ...] | None, partitions: tuple[TopicPartition, ...]
) -> None:
    assert topics_to_ask(selection) == asked
    assert select(selection, TOPICS) == (partitions, ())


def test_topics_that_were_named_and_are_not_there_are_told() -> None:
    selected = select(Subscribe(("x", "t", "y")), TOPICS)
    assert selected == Selected(BOTH, ("x", "y"))
    assert str(missing_topics(selected)) == "missing topics: x, y; create them, or read others"
    assert select(SubscribePattern("x"), TOPICS) == ((), ())


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize(
    ("limit", "by_time", "offsets"),
    [
        (Edge.EARLIEST, {}, {T0: 10, T1: 0}),
        (Edge.LATEST, {}, {T0: 100, T1: 50}),
        (AtOffsets({T0: 7, T1: 70}), {}, {T0: 7, T1: 70}),
        (AtOffsets({T0: -2, T1: -1}), {}, {T0: 10, T1: 50}),
        (AtTimestamp(5), {T0: 12, T1: 34}, {T0: 12, T1: 34}),
        (AtTimestamps({T0: 5, T1: 6}), {T0: 12, T1: 34}, {T0: 12, T1: 34}),
    ],
)
def test_a_limit_becomes_offsets(
    side: Side, limit: Limit, by_time: ByTime, offsets: dict[TopicPartition, int]
) -> None:
    assert resolve(limit, side, BOTH, SEEN, by_time) == offsets
    assert time_lookups(limit, BOTH).keys() == by_time.keys()


def test_each_partition_is_looked_up_at_its_own_time() -> None:
    assert time_lookups(AtTimestamp(5), BOTH) == {T0: 5, T1: 5}
    assert time_lookups(AtTimestamps({T0: 5, T1: 6}), BOTH) == {T0: 5, T1: 6}


@pytest.mark.parametrize("limit", [AtTimestamp(5), AtTimestamps({T0: 9, T1: 5})])
def test_a_start_without_a_record_of_the_time_is_an_error_or_the_end(limit: Limit) -> None:
    with pytest.raises(PlanError) as refused:
        resolve(limit, Side.START, BOTH, SEEN, {T0: 12, T1: None})
    assert str(refused.value) == (
        "no record of t-1 has the timestamp 5 or a later one; to start at its end, "
        "set startingOffsetsByTimestampStrategy to latest"
    )
    assert resolve(limit, Side.START, BOTH, SEEN, {T0: 12, T1: None}, "latest") == {T0: 12, T1: 50}


def test_an_end_without_a_record_of_the_time_is_the_latest() -> None:
    assert resolve(AtTimestamp(5), Side.END, BOTH, SEEN, {T0: 12, T1: None}) == {T0: 12, T1: 50}


@pytest.mark.parametrize(
    ("limit", "side", "words"),
    [
        (
            AtOffsets({T0: 1}),
            Side.START,
            "startingOffsets: expected each partition that is read, with -1 for latest and -2 for earliest, "
            "but t-1 is read but not named",
        ),
        (
            AtOffsets({T0: 1, T1: 1, T2: 1, U0: 1}),
            Side.END,
            "endingOffsets: expected each partition that is read, with -1 for latest and -2 for earliest, "
            "but t-2, u-0 is not read",
        ),
        (
            AtTimestamps({T0: 1, U0: 1}),
            Side.START,
            "startingOffsetsByTimestamp: expected each partition that is read, "
            "but u-0 is not read and t-1 is read but not named",
        ),
    ],
)
def test_a_list_of_partitions_must_be_that_of_those_that_are_read(
    limit: Limit, side: Side, words: str
) -> None:
    with pytest.raises(PlanError) as refused:
        resolve(limit, side, BOTH, SEEN, {})
    assert str(refused.value) == words


def planned(starting: Limit, ending: Limit, start_times: ByTime = {}, end_times: ByTime = {}) -> BatchPlan:  # noqa: B006
    starts = resolve(starting, Side.START, BOTH, SEEN, start_times, "latest")
    ends = resolve(ending, Side.END, BOTH, SEEN, end_times)
    return plan_batch(Bound(starting, starts), Bound(ending, ends), SEEN)


def spans(plan: BatchPlan) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in plan.ranges]


def test_a_batch_reads_all_that_is_there() -> None:
    plan = planned(Edge.EARLIEST, Edge.LATEST)
    assert plan == (
        [RangeOf("t", b"i" * 16, 0, 10, 100), RangeOf("t", b"i" * 16, 1, 0, 50)],
        (),
    )


def test_a_batch_that_starts_before_the_beginning_lost_records() -> None:
    plan = planned(AtOffsets({T0: 4, T1: 0}), Edge.LATEST)
    assert plan.losses == (
        DataLoss(Loss.AGED_OUT, "t", 0, "t-0 begins at offset 10: records 4 to 9 are gone"),
    )
    assert spans(plan) == [(10, 100), (0, 50)]


def test_a_batch_that_ends_behind_the_end_wants_records_that_are_not_there() -> None:
    plan = planned(Edge.EARLIEST, AtOffsets({T0: 101, T1: 60}))
    assert [loss.words for loss in plan.losses] == [
        "t-0 ends at offset 100: record 100 is not there",
        "t-1 ends at offset 50: records 50 to 59 are not there",
    ]
    assert {loss.loss for loss in plan.losses} == {Loss.NOT_THERE}
    assert spans(plan) == [(10, 100), (0, 50)]


def test_a_range_of_which_nothing_is_left_is_empty_and_lost() -> None:
    plan = planned(AtOffsets({T0: 1, T1: 70}), AtOffsets({T0: 3, T1: 80}))
    assert [loss.words for loss in plan.losses] == [
        "t-0 begins at offset 10: records 1 to 2 are gone",
        "t-1 ends at offset 50: records 70 to 79 are not there",
    ]
    assert all(each.size == 0 for each in plan.ranges)


@pytest.mark.parametrize(
    ("starting", "ending", "start_times", "end_times"),
    [
        (AtOffsets({T0: 60, T1: 0}), AtTimestamp(5), {}, {T0: 59, T1: 1}),
        (AtTimestamp(5), AtOffsets({T0: 59, T1: -1}), {T0: 60, T1: 0}, {}),
        (AtTimestamp(5), AtTimestamp(4), {T0: 60, T1: 0}, {T0: 59, T1: 1}),
    ],
)
def test_a_batch_that_would_run_backwards_is_refused(
    starting: Limit, ending: Limit, start_times: ByTime, end_times: ByTime
) -> None:
    with pytest.raises(PlanError, match="t-0 would start at offset 60 and end at 59: check the starting"):
        planned(starting, ending, start_times, end_times)


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (AtOffsets({T0: 500, T1: 500}), Edge.LATEST),
        (AtOffsets({T0: 500, T1: 500}), AtOffsets({T0: -1, T1: -1})),
        (Edge.EARLIEST, AtOffsets({T0: 3, T1: 0})),
    ],
)
def test_a_start_behind_an_edge_gives_no_rows_and_no_error(starting: Limit, ending: Limit) -> None:
    plan = planned(starting, ending)
    assert plan.losses == ()
    assert all(each.size == 0 for each in plan.ranges)


@given(st.integers(0, 200), st.integers(0, 200))
def test_what_is_read_and_what_is_lost_are_all_that_was_asked_for(start: int, end: int) -> None:
    asked = set(range(start, end))
    starts, ends = {T0: start}, {T0: end}
    bounds = Bound(AtOffsets(starts), starts), Bound(AtOffsets(ends), ends)
    if start > end:
        with pytest.raises(PlanError):
            plan_batch(*bounds, SEEN)
        return
    plan = plan_batch(*bounds, SEEN)
    read = {offset for each in plan.ranges for offset in range(each.start, each.end)}
    assert read == asked & set(range(10, 100))
    assert bool(plan.losses) == (read != asked)


def test_a_loss_says_how_to_go_on_and_survives_pickling() -> None:
    losses = planned(AtOffsets({T0: 4, T1: 0}), Edge.LATEST).losses
    error = DataLossError(losses)
    assert str(error) == (
        "t-0 begins at offset 10: records 4 to 9 are gone. "
        "To read the remaining records, set failOnDataLoss to false."
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.losses) == (str(error), losses)


def test_many_losses_do_not_make_an_endless_message() -> None:
    many = [DataLoss(Loss.DELETED, "t", n, f"t-{n} is gone") for n in range(1000)]
    assert "t-9 is gone; and 990 more. To read" in str(DataLossError(many))
