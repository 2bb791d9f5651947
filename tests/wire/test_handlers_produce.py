"""Produce in every version, and an error code of Kafka's for everything that may not be appended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.replication.leading import lead
from tests.wire.batches import (
    BASE_OFFSET,
    COUNT,
    INT16,
    INT32,
    INT64,
    LAST_DELTA,
    MAGIC,
    MAX_TIMESTAMP,
    patched,
)
from tests.wire.harness import FETCH, PRODUCE, START_MS, Harness, batch_of, other_connection
from tests.wire.requests import fetch, fetch_values, produce, produce_values
from tidelog.base.limits import GAPS_EXCUSED_MS
from tidelog.protocol import compression
from tidelog.protocol import produce as codec
from tidelog.protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.records import build_batch, read_records

VERSIONS = pytest.mark.parametrize("version", range(3, 14))
# What is refused is decided behind the codec, which every version has proven above.
SHAPES = pytest.mark.parametrize("version", [3, 8, 9, 13])


@VERSIONS
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_appended_where_the_answer_says(harness: Harness, version: int, acks: int) -> None:
    harness.create_topic("t", partitions=2)
    for base in (0, 3, 6):
        outcome = produce(harness, version, "t", batch_of(3), acks, index=1)
        assert (outcome.error_code, outcome.base_offset, outcome.index) == (0, base, 1)
        assert getattr(outcome, "log_start_offset", 0) == 0
        assert getattr(outcome, "record_errors", ()) == ()
    assert harness.check_logs() == {"t-0": 0, "t-1": 9}


@VERSIONS
def test_acks_0_gets_no_answer(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    harness.send(PRODUCE, version, **produce_values(harness, version, {"t": [(0, batch_of())]}, acks=0))
    assert harness.answers() == []
    assert harness.partition("t").log.end_offset == 1
    with pytest.raises(MalformedRequest):
        harness.send(PRODUCE, version, **produce_values(harness, version, {"x": [(0, batch_of())]}, acks=0))


@VERSIONS
def test_each_partition_has_an_outcome_of_its_own(harness: Harness, version: int) -> None:
    harness.create_topic("a", partitions=2)
    harness.create_topic("b")
    bad = batch_of()
    bad[-1] ^= 1
    wanted: dict[str, Any] = {
        "a": [(0, batch_of(2)), (1, bad), (2, batch_of()), (-1, batch_of()), (2**31 - 1, batch_of())],
        "absent": [(0, batch_of())],
        "b": [(0, batch_of(4))],
    }
    answer = harness.ask(PRODUCE, version, **produce_values(harness, version, wanted))
    missing = ErrorCode.unknown_topic_or_partition if version < 13 else ErrorCode.unknown_topic_id
    found = [[(p.index, p.error_code) for p in topic.partition_responses] for topic in answer.responses]
    assert found[0][:2] == [(0, ErrorCode.none), (1, ErrorCode.corrupt_message)]
    assert found[0][2:] == [(i, ErrorCode.unknown_topic_or_partition) for i in (2, -1, 2**31 - 1)]
    assert found[1:] == [[(0, missing)], [(0, ErrorCode.none)]]
    assert harness.check_logs() == {"a-0": 2, "a-1": 0, "b-0": 4}


FAR_AHEAD = START_MS + 3_600_001

REFUSED: dict[str, tuple[Any, ErrorCode]] = {
    "wrong checksum": (patched(batch_of(), CRC_POSITION, INT32, 7, False), ErrorCode.corrupt_message),
    "magic 1": (patched(batch_of(), MAGIC - 1, INT16, 1, False), ErrorCode.invalid_record),
    "magic 0": (patched(batch_of(), MAGIC - 1, INT16, 0, False), ErrorCode.invalid_record),
    "two batches": (batch_of() + batch_of(), ErrorCode.invalid_record),
    "no records, by count": (patched(batch_of(), COUNT, INT32, 0), ErrorCode.invalid_record),
    "negative count": (patched(batch_of(), COUNT, INT32, -1), ErrorCode.invalid_record),
    "count above the delta": (patched(batch_of(), COUNT, INT32, 5), ErrorCode.invalid_record),
    "delta above the count": (patched(batch_of(), LAST_DELTA, INT32, 5), ErrorCode.invalid_record),
    "negative delta": (patched(batch_of(), LAST_DELTA, INT32, -1), ErrorCode.invalid_record),
    "base offset": (patched(batch_of(), BASE_OFFSET, INT64, 7), ErrorCode.invalid_record),
    "control batch": (batch_of(control=True), ErrorCode.invalid_record),
    "codec 5": (patched(batch_of(), ATTRIBUTES_POSITION, INT16, 5), ErrorCode.invalid_record),
    "unknown attribute": (patched(batch_of(), ATTRIBUTES_POSITION, INT16, 0x80), ErrorCode.invalid_record),
    "transactional": (
        batch_of(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.transactional_id_authorization_failed,
    ),
    "producer without sequence": (batch_of(producer_id=1, producer_epoch=0), ErrorCode.invalid_record),
    "producer without epoch": (batch_of(producer_id=1, base_sequence=0), ErrorCode.invalid_record),
    "null": (None, ErrorCode.invalid_record),
    "too large": (batch_of(value=bytes(2**20)), ErrorCode.message_too_large),
    "far ahead": (patched(batch_of(), MAX_TIMESTAMP, INT64, FAR_AHEAD), ErrorCode.invalid_timestamp),
}


@SHAPES
@pytest.mark.parametrize("what", REFUSED)
def test_a_batch_that_may_not_go_in_is_refused(harness: Harness, version: int, what: str) -> None:
    batch, error = REFUSED[what]
    harness.create_topic("t")
    outcome = produce(harness, version, "t", batch)
    assert (outcome.error_code, outcome.base_offset) == (error, -1)
    assert harness.check_logs() == {"t-0": 0}
    assert produce(harness, version, "t", batch_of()).base_offset == 0


@pytest.mark.parametrize("size", range(0, 75, 3))
def test_a_batch_that_is_cut_off_is_refused(harness: Harness, size: int) -> None:
    harness.create_topic("t")
    outcome = produce(harness, 9, "t", batch_of()[:size])
    assert outcome.error_code in (ErrorCode.corrupt_message, ErrorCode.invalid_record)
    assert harness.check_logs() == {"t-0": 0}


@VERSIONS
def test_zstd_is_taken_from_version_7_on(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    for older in (compression.GZIP, compression.SNAPPY, compression.LZ4):
        assert produce(harness, version, "t", batch_of(codec=older)).error_code == 0
    expected = ErrorCode.unsupported_compression_type if version < 7 else ErrorCode.none
    assert produce(harness, version, "t", batch_of(codec=compression.ZSTD)).error_code == expected


@SHAPES
@pytest.mark.parametrize("acks", [2, -2, 2**15 - 1])
def test_acks_that_are_none_are_refused(harness: Harness, version: int, acks: int) -> None:
    harness.create_topic("t")
    outcome = produce(harness, version, "t", batch_of(), acks)
    assert outcome.error_code == ErrorCode.invalid_required_acks
    assert harness.check_logs() == {"t-0": 0}


@VERSIONS
def test_too_few_replicas_stop_acks_all_alone(harness: Harness, version: int) -> None:
    harness.create_topic("t", min_insync_replicas="2")
    lead_alone(harness, replicas=[1, 2])
    assert produce(harness, version, "t", batch_of(), -1).error_code == ErrorCode.not_enough_replicas
    assert produce(harness, version, "t", batch_of(), 1).error_code == 0
    assert harness.partition("t").high_watermark == 0  # one replica is not enough to commit it


@VERSIONS
def test_no_more_replicas_are_needed_than_the_partition_has(harness: Harness, version: int) -> None:
    harness.create_topic("t", min_insync_replicas="3")
    assert produce(harness, version, "t", batch_of(), -1).error_code == 0
    assert harness.partition("t").high_watermark == 1
    lead_alone(harness, replicas=[1, 2])
    assert produce(harness, version, "t", batch_of(), -1).error_code == ErrorCode.not_enough_replicas


def lead_alone(harness: Harness, replicas: list[int]) -> None:
    """Broker 1 leads, the only one in sync of those replicas."""
    broker, partition = harness.broker, harness.partition("t")
    assert partition.facts is not None
    partition.become_leader(1, broker.image, replace(partition.facts, replicas=replicas, leader_epoch=1), 0)


@VERSIONS
def test_a_producer_that_repeats_itself_is_answered_as_before(harness: Harness, version: int) -> None:
    harness.create_topic("t")

    def numbered(sequence: int, epoch: int = 0) -> bytearray:
        return batch_of(2, producer_id=9, producer_epoch=epoch, base_sequence=sequence)

    assert [produce(harness, version, "t", numbered(s)).base_offset for s in (0, 2, 4, 2, 0)] == [
        0,
        2,
        4,
        2,
        0,
    ]
    gap = produce(harness, version, "t", numbered(8))
    assert gap.error_code == ErrorCode.out_of_order_sequence_number
    assert produce(harness, version, "t", numbered(0, epoch=1)).base_offset == 6
    old = produce(harness, version, "t", numbered(6))
    assert old.error_code == ErrorCode.invalid_producer_epoch
    assert harness.check_logs() == {"t-0": 8}


@SHAPES
def test_what_is_behind_a_refused_batch_is_refused_as_that_was(harness: Harness, version: int) -> None:
    harness.create_topic("t", partitions=2)

    def numbered(sequence: int, producer_id: int = 9) -> bytearray:
        return batch_of(2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    for producer_id in (9, 10):
        for index in (0, 1):
            assert produce(harness, version, "t", numbered(0, producer_id), index=index).error_code == 0
    partition = harness.partition("t")
    partition.error_code = not_leader = ErrorCode.not_leader_or_follower
    assert produce(harness, version, "t", numbered(2)).error_code == not_leader
    partition.error_code = 0  # it leads now
    for sequence in (4, 6):
        assert produce(harness, version, "t", numbered(sequence)).error_code == not_leader
    # Nobody else is excused: not on another partition, nor another producer, nor on another connection.
    out_of_order = ErrorCode.out_of_order_sequence_number
    assert produce(harness, version, "t", numbered(4), index=1).error_code == out_of_order
    assert produce(harness, version, "t", numbered(4, 10)).error_code == out_of_order
    with other_connection(harness):
        assert produce(harness, version, "t", numbered(4)).error_code == out_of_order
    for sequence in (2, 4, 6):
        assert produce(harness, version, "t", numbered(sequence)).error_code == 0
    assert produce(harness, version, "t", numbered(10)).error_code == out_of_order, "that is a gap"
    assert harness.check_logs() == {"t-0": 10, "t-1": 4}


def test_a_producer_that_is_new_begins_with_the_batch_that_was_refused(harness: Harness) -> None:
    harness.create_topic("t")

    def send(sequence: int) -> ErrorCode:
        batch = batch_of(1, producer_id=9, producer_epoch=0, base_sequence=sequence)
        return ErrorCode(produce(harness, 9, "t", batch).error_code)

    harness.partition("t").error_code = ErrorCode.not_leader_or_follower
    assert send(0) is ErrorCode.not_leader_or_follower
    harness.partition("t").error_code = 0
    assert [send(1), send(2)] == [ErrorCode.not_leader_or_follower] * 2
    assert [send(0), send(1), send(2)] == [ErrorCode.none] * 3


def test_who_never_sends_a_refused_batch_again_is_told_of_the_gap_after_a_while(harness: Harness) -> None:
    harness.create_topic("t")

    def send(sequence: int) -> ErrorCode:
        batch = batch_of(1, producer_id=9, producer_epoch=0, base_sequence=sequence)
        return ErrorCode(produce(harness, 9, "t", batch).error_code)

    assert send(0) is ErrorCode.none
    harness.partition("t").error_code = ErrorCode.not_leader_or_follower
    assert send(1) is ErrorCode.not_leader_or_follower
    harness.partition("t").error_code = 0
    assert send(2) is ErrorCode.not_leader_or_follower
    harness.advance(GAPS_EXCUSED_MS + 1)
    assert send(2) is ErrorCode.out_of_order_sequence_number
    assert harness.client.refusals is None, "nobody looks for them any more"


def test_a_gap_in_front_of_a_new_leader_may_be_filled_yet(harness: Harness) -> None:
    harness.create_topic("t")

    def send(sequence: int) -> ErrorCode:
        batch = batch_of(1, producer_id=9, producer_epoch=0, base_sequence=sequence)
        return ErrorCode(produce(harness, 9, "t", batch, 1).error_code)

    assert [send(0), send(1)] == [ErrorCode.none] * 2
    lead(harness.partition("t"), 1, (1, 2))
    assert send(3) is ErrorCode.not_leader_or_follower
    assert [send(2), send(3)] == [ErrorCode.none] * 2
    harness.advance(GAPS_EXCUSED_MS + 1)
    assert send(5) is ErrorCode.out_of_order_sequence_number


def test_the_answer_waits_for_the_fsync_that_is_asked_for(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="1")
    harness.holds_flushes = True
    harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of())]}))
    assert harness.answers() == []
    with other_connection(harness):
        assert fetch(harness, 12, "t", 0).high_watermark == 0
    harness.release_flushes()
    assert len(harness.answers()) == 1
    assert fetch(harness, 12, "t", 0).high_watermark == 1


def test_an_fsync_that_takes_too_long_is_told(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="1")
    harness.holds_flushes = True
    harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of())]}))
    harness.advance(30_000)
    outcome = harness.answer(PRODUCE, 9).responses[0].partition_responses[0]
    assert (outcome.error_code, outcome.base_offset) == (ErrorCode.request_timed_out, -1)


def test_log_append_time_is_the_broker_s(harness: Harness) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    outcome = produce(harness, 9, "t", batch_of(2, timestamp=5))
    assert int(outcome.log_append_time.timestamp() * 1_000) == START_MS
    fetched = fetch(harness, 12, "t", 0)
    assert [record.timestamp for record in read_records(fetched.records)] == [START_MS, START_MS]


def test_a_produce_wakes_the_fetch_before_it_in_its_turn(harness: Harness) -> None:
    """Both on one connection: the produce is answered behind the fetch that it woke."""
    harness.create_topic("t")
    harness.send(FETCH, 12, **fetch_values(harness, 12, {"t": [(0, 0)]}, max_wait_ms=60_000))
    harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of())]}))
    first, second = harness.answers()
    assert int.from_bytes(first[4:8], "big") + 1 == int.from_bytes(second[4:8], "big")
    assert b"value" in first


def test_names_that_nobody_has_are_not_remembered(harness: Harness) -> None:
    before = sum(map(len, codec._frames))
    for number in range(100):
        produce(harness, 9, f"made-up-{number}", batch_of())
    assert sum(map(len, codec._frames)) == before


@pytest.mark.parametrize("version", [8, 9, 13])
def test_records_that_are_refused_are_told_one_by_one(harness: Harness, version: int) -> None:
    harness.create_topic("t", cleanup_policy="compact")
    keys = (b"key", None, b"key", None)
    batch = build_batch([(key, b"value", (), START_MS) for key in keys])
    outcome = produce(harness, version, "t", batch)
    assert outcome.error_code == ErrorCode.invalid_record
    assert [row.batch_index for row in outcome.record_errors] == [1, 3]
    assert all(row.batch_index_error_message for row in outcome.record_errors)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_records_too_far_from_the_clock_are_told_one_by_one(harness: Harness, version: int) -> None:
    harness.create_topic("t", message_timestamp_before_max_ms="1000")
    times = (START_MS - 5_000, START_MS, START_MS - 1_001)
    batch = build_batch([(b"key", b"value", (), time) for time in times])
    outcome = produce(harness, version, "t", batch)
    assert outcome.error_code == ErrorCode.invalid_timestamp
    assert [row.batch_index for row in outcome.record_errors] == [0, 2]


@VERSIONS
def test_a_batch_whose_transactional_id_nobody_has_is_refused_for_good(
    harness: Harness, version: int
) -> None:
    harness.create_topic("t")
    batch = batch_of(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    values = produce_values(harness, version, {"t": [(0, batch)]}, transactional_id="mine")

    def told() -> int:
        code: int = harness.ask(PRODUCE, version, **values).responses[0].partition_responses[0].error_code
        return code

    assert told() == ErrorCode.not_enough_replicas  # nobody keeps ids yet
    assert told() == ErrorCode.invalid_producer_id_mapping
    assert harness.check_logs()["t-0"] == 0
