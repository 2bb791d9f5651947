"""DescribeTopicPartitions: topics in pages, told to admins (KIP-966).

**Invariant:** changes nothing, and no answer grows beyond a bound, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.facts import TopicFacts
from tidelog.handlers.names import is_internal, leader_of, name_problem, offline_replicas
from tidelog.handlers.operations import NO_OPERATIONS, TOPIC_OPERATIONS
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import to_uuid
from tidelog.protocol.errors import ErrorCode


def handle_describe_topic_partitions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the topics named, or all, in the order of their names, from the cursor on and up to a
    number of partitions; what is left is told by the next cursor (KIP-966).

    *Versions*: 0 only.
    """
    asked = request.decode()
    names = {topic.name: None for topic in asked.topics}
    cursor = asked.cursor
    first_name = cursor.topic_name if cursor is not None else ""
    if cursor is not None and (cursor.partition_index < 0 or (names and first_name not in names)):
        return _no_topics(request, asked.topics, ErrorCode.invalid_request)
    wanted = sorted(name for name in names or broker.image.topics if name >= first_name)
    if "" in wanted:  # Kafka cannot think of a nameless topic, and answers nothing of the request
        return _no_topics(request, asked.topics, ErrorCode.unknown_server_error)
    limit_max = broker.settings.number("max.request.partition.size.limit")
    limit = max(min(asked.response_partition_limit, limit_max), 1)
    topics: list[Any] = []
    next_place: tuple[str, int] | None = None
    for name in wanted:
        if limit == 0:
            next_place = name, 0
            break
        facts = broker.image.topics.get(name)
        if facts is None:
            topics.append(_unknown_topic(request, name))
            continue
        first = cursor.partition_index if cursor is not None and name == first_name else 0
        indexes = [index for index in sorted(facts.partitions) if index >= first]
        topics.append(_topic(broker, request, facts, indexes[:limit]))
        if len(indexes) > limit:
            next_place = name, indexes[limit]
            break
        limit -= len(indexes)
    next_cursor = next_place and request.make(
        "Cursor", topic_name=next_place[0], partition_index=next_place[1]
    )
    return request.respond(topics=tuple(topics), next_cursor=next_cursor)


def _no_topics(request: Request, asked: Any, error: ErrorCode) -> bytes:
    topics = tuple(
        request.make(
            "DescribeTopicPartitionsResponseTopic",
            error_code=error,
            name=topic.name,
            topic_id=None,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NO_OPERATIONS,
        )
        for topic in asked
    )
    return request.respond(topics=topics, next_cursor=None)


def _unknown_topic(request: Request, name: str) -> Any:
    is_bad = name_problem(name) is not None
    return request.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.invalid_topic_exception if is_bad else ErrorCode.unknown_topic_or_partition,
        name=name,
        topic_id=None,
        is_internal=is_internal(name),
        partitions=(),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(broker: Broker, request: Request, topic: TopicFacts, indexes: list[int]) -> Any:
    reachable = broker.image.addresses(request.client.listener)
    return request.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=to_uuid(topic.topic_id),
        is_internal=is_internal(topic.name),
        partitions=tuple(_partition(broker, request, topic, index, reachable) for index in indexes),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    broker: Broker, request: Request, topic: TopicFacts, index: int, reachable: Container[int]
) -> Any:
    facts = topic.partitions[index]
    return request.make(
        "DescribeTopicPartitionsResponsePartition",
        error_code=ErrorCode.none,  # also without a leader, as Kafka's
        partition_index=index,
        leader_id=leader_of(broker, topic, index, reachable),
        leader_epoch=facts.leader_epoch,
        replica_nodes=tuple(facts.replicas),
        isr_nodes=tuple(facts.in_sync_replicas),
        eligible_leader_replicas=tuple(n for n in facts.eligible if broker.image.is_trusted(facts, n)),
        last_known_elr=(),
        offline_replicas=tuple(offline_replicas(broker, topic, index, reachable)),
    )
