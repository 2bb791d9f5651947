"""DeleteRecords: logs that begin later from now on.

**Invariant:** a record that was deleted is not read again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.names import is_internal, missing_error
from tidelog.handlers.request import Request, Result
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

HIGH_WATERMARK = -1


def handle_delete_records(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the log of a partition begins at the offset given from now on; -1 is its high watermark.
    The answer waits until the logs of all replicas whose brokers are there begin there.

    *Versions*: 2 is flexible.
    """
    asked = request.decode()
    offsets: dict[tuple[str, int], int] = {}
    for topic in asked.topics:
        for ask in topic.partitions:  # of several offsets for a partition the last one counts
            offsets[topic.name, ask.partition_index] = ask.offset
    trims = [_delete_records(broker, topic, index, offset) for (topic, index), offset in offsets.items()]
    trimming = Trimming(deadline_of(broker, asked.timeout), broker, request, trims)
    return trimming.try_finish() or trimming


class Trim(NamedTuple):
    """What was asked of one partition, and why it was not done."""

    topic: str
    partition_index: int
    error: ErrorCode
    partition: Partition | None = None
    offset: int = -1
    leader_epoch: int = -1


def _delete_records(broker: Broker, topic: str, index: int, offset: int) -> Trim:
    partition = broker.partitions.find(topic, index)
    if is_internal(topic):
        return Trim(topic, index, ErrorCode.invalid_topic_exception)
    if partition is None:
        return Trim(topic, index, missing_error(broker.image, topic, index))
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    error = _trim(broker, partition, offset)
    return Trim(topic, index, error, None if error else partition, offset, partition.leader_epoch)


class Trimming(Parked):
    """Waits for followers to drop what the leader has dropped."""

    __slots__ = ("_broker", "_request", "_trims")

    def __init__(self, deadline_ms: int, broker: Broker, request: Request, trims: list[Trim]) -> None:
        super().__init__(deadline_ms, [trim.partition for trim in trims if trim.partition is not None])
        self._broker = broker
        self._request = request
        self._trims = trims

    def _low_watermark(self, trim: Trim) -> tuple[ErrorCode, int]:
        """Where the logs of all replicas begin, if this broker still leads them."""
        partition = trim.partition
        if partition is None:
            return trim.error, -1
        if partition.error_code or partition.leader_epoch != trim.leader_epoch:
            return ErrorCode(partition.error_code or ErrorCode.not_leader_or_follower), -1
        low = partition.log.start_offset
        if partition.leadership is not None:
            low = min(low, partition.leadership.followers_start(self._broker.image.brokers, low))
        return ErrorCode.none, low

    def try_finish(self) -> Answer | None:
        for trim in self._trims:
            error, low = self._low_watermark(trim)
            if not error and low < trim.offset:
                return None
        return self.finish_late()

    def finish_late(self) -> Answer:
        make = self._request.make
        topics: dict[str, list[Any]] = {}
        for trim in self._trims:
            error, low = self._low_watermark(trim)
            if not error and low < trim.offset:
                error = ErrorCode.request_timed_out
            row = make(
                "DeleteRecordsPartitionResult",
                partition_index=trim.partition_index,
                low_watermark=-1 if error else low,
                error_code=error,
            )
            topics.setdefault(trim.topic, []).append(row)
        results = tuple(
            make("DeleteRecordsTopicResult", name=name, partitions=tuple(rows))
            for name, rows in topics.items()
        )
        return self._request.respond(topics=results)


def _trim(broker: Broker, partition: Partition, offset: int) -> ErrorCode:
    if partition.error_code:
        return ErrorCode(partition.error_code)
    if not partition.log.settings.is_deleted:
        return ErrorCode.policy_violation
    if not 0 <= offset <= partition.high_watermark:
        return ErrorCode.offset_out_of_range
    try:
        partition.trim(offset)
    except OSError as failure:
        broker.disks.fail(partition.directory, failure)
        return ErrorCode.kafka_storage_error
    broker.checkpoints.want()
    broker.waiting.on_moved(partition)
    return ErrorCode.none
