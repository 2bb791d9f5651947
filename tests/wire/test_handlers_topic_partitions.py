"""DescribeTopicPartitions, as Kafka answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    DESCRIBE_TOPIC_PARTITIONS,
    Harness,
    parts,
)

NO_OPERATIONS = -(2**31)


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
