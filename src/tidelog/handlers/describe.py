"""DescribeCluster, DescribeTopicPartitions and DescribeProducers: what is there, told to admins.

**Invariant:** changes nothing, and no answer grows beyond a bound, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from datetime import timedelta
from typing import Any

from tidelog.base.limits import DESCRIBED_PROBLEMS_MAX, DESCRIBED_PRODUCERS_MAX
from tidelog.broker.broker import Broker
from tidelog.cluster.image import TopicFacts
from tidelog.handlers.names import (
    controller_told,
    is_internal,
    leader_of,
    missing_error,
    name_problem,
    offline_replicas,
)
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import to_uuid
from tidelog.log.producers import Producers
from tidelog.protocol.errors import ErrorCode

_ZERO = timedelta(0)
_BROKERS, _CONTROLLERS = 1, 2
# What anybody may do while there are no rules about it: bits by the number of the operation.
NO_OPERATIONS = -(2**31)
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
TOPIC_OPERATIONS = 0b1101_1111_1000


def handle_describe_cluster(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the cluster's id, and those of its brokers that have the listener that the client came in
    by, with their addresses there. Asked for brokers, it names a live one as the controller, as KRaft does.
    Asked for controllers, which all brokers may become, it names the one that decides now, or -1.

    *Versions*: 1 asks for a type of endpoints; 2 tells which brokers are fenced, and there are none.
    """
    asked = request.decode()
    wanted = getattr(asked, "endpoint_type", _BROKERS)
    if wanted not in (_BROKERS, _CONTROLLERS):
        return _no_cluster(
            request, ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}"
        )
    reachable = broker.image.addresses(request.connection.listener)
    brokers = tuple(
        request.make(
            "DescribeClusterBroker",
            broker_id=node_id,
            host=host,
            port=port,
            rack=broker.image.brokers[node_id].rack or None,
            is_fenced=False,
        )
        for node_id, (host, port) in reachable.items()
    )
    return request.respond(
        throttle_time=_ZERO,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=wanted,
        cluster_id=broker.image.cluster_id,
        controller_id=(
            controller_told(broker, reachable) if wanted == _BROKERS else broker.image.controller_id
        ),
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if asked.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def _no_cluster(request: Request, error: ErrorCode, message: str) -> bytes:
    return request.respond(
        throttle_time=_ZERO,
        error_code=error,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="",
        controller_id=-1,
        brokers=(),
        cluster_authorized_operations=NO_OPERATIONS,
    )


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
    return request.respond(throttle_time=_ZERO, topics=tuple(topics), next_cursor=next_cursor)


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
    return request.respond(throttle_time=_ZERO, topics=topics, next_cursor=None)


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
    reachable = broker.image.addresses(request.connection.listener)
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


def handle_describe_producers(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the producers that each partition remembers, with the transaction one of them has open.

    *Versions*: 0 only.
    """
    asked = request.decode()
    left, quotes_left = DESCRIBED_PRODUCERS_MAX, DESCRIBED_PROBLEMS_MAX
    topics = []
    for topic in asked.topics:
        partitions = []
        problem = name_problem(topic.name)
        for index in topic.partition_indexes:
            if problem is not None:
                message = problem if quotes_left > 0 else None
                quotes_left -= 1
                partitions.append(_no_producers(request, index, ErrorCode.invalid_topic_exception, message))
                continue
            answer = _producers_of(broker, request, topic.name, index, left)
            left -= len(answer.active_producers)
            partitions.append(answer)
        topics.append(request.make("TopicResponse", name=topic.name, partitions=tuple(partitions)))
    return request.respond(throttle_time=_ZERO, topics=tuple(topics))


def _no_producers(request: Request, index: int, error: ErrorCode, message: str | None) -> Any:
    return request.make(
        "PartitionResponse",
        partition_index=index,
        error_code=error,
        error_message=message,
        active_producers=(),
    )


def _producers_of(broker: Broker, request: Request, name: str, index: int, limit: int) -> Any:
    def refused(error: ErrorCode, message: str | None) -> Any:
        return _no_producers(request, index, error, message)

    partition = broker.partitions.find(name, index)
    if partition is None:
        is_told = name not in broker.image.topics
        message = "This server does not host this topic-partition." if is_told else None
        return refused(missing_error(broker.image, name, index), message)
    if partition.error_code:
        return refused(ErrorCode(partition.error_code), None)
    producers = partition.log.producers
    if len(producers) > limit:
        return refused(
            ErrorCode.policy_violation,
            f"More than {DESCRIBED_PRODUCERS_MAX} producers in one answer; ask for fewer partitions.",
        )
    return request.make(
        "PartitionResponse",
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        active_producers=tuple(_states(request, producers)),
    )


def _states(request: Request, producers: Producers) -> Iterator[Any]:
    for producer in producers:
        yield request.make(
            "ProducerState",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_offset,
        )
