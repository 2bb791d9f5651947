"""DeleteRecords in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import FETCH, Harness, batch_of, other_connection, parts, seconds
from tests.wire.requests import fetch, fetch_values, produce

CREATE_PARTITIONS, DELETE_RECORDS, ELECT_LEADERS = 37, 21, 43


def trim(harness: Harness, version: int, topic: str, offsets: dict[int, int]) -> list[tuple[Any, int]]:
    part = parts(DELETE_RECORDS, version)
    wanted = tuple(
        part.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets.items()
    )
    asked = (part.DeleteRecordsTopic(name=topic, partitions=wanted),)
    answer = harness.ask(DELETE_RECORDS, version, topics=asked, timeout=seconds(5))
    (found,) = answer.topics
    assert found.name == topic
    return [(result.error_code, result.low_watermark) for result in found.partitions]


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_for_readers_and_stay_so(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    for _ in range(5):
        produce(harness, 9, "t", batch_of(2))
    assert trim(harness, version, "t", {0: 5}) == [(0, 5)]
    assert trim(harness, version, "t", {0: 3}) == [(0, 5)]
    assert fetch(harness, 12, "t", 4).error_code == ErrorCode.offset_out_of_range
    assert fetch(harness, 12, "t", 5).error_code == 0
    harness.advance(100)
    harness.advance(1_100)
    harness.start()
    assert harness.partition("t").log.start_offset == 5
    assert trim(harness, version, "t", {0: -1}) == [(0, 10)]


@pytest.mark.parametrize(
    ("topic", "index", "offset", "error"),
    [
        ("t", 0, 3, ErrorCode.offset_out_of_range),
        ("t", 0, -2, ErrorCode.offset_out_of_range),
        ("t", 7, 0, ErrorCode.unknown_topic_or_partition),
        ("t", -1, 0, ErrorCode.unknown_topic_or_partition),
        ("none", 0, 0, ErrorCode.unknown_topic_or_partition),
        ("", 0, 0, ErrorCode.unknown_topic_or_partition),
        ("__consumer_offsets", 0, 0, ErrorCode.invalid_topic_exception),
        ("compacted", 0, 0, ErrorCode.policy_violation),
    ],
)
def test_what_cannot_be_deleted(
    harness: Harness, topic: str, index: int, offset: int, error: ErrorCode
) -> None:
    harness.create_topic("t")
    harness.create_topic("compacted", cleanup_policy="compact")
    produce(harness, 9, "t", batch_of(2))
    assert trim(harness, 2, topic, {index: offset}) == [(error, -1)]
    assert harness.partition("t").log.start_offset == 0


def test_a_reader_that_waits_below_the_new_start_is_told(harness: Harness) -> None:
    harness.create_topic("t")
    produce(harness, 9, "t", batch_of(2))
    values = fetch_values(harness, 12, {"t": [(0, 1)]}, min_bytes=1_000_000, max_wait_ms=60_000)
    harness.send(FETCH, 12, **values)
    assert harness.answers() == []
    asked = harness._correlation_id
    with other_connection(harness):
        assert trim(harness, 2, "t", {0: 2}) == [(0, 2)]
    harness._correlation_id = asked
    answer = harness.answer(FETCH, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.offset_out_of_range
