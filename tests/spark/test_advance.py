"""How a stream goes on: admission as the connector has it, new and deleted partitions, and what was lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import TopicPartition
from tidelog.spark.advance import (
    GONE_MAX,
    Advance,
    Pace,
    advance,
    beginnings_needed,
    fallen,
    share_out,
    still_available,
)
from tidelog.spark.losses import DataLoss, Loss
from tidelog.spark.plan import Seen
from tidelog.spark.positions import PastPartition, Positions, Split
from tidelog.spark.ranges import between

OLD, NEW, THIRD = b"o" * 16, b"n" * 16, b"t" * 16
T0, T1, T2, U0 = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("t", 2),
    TopicPartition("u", 0),
)
ALL = Pace()

# The limit, from:until of each partition, and what KafkaMicroBatchStream.rateLimit of 4.2.0 makes of them.
AS_THE_CONNECTOR = [
    (10, "0:100 0:1 5:3", "9 1 3"),
    (10, "0:5 0:3", "5 3"),
    (1, "0:9 0:9 0:9", "1 1 1"),
    (100, "0:500 0:300 0:200", "50 30 20"),
    (10, "10:20 4:4", "20 4"),
    (7, "0:3 0:3 0:3", "2 2 2"),
    (2**63 - 1, "5:100", "100"),
    (3, "0:1 0:1000000", "1 2"),
]


@pytest.mark.parametrize(("limit", "spans", "ends"), AS_THE_CONNECTOR)
def test_a_limit_is_shared_out_as_by_the_connector(limit: int, spans: str, ends: str) -> None:
    pairs = [tuple(map(int, span.split(":"))) for span in spans.split()]
    begins = {TopicPartition("t", n): begin for n, (begin, _) in enumerate(pairs)}
    until = {TopicPartition("t", n): end for n, (_, end) in enumerate(pairs)}
    assert list(share_out(limit, begins, until).values()) == [int(end) for end in ends.split()]


def by_the_formula(limit: int, begin: int, end: int, total: int) -> int:
    """`rateLimit`, for one partition."""
    if end <= begin:
        return end
    prorate = limit * (float(end - begin) / float(total))
    return min(end, begin + int(math.ceil(prorate) if prorate < 1 else math.floor(prorate)))


waiting = st.lists(
    st.tuples(st.integers(0, 2**40), st.one_of(st.integers(-5, 50), st.integers(0, 2**40))),
    min_size=1,
    max_size=8,
)


@given(waiting, st.one_of(st.integers(1, 100), st.integers(1, 2**62)))
def test_admission_never_exceeds_and_always_progresses(pairs: list[tuple[int, int]], limit: int) -> None:
    begins = {TopicPartition("t", n): begin for n, (begin, _) in enumerate(pairs)}
    ends = {TopicPartition("t", n): max(0, begin + size) for n, (begin, size) in enumerate(pairs)}
    sizes = {p: end - begins[p] for p, end in ends.items() if end > begins[p]}
    total = sum(sizes.values())
    found = share_out(limit, begins, ends)
    for partition, end in ends.items():
        assert found[partition] == by_the_formula(limit, begins[partition], end, total)
        if partition in sizes:
            assert begins[partition] < found[partition] <= end
        else:
            assert found[partition] == end
    taken = sum(found[partition] - begins[partition] for partition in sizes)
    starving = sum(limit * (size / total) < 1 for size in sizes.values())
    rounding = 1 + limit // 2**50  # of shares that are floating-point numbers
    assert taken <= limit + starving + rounding


@given(waiting, st.integers(1, 2**45))
def test_a_limited_stream_reads_each_offset_once(pairs: list[tuple[int, int]], limit: int) -> None:
    position = Positions({TopicPartition("t", n): begin for n, (begin, _) in enumerate(pairs)})
    ends = {TopicPartition("t", n): begin + abs(size) % 300 for n, (begin, size) in enumerate(pairs)}
    left = {p: end - position.offsets[p] for p, end in ends.items()}
    for _ in range(3):
        step = advance(position, Seen(ends), Pace(limit))
        assert not step.losses
        for each in between(position, step.positions):
            assert each.start == position.offsets[each.topic_partition]
            left[each.topic_partition] -= each.size
        position = step.positions
    last = advance(position, Seen(ends), ALL).positions
    for each in between(position, last):
        left[each.topic_partition] -= each.size
    assert set(left.values()) == {0}
    assert advance(last, Seen(ends), Pace(limit)).positions is last


def test_without_limits_everything_is_taken() -> None:
    step = advance(Positions({T0: 3}), Seen({T0: 9}, {"t": NEW}), ALL, Split(4))
    assert step == Advance(Positions({T0: 9}, {"t": NEW}, Split(4)))


def test_the_group_of_a_query_stays_with_it() -> None:
    assert advance(Positions({T0: 3}, group="g"), Seen({T0: 9}), ALL).positions.group == "g"


def test_nothing_new_leaves_the_text_as_it_was() -> None:
    written_before = Positions({T0: 9}, split=Split(7))
    step = advance(written_before, Seen({T0: 9}, {"t": NEW}), ALL, Split(4))
    assert step.positions is written_before


@pytest.mark.parametrize(
    ("end", "now_ms", "waits"),
    [(14, 1_499, True), (14, 1_500, False), (15, 1_000, False), (5, 1_499, True), (5, 1_500, False)],
)
def test_a_trigger_waits_for_enough_offsets_but_not_for_ever(end: int, now_ms: int, waits: bool) -> None:
    start = Positions({T0: 5})
    pace = Pace(min_offsets=10, max_delay_ms=500)
    step = advance(start, Seen({T0: end}), pace, now_ms=now_ms, last_trigger_ms=1_000)
    assert step.waits is waits
    assert step.positions == (start if waits else Positions({T0: end}))


@pytest.mark.parametrize("now_ms", [0, 1_700_000_000_000])
def test_the_first_trigger_of_a_query_does_not_wait(now_ms: int) -> None:
    assert not advance(Positions({T0: 5}), Seen({T0: 6}), Pace(min_offsets=10), now_ms=now_ms).waits


@pytest.mark.parametrize(("new_end", "waits"), [(9, True), (10, False)])
def test_the_offsets_of_a_new_partition_count_too(new_end: int, waits: bool) -> None:
    seen = Seen({T0: 5, T1: new_end}, beginnings={T1: 0})
    assert advance(Positions({T0: 5}), seen, Pace(min_offsets=10), last_trigger_ms=0).waits is waits


def test_a_trigger_waits_a_quarter_of_an_hour_unless_told_otherwise() -> None:
    for now_ms, waits in ((899_999, True), (900_000, False)):
        step = advance(Positions({T0: 5}), Seen({T0: 6}), Pace(None, 10), now_ms=now_ms, last_trigger_ms=0)
        assert step.waits is waits


def test_a_trigger_that_had_to_wait_is_limited_all_the_same() -> None:
    step = advance(Positions({T0: 0}), Seen({T0: 100}), Pace(10, 5, 500), now_ms=1, last_trigger_ms=0)
    assert step.positions == Positions({T0: 10})


def test_while_a_trigger_waits_no_loss_is_told() -> None:
    step = advance(Positions({T0: 9, T1: 9}), Seen({T0: 9}), Pace(min_offsets=5), last_trigger_ms=0)
    assert step == Advance(Positions({T0: 9, T1: 9}), waits=True)


def test_a_new_partition_is_read_from_its_earliest_offset() -> None:
    start = Positions({T0: 3})
    assert beginnings_needed(start, {}, [T1, T0, U0]) == [T1, U0]
    step = advance(start, Seen({T0: 3, T1: 6}, beginnings={T1: 0}), ALL)
    assert step == Advance(Positions({T0: 3, T1: 6}))
    assert [each[2:] for each in between(start, step.positions)] == [(1, 0, 6)]


def test_a_limit_counts_a_new_partition_from_its_earliest_offset() -> None:
    seen = Seen({T0: 10, T1: 1_010}, beginnings={T1: 1_000})
    step = advance(Positions({T0: 0}), seen, Pace(10))
    assert step.positions == Positions({T0: 5, T1: 1_005}, starts={T1: 1_000})


def test_a_new_partition_that_begins_late_lost_records() -> None:
    start = Positions({T0: 3})
    step = advance(start, Seen({T0: 3, T1: 60}, beginnings={T1: 50}), ALL)
    assert step.losses == (
        DataLoss(Loss.BEGINS_LATE, "t", 1, "t-1 is new and begins at offset 50: records 0 to 49 are gone"),
    )
    assert step.positions.to_json() == '{"": {"from": {"t": {"1": 50}}}, "t": {"0": 3, "1": 60}}'
    assert [each[2:] for each in between(start, step.positions)] == [(1, 50, 60)]


def test_a_new_partition_without_a_beginning_is_left_for_later() -> None:
    step = advance(Positions({T0: 3}), Seen({T0: 4, T1: 60}), ALL)
    assert step.positions == Positions({T0: 4})
    assert step.losses == (
        DataLoss(
            Loss.UNKNOWN_BEGINNING, "t", 1, "t-1 is new and has no earliest offset: it may be gone again"
        ),
    )


def test_a_deleted_partition_is_told_once_and_remembered() -> None:
    start = Positions({T0: 3, T1: 12, U0: 4}, {"t": OLD, "u": NEW})
    step = advance(start, Seen({T0: 3}, {"t": OLD}), ALL)
    gone = {PastPartition(OLD, 1): 12, PastPartition(NEW, 0): 4}
    assert step.positions == Positions({T0: 3}, {"t": OLD}, gone=gone)
    assert advance(step.positions, Seen({T0: 3}, {"t": OLD}), ALL) == Advance(step.positions)
    assert step.losses == (
        DataLoss(Loss.DELETED, "t", 1, "t-1 was deleted; it was read up to offset 12"),
        DataLoss(Loss.DELETED, "u", 0, "u-0 was deleted; it was read up to offset 4"),
    )


def test_a_partition_that_was_only_missing_is_read_on() -> None:
    """A broker that knows little answered for a while."""
    start = Positions({T0: 3, T1: 12}, {"t": OLD})
    without = advance(start, Seen({T0: 5}, {"t": OLD}), ALL).positions
    back = advance(without, Seen({T0: 5, T1: 20}, {"t": OLD}, {T1: 0}), ALL)
    assert back.losses == ()
    assert back.positions == Positions({T0: 5, T1: 20}, {"t": OLD}, starts={T1: 12})
    replayed = Positions.from_json(without.to_json()), Positions.from_json(back.positions.to_json())
    assert [each[2:] for each in between(*replayed)] == [(1, 12, 20)]


def test_a_missing_partition_that_comes_back_shorter_is_not_read_again() -> None:
    without = advance(Positions({T0: 3, T1: 12}, {"t": OLD}), Seen({T0: 3}, {"t": OLD}), ALL).positions
    back = advance(without, Seen({T0: 3, T1: 5}, {"t": OLD}, {T1: 0}), ALL)
    assert [loss.loss for loss in back.losses] == [Loss.FELL_BACK]
    assert between(without, back.positions) == []


def test_a_topic_that_was_missing_and_made_again_is_read_from_its_beginning() -> None:
    start = Positions({T0: 3, U0: 12}, {"t": THIRD, "u": OLD})
    without = advance(start, Seen({T0: 3}, {"t": THIRD}), ALL).positions
    back = advance(without, Seen({T0: 3, U0: 20}, {"t": THIRD, "u": NEW}, {U0: 0}), ALL)
    assert back.losses == (), "its end was told before"
    assert back.positions == Positions(
        {T0: 3, U0: 20}, {"t": THIRD, "u": NEW}, gone={PastPartition(OLD, 0): 12}
    )
    assert [each[:1] + each[2:] for each in between(without, back.positions)] == [("u", 0, 0, 20)]


def test_an_old_topic_that_a_stale_broker_names_again_costs_no_records_of_the_new_one() -> None:
    start = Positions({T0: 12}, {"t": OLD})
    made_again = advance(start, Seen({T0: 5}, {"t": NEW}, {T0: 0}), ALL).positions
    stale = advance(made_again, Seen({T0: 6}, {"t": OLD}, {T0: 0}), ALL).positions
    back = advance(stale, Seen({T0: 9}, {"t": NEW}, {T0: 0}), ALL).positions
    assert [each[1:] for each in between(start, made_again)] == [(NEW, 0, 0, 5)]
    assert between(made_again, stale) == []
    assert [each[1:] for each in between(stale, back)] == [(NEW, 0, 5, 9)]


def test_without_topic_ids_a_partition_that_comes_back_is_new() -> None:
    without = advance(Positions({T0: 3, T1: 12}), Seen({T0: 3}), ALL).positions
    assert without == Positions({T0: 3})
    back = advance(without, Seen({T0: 3, T1: 20}, beginnings={T1: 0}), ALL)
    assert [each[2:] for each in between(without, back.positions)] == [(1, 0, 20)]


def test_only_so_many_missing_partitions_are_remembered() -> None:
    many = {TopicPartition("u", n): 1 for n in range(GONE_MAX + 5)}
    step = advance(Positions(many, {"u": OLD}), Seen({T0: 3}, {"t": OLD}, {T0: 0}), ALL)
    assert len(step.positions.gone) == GONE_MAX


def test_an_end_that_fell_back_is_told_and_read_on_from() -> None:
    start = Positions({T0: 12, T1: 5}, {"t": OLD})
    assert fallen(start.offsets, {T0: 5, T1: 5, T2: 0}) == [T0]
    step = advance(start, Seen({T0: 5, T1: 5}, {"t": OLD}, {T0: 0, T1: 0}), Pace(3))
    assert step.losses == (DataLoss(Loss.FELL_BACK, "t", 0, "t-0 ends at offset 5, but was read up to 12"),)
    assert step.positions.offsets == {T0: 5, T1: 5}
    assert between(start, step.positions) == []
    onwards = advance(step.positions, Seen({T0: 8, T1: 5}, {"t": OLD}), ALL)
    assert [each[2:] for each in between(step.positions, onwards.positions)] == [(0, 5, 8)]


def test_records_that_aged_out_are_told_and_skipped() -> None:
    start = Positions({T0: 12})
    step = advance(start, Seen({T0: 150}, beginnings={T0: 100}), ALL)
    assert step.losses == (
        DataLoss(Loss.AGED_OUT, "t", 0, "t-0 begins at offset 100: records 12 to 99 are gone"),
    )
    assert [each[2:] for each in between(start, step.positions)] == [(0, 100, 150)]


def test_a_limited_batch_of_nothing_but_aged_records_is_empty_and_moves_on() -> None:
    start = Positions({T0: 12})
    step = advance(start, Seen({T0: 150}, beginnings={T0: 100}), Pace(10))
    assert step.positions.offsets == {T0: 22}
    assert between(start, step.positions) == []
    assert advance(step.positions, Seen({T0: 150}, beginnings={T0: 100}), Pace(10)).positions.offsets == {
        T0: 32
    }


def test_a_stream_that_stands_at_the_beginning_lost_nothing() -> None:
    assert advance(Positions({T0: 100}), Seen({T0: 150}, beginnings={T0: 100}), ALL).losses == ()
    assert advance(Positions({T0: 150}), Seen({T0: 150}, beginnings={T0: 150}), ALL).losses == ()


def test_one_record_that_aged_out_is_one_record() -> None:
    step = advance(Positions({T0: 12}), Seen({T0: 20}, beginnings={T0: 13}), ALL)
    assert step.losses[0].words == "t-0 begins at offset 13: record 12 is gone"


def test_a_topic_that_was_made_again_is_told_and_read_from_its_earliest_offset() -> None:
    start = Positions({T0: 12, T1: 7, U0: 1}, {"t": OLD, "u": THIRD})
    assert beginnings_needed(start, {"t": NEW, "u": THIRD}, [T0, U0]) == [T0]
    step = advance(start, Seen({T0: 40, U0: 1}, {"t": NEW, "u": THIRD}, {T0: 2}), ALL)
    assert step.losses == (
        DataLoss(
            Loss.MADE_AGAIN,
            "t",
            None,
            "topic t was deleted and created again: its id was b29vb29vb29vb29vb29vbw and is "
            "bm5ubm5ubm5ubm5ubm5ubg; the old topic's records beyond offsets 12, 7 are lost",
        ),
    )
    gone = {PastPartition(OLD, 0): 12, PastPartition(OLD, 1): 7}
    assert step.positions == Positions({T0: 40, U0: 1}, {"t": NEW, "u": THIRD}, starts={T0: 2}, gone=gone)
    assert [each[1:] for each in between(start, step.positions)] == [(NEW, 0, 2, 40)]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (1, "offset 7 are lost"),
        (10, "offsets 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 are lost"),
        (11, "7, 7, … are lost"),
    ],
)
def test_what_was_read_of_a_topic_that_was_made_again_is_shown_in_part(count: int, shown: str) -> None:
    start = Positions({TopicPartition("t", n): 7 for n in range(count)}, {"t": OLD})
    step = advance(start, Seen({T0: 0}, {"t": NEW}, {T0: 0}), ALL)
    assert [loss.loss for loss in step.losses] == [Loss.MADE_AGAIN]
    assert step.losses[0].words.endswith(shown)


def test_a_topic_that_was_made_again_up_to_the_same_offset_is_not_overlooked() -> None:
    start = Positions({T0: 12}, {"t": OLD})
    step = advance(start, Seen({T0: 12}, {"t": NEW}, {T0: 0}), ALL)
    assert [loss.loss for loss in step.losses] == [Loss.MADE_AGAIN]
    assert [each[1:] for each in between(start, step.positions)] == [(NEW, 0, 0, 12)]


def test_a_limit_counts_a_topic_that_was_made_again_from_its_beginning() -> None:
    step = advance(Positions({T0: 500}, {"t": OLD}), Seen({T0: 40}, {"t": NEW}, {T0: 0}), Pace(10))
    assert step.positions == Positions({T0: 10}, {"t": NEW}, gone={PastPartition(OLD, 0): 500})


def test_a_checkpoint_of_the_jvm_connector_learns_the_ids() -> None:
    step = advance(Positions.from_json('{"t":{"0":3}}'), Seen({T0: 4}, {"t": NEW}), ALL)
    assert step == Advance(Positions({T0: 4}, {"t": NEW}))


def test_an_id_that_nobody_tells_any_more_is_kept() -> None:
    step = advance(Positions({T0: 3}, {"t": OLD}), Seen({T0: 4}), ALL)
    assert step == Advance(Positions({T0: 4}, {"t": OLD}))


offsets = st.integers(0, 40)
states = st.dictionaries(st.sampled_from([T0, T1, T2, U0]), st.tuples(offsets, offsets), max_size=4)
ids = st.fixed_dictionaries({}, optional={"t": st.sampled_from([OLD, NEW]), "u": st.sampled_from([OLD, NEW])})


@given(
    st.dictionaries(st.sampled_from([T0, T1, T2, U0]), offsets, max_size=4),
    ids,
    states,
    ids,
    st.none() | st.integers(1, 50),
)
def test_what_is_not_read_of_what_was_to_be_is_told(
    before: dict[TopicPartition, int],
    before_ids: dict[str, bytes],
    now: dict[TopicPartition, tuple[int, int]],
    now_ids: dict[str, bytes],
    limit: int | None,
) -> None:
    """Whatever happened to the topics: nothing before a beginning is read, no gap comes without a loss."""
    start = Positions(before, before_ids)
    ends = {partition: max(pair) for partition, pair in now.items()}
    seen = Seen(ends, now_ids, {partition: min(pair) for partition, pair in now.items()})
    step = advance(start, seen, Pace(limit))
    told = {TopicPartition(loss.topic, loss.partition) for loss in step.losses if loss.partition is not None}
    again = {loss.topic for loss in step.losses if loss.partition is None}
    read = {each.topic_partition: each for each in between(start, step.positions)}
    for partition, each in read.items():
        assert each.start >= seen.beginnings[partition] and each.end <= ends[partition]
        expected = before.get(partition, 0) if partition.topic not in again else seen.beginnings[partition]
        assert each.start == expected or partition in told
    for partition in before.keys() - ends.keys():
        assert partition in told or partition.topic in again
    for partition, offset in step.positions.offsets.items():
        if partition.topic not in again and partition in before:
            assert offset >= before[partition] or partition in told


def test_what_was_available_and_is_gone_is_a_loss() -> None:
    planned = {T0: 5, T1: 5}
    assert still_available(planned, {T0: 5, T1: 9, U0: 0}) == (planned, [])
    left, losses = still_available(planned | {U0: 1}, {T0: 4, T1: 5})
    assert left == {T0: 4, T1: 5}
    assert [loss.words for loss in losses] == [
        "t-0 ends at offset 4, but ended at 5 when the query began",
        "u-0 was deleted while the query read all that was available",
    ]
