"""DescribeCluster, DescribeTopicPartitions and DescribeProducers, as Kafka answers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    START_MS,
    Harness,
    batch_of,
    parts,
)
from tests.wire.requests import produce
from tidelog.handlers import describe
from tidelog.protocol.records import Marker, build_control_batch

NO_OPERATIONS = -(2**31)


def cluster(harness: Harness, version: int, endpoint_type: int = 1, operations: bool = False) -> Any:
    return harness.ask(
        DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_its_brokers_and_its_controller_are_told(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path, broker_rack="east")
    answer = cluster(harness, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (harness.broker.image.cluster_id, 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "127.0.0.1", 9092, "east")
    assert version < 2 or not broker.is_fenced
    assert version < 1 or answer.endpoint_type == 1
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    assert cluster(harness, version, operations=True).cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (0, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 0"),
        (-1, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type -1"),
    ],
)
def test_other_endpoints_than_brokers_and_controllers_are_not_told(
    harness: Harness, version: int, endpoint_type: int, error: ErrorCode, message: str
) -> None:
    answer = cluster(harness, version, endpoint_type, operations=True)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (error, message, 1)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())
    assert answer.cluster_authorized_operations == NO_OPERATIONS


@pytest.fixture
def topics(harness: Harness) -> Harness:
    for name, count in (("b", 2), ("a", 3), ("c", 1)):
        harness.create_topic(name, partitions=count)
    return harness


Place = tuple[str, int] | None


def ask_partitions(harness: Harness, names: list[str], limit: int = 2_000, cursor: Place = None) -> Any:
    part = parts(DESCRIBE_TOPIC_PARTITIONS, 0)
    return harness.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=tuple(part.TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor and part.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def described(answer: Any) -> tuple[list[tuple[str, list[int]]], Place]:
    topics = [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
    cursor = answer.next_cursor
    return topics, cursor and (cursor.topic_name, cursor.partition_index)


def test_a_partition_is_told_with_its_replicas(topics: Harness) -> None:
    answer = ask_partitions(topics, ["b"])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "b", False)
    assert topic.topic_id == UUID(bytes=topics.broker.image.topics["b"].topic_id)
    assert topic.topic_authorized_operations == 3576
    partition = topic.partitions[1]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((1,), (1,), ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_a_partition_that_is_offline_has_no_leader(topics: Harness) -> None:
    topics.partition("c").become_offline()
    (topic,) = ask_partitions(topics, ["c"]).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (0, -1)
    assert partition.offline_replicas == (1,)


def test_a_partition_that_is_yet_to_be_opened_has_no_leader(topics: Harness) -> None:
    opened = topics.broker.partitions.of("b")
    assert opened is not None
    del opened[1:]
    (topic,) = ask_partitions(topics, ["b"]).topics
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [(0, 1), (0, -1)]


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        ([], 2_000, None, ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None)),
        (["b", "a", "b"], 2_000, None, ([("a", [0, 1, 2]), ("b", [0, 1])], None)),
        (["a", "b"], 2, None, ([("a", [0, 1])], ("a", 2))),
        (["a", "b"], 3, None, ([("a", [0, 1, 2])], ("b", 0))),
        (["a"], 3, None, ([("a", [0, 1, 2])], None)),
        (["a", "b"], 0, None, ([("a", [0])], ("a", 1))),
        (["a", "b"], -5, None, ([("a", [0])], ("a", 1))),
        (["a", "b"], 2, ("a", 2), ([("a", [2]), ("b", [0])], ("b", 1))),
        (["a", "b"], 2, ("a", 7), ([("a", []), ("b", [0, 1])], None)),
        (["a", "b", "zz"], 5, None, ([("a", [0, 1, 2]), ("b", [0, 1])], ("zz", 0))),
        ([], 2, ("aa", 1), ([("b", [0, 1])], ("c", 0))),
        ([], 9, ("b", 1), ([("b", [1]), ("c", [0])], None)),
        ([], 9, ("zzz", 1), ([], None)),
        ([], 1, ("", 1), ([("a", [0])], ("a", 1))),
    ],
)
def test_pages_begin_at_the_cursor_and_end_at_the_limit(
    topics: Harness, names: list[str], limit: int, cursor: Place, expected: Any
) -> None:
    assert described(ask_partitions(topics, names, limit, cursor)) == expected


def test_no_answer_has_more_partitions_than_the_broker_s_setting(tmp_path: Path) -> None:
    harness = Harness(tmp_path, max_request_partition_size_limit="4")
    harness.create_topic("a", partitions=3)
    harness.create_topic("b", partitions=2)
    assert described(ask_partitions(harness, [], 1_000)) == ([("a", [0, 1, 2]), ("b", [0])], ("b", 1))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("__consumer_offsets", ErrorCode.unknown_topic_or_partition),
        ("bad name", ErrorCode.invalid_topic_exception),
        ("x" * 250, ErrorCode.invalid_topic_exception),
    ],
)
def test_a_topic_that_is_not_there_takes_no_room(topics: Harness, name: str, error: ErrorCode) -> None:
    answer = ask_partitions(topics, ["c", name], 1, (min(name, "c"), 5 if name < "c" else 0))
    by_name = {topic.name: topic for topic in answer.topics}
    if name < "c":
        missing = by_name[name]
        assert (missing.error_code, missing.topic_id, missing.partitions) == (error, None, ())
        assert missing.is_internal == (name == "__consumer_offsets")
        assert missing.topic_authorized_operations == 3576
        assert len(by_name["c"].partitions) == 1
    else:
        assert described(answer) == ([("c", [0])], (name, 0))


@pytest.mark.parametrize(
    ("names", "cursor", "error"),
    [
        (["a", "b"], ("a", -1), ErrorCode.invalid_request),
        (["a", "b"], ("c", 0), ErrorCode.invalid_request),
        (["a"], ("", 1), ErrorCode.invalid_request),
        ([], ("a", -1), ErrorCode.invalid_request),
        (["a", ""], None, ErrorCode.unknown_server_error),
    ],
)
def test_a_bad_cursor_or_a_nameless_topic_fails_the_whole_request(
    topics: Harness, names: list[str], cursor: Place, error: ErrorCode
) -> None:
    answer = ask_partitions(topics, names, 9, cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name, error) for name in names]
    assert answer.next_cursor is None
    assert all(topic.topic_authorized_operations == NO_OPERATIONS for topic in answer.topics)


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
    marker = build_control_batch(Marker.COMMIT, 7, 0, 4, START_MS)
    partition.log.append_marker(marker, 0, START_MS)
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
    monkeypatch.setattr(describe, "DESCRIBED_PROBLEMS_MAX", 3)
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
    monkeypatch.setattr(describe, "DESCRIBED_PRODUCERS_MAX", 5)
    for producer_id in range(3):
        batch = batch_of(1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert produce(topics, 9, "a", batch).error_code == 0
    first, second = producers_of(topics, ("a", (0, 0)))
    assert (first.error_code, len(first.active_producers)) == (0, 3)
    assert (second.error_code, second.active_producers) == (ErrorCode.policy_violation, ())
