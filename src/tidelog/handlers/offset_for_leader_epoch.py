"""OffsetForLeaderEpoch: from a leadership to the offset where it ended."""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.handlers.names import missing_error
from tidelog.handlers.request import Request, Result
from tidelog.log.epochs import UNDEFINED_EPOCH
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition


def handle_offset_for_leader_epoch(broker: Broker, request: Request) -> Result:
    """*Behaviour*: where a leader epoch ended: what a replica or a consumer compares to find divergence."""
    asked = request.decode()
    topics = []
    for topic in asked.topics:
        answers = tuple(_end_of_epoch(broker, request, topic.topic, ask) for ask in topic.partitions)
        topics.append(request.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=answers))
    return request.respond(topics=tuple(topics))


def _end_of_epoch(broker: Broker, request: Request, topic: str, ask: Any) -> Any:
    index = ask.partition
    partition = broker.partitions.find(topic, index)
    error = int(missing_error(broker.image, topic, index))
    epoch, end_offset = UNDEFINED_EPOCH, -1
    if partition is not None:
        error = partition.error_code or check_epoch(partition, ask.current_leader_epoch)
        if not error:
            epoch, end_offset = partition.log.epochs.end_of(ask.leader_epoch, partition.log.end_offset)
            if ask.leader_epoch == partition.leader_epoch:
                epoch, end_offset = partition.leader_epoch, partition.log.end_offset
    return request.make(
        "EpochEndOffset",
        error_code=ErrorCode(error),
        partition=index,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def check_epoch(partition: Partition, current_leader_epoch: int) -> int:
    """Here only -1 stands for no epoch; Fetch takes every negative one for it."""
    if current_leader_epoch < UNDEFINED_EPOCH:
        return ErrorCode.fenced_leader_epoch
    return partition.check_epoch(current_leader_epoch)
