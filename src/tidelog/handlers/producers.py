"""DescribeProducers: what partitions remember of those who write to them.

**Invariant:** changes nothing, and no answer grows beyond a bound, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.base.limits import DESCRIBED_PROBLEMS_MAX, DESCRIBED_PRODUCERS_MAX
from tidelog.broker.broker import Broker
from tidelog.handlers.names import missing_error, name_problem
from tidelog.handlers.request import Request, Result
from tidelog.log.producers import Producers
from tidelog.protocol.errors import ErrorCode


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
    return request.respond(topics=tuple(topics))


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
