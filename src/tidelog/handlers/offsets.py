"""ListOffsets and OffsetForLeaderEpoch: from a point in time or a leadership to an offset."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.handlers.names import missing_error
from tidelog.handlers.request import Request, Result
from tidelog.log.epochs import UNDEFINED_EPOCH
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import READ_COMMITTED, Partition

READ_UNCOMMITTED = 0
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
# The version from which on each special timestamp may be asked for.
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_OLDEST = (EARLIEST, EARLIEST_LOCAL)
_NEVER = 2**15
_NOWHERE = (-1, -1, UNDEFINED_EPOCH)
_ZERO = timedelta(0)


def handle_list_offsets(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the first offset whose timestamp is not below the one asked for, or a special one.

    *Versions*: 2 adds isolation; 4 leader epochs; 7 the largest timestamp; 8 the earliest local offset;
    9 and 11 ask about tiered storage, which there is none of.
    """
    asked = request.decode()
    isolation = getattr(asked, "isolation_level", 0)
    counts = Counter((topic.name, ask.partition_index) for topic in asked.topics for ask in topic.partitions)
    answers: dict[str, dict[int, Any]] = {}  # a topic or a partition that is named twice is answered once
    for topic in asked.topics:
        for ask in topic.partitions:
            index = ask.partition_index
            if counts[topic.name, index] > 1 or isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
                answer = _answer(request, index, ErrorCode.invalid_request)
            else:
                answer = _list_one(broker, request, topic.name, ask, isolation, asked.replica_id)
            answers.setdefault(topic.name, {})[index] = answer
    topics = tuple(
        request.make("ListOffsetsTopicResponse", name=name, partitions=tuple(by_index.values()))
        for name, by_index in answers.items()
    )
    return request.respond(throttle_time=_ZERO, topics=topics)


def _list_one(broker: Broker, request: Request, topic: str, ask: Any, isolation: int, replica_id: int) -> Any:
    index = ask.partition_index
    if ask.timestamp < 0 and request.version < _FIRST_VERSIONS.get(ask.timestamp, _NEVER):
        return _answer(request, index, ErrorCode.unsupported_version)
    partition = broker.partitions.find(topic, index)
    if partition is None:
        return _answer(request, index, missing_error(broker.image, topic, index))
    error = partition.error_code or _check_epoch(partition, getattr(ask, "current_leader_epoch", -1))
    if not error and replica_id < 0 and not partition.is_settled and ask.timestamp not in _OLDEST:
        error = ErrorCode.offset_not_available  # somebody may have been told a later offset (KIP-207)
    if error:
        return _answer(request, index, error)
    try:
        return _answer(request, index, 0, _find(partition, ask.timestamp, isolation, replica_id))
    except OSError as failure:
        broker.fail_directory(partition.directory, failure)
        return _answer(request, index, ErrorCode.kafka_storage_error)
    except CorruptBatch:
        return _answer(request, index, ErrorCode.corrupt_message)


def _check_epoch(partition: Partition, current_leader_epoch: int) -> int:
    """Here only -1 stands for no epoch; Fetch takes every negative one for it."""
    if current_leader_epoch < UNDEFINED_EPOCH:
        return ErrorCode.fenced_leader_epoch
    return partition.check_epoch(current_leader_epoch)


def _answer(request: Request, index: int, error: int, found: tuple[int, int, int] = _NOWHERE) -> Any:
    timestamp, offset, epoch = found
    return request.make(
        "ListOffsetsPartitionResponse",
        partition_index=index,
        error_code=ErrorCode(error),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _find(partition: Partition, timestamp: int, isolation: int, replica_id: int) -> tuple[int, int, int]:
    log = partition.log
    bound = partition.last_stable_offset if isolation == READ_COMMITTED else partition.high_watermark
    if timestamp == LATEST:
        end = bound if replica_id < 0 else log.end_offset
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, log.epochs.at(log.start_offset)
    if timestamp == MAX_TIMESTAMP:
        found = log.find_max_timestamp()
        if found is not None and found.offset >= bound:
            return _NOWHERE
    elif timestamp < 0:
        return _NOWHERE  # of tiered storage
    else:
        found = log.find_timestamp(timestamp, bound)
    return (*found, log.epochs.at(found.offset)) if found is not None else _NOWHERE


def handle_offset_for_leader_epoch(broker: Broker, request: Request) -> Result:
    """*Behaviour*: where a leader epoch ended: what a replica or a consumer compares to find divergence."""
    asked = request.decode()
    topics = []
    for topic in asked.topics:
        answers = tuple(_end_of_epoch(broker, request, topic.topic, ask) for ask in topic.partitions)
        topics.append(request.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=answers))
    return request.respond(throttle_time=_ZERO, topics=tuple(topics))


def _end_of_epoch(broker: Broker, request: Request, topic: str, ask: Any) -> Any:
    index = ask.partition
    partition = broker.partitions.find(topic, index)
    error = int(missing_error(broker.image, topic, index))
    epoch, end_offset = UNDEFINED_EPOCH, -1
    if partition is not None:
        error = partition.error_code or _check_epoch(partition, ask.current_leader_epoch)
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
