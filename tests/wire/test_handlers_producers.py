"""DescribeProducers, as Kafka answers it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    DESCRIBE_PRODUCERS,
    START_MS,
    Harness,
    batch_of,
    parts,
)
from tests.wire.requests import produce
from tidelog.handlers import producers
from tidelog.log.markers import End
from tidelog.protocol.records import Marker


@pytest.fixture
def topics(harness: Harness) -> Harness:
    for name, count in (("b", 2), ("a", 3), ("c", 1)):
        harness.create_topic(name, partitions=count)
    return harness


def producers_of(harness: Harness, *asks: tuple[str, tuple[int, ...]]) -> list[Any]:
    part = parts(DESCRIBE_PRODUCERS, 0)
    topics = tuple(part.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in asks)
    answer = harness.ask(DESCRIBE_PRODUCERS, 0, topics=topics)
    assert [topic.name for topic in answer.topics] == [name for name, _ in asks]
    return [partition for topic in answer.topics for partition in topic.partitions]


def test_a_producer_is_told_with_its_last_sequence_and_time(topics: Harness) -> None:
    batch = batch_of(3, producer_id=7, producer_epoch=2, base_sequence=0)
    assert produce(topics, 9, "a", batch).error_code == 0
    first, second = producers_of(topics, ("a", (0, 1)))
    assert (first.partition_index, first.error_code, first.error_message) == (0, 0, None)
    (state,) = first.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 2, 2)
    assert state.last_timestamp == START_MS + 2
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
    assert (second.error_code, second.active_producers) == (0, ())


def test_an_open_transaction_is_told_until_it_ends(topics: Harness) -> None:
    def states() -> Any:
        (partition,) = producers_of(topics, ("a", (0,)))
        return [
            (s.producer_id, s.coordinator_epoch, s.current_txn_start_offset)
            for s in partition.active_producers
        ]

    partition = topics.partition("a")
    batch_fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    assert produce(topics, 9, "a", batch_of(2)).error_code == 0
    for sequence in (0, 1):
        batch = memoryview(batch_of(1, base_sequence=sequence, **batch_fields))
        partition.append(batch, 0, len(batch), START_MS)
    assert states() == [(7, -1, 2)]
    partition.append_markers([End(7, 0, Marker.COMMIT, 4)], START_MS)
    assert states() == [(7, 4, -1)]


@pytest.mark.parametrize(
    ("name", "index", "error", "message"),
    [
        (
            "absent",
            0,
            ErrorCode.unknown_topic_or_partition,
            "This server does not host this topic-partition.",
        ),
        ("a", 3, ErrorCode.unknown_topic_or_partition, None),
        ("a", -1, ErrorCode.unknown_topic_or_partition, None),
        (
            "",
            0,
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            "bad name",
            0,
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
    ],
)
def test_a_partition_that_is_not_there_has_no_producers(
    topics: Harness, name: str, index: int, error: ErrorCode, message: str | None
) -> None:
    bad, good = producers_of(topics, (name, (index,)), ("a", (0,)))
    assert (bad.partition_index, bad.error_code, bad.error_message) == (index, error, message)
    assert bad.active_producers == () and good.error_code == 0


def test_a_long_name_is_quoted_in_part_and_not_for_every_partition(
    topics: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "DESCRIBED_PROBLEMS_MAX", 3)
    partitions = producers_of(topics, ("x" * 500_000, (0, 1)), ("y" * 250, (0, 1)), ("a", (0,)))
    assert [partition.error_code for partition in partitions] == [ErrorCode.invalid_topic_exception] * 4 + [0]
    told = [partition.error_message for partition in partitions]
    long = f"Topic name is invalid: the length of '{'x' * 249}…' is longer than 249"
    assert told == [long, long, long.replace("x", "y"), None, None]


def test_an_offline_partition_tells_so(topics: Harness) -> None:
    topics.partition("a").become_offline()
    (partition,) = producers_of(topics, ("a", (0,)))
    assert partition.error_code == ErrorCode.kafka_storage_error


def test_an_answer_has_a_bounded_number_of_producers(
    topics: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "DESCRIBED_PRODUCERS_MAX", 5)
    for producer_id in range(3):
        batch = batch_of(1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert produce(topics, 9, "a", batch).error_code == 0
    first, second = producers_of(topics, ("a", (0, 0)))
    assert (first.error_code, len(first.active_producers)) == (0, 3)
    assert (second.error_code, second.active_producers) == (ErrorCode.policy_violation, ())
