"""CreatePartitions and DeleteRecords: topics as they change.

**Invariant:** a partition is in the store before a client hears of it; a record that was deleted is not
read again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tidelog.base.limits import PARTITIONS_CREATED_MAX, PARTITIONS_SHARED_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.cluster.image import TopicFacts
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import Done, Outcome, Refused
from tidelog.handlers.gathering import Gathering, deadline_of
from tidelog.handlers.names import is_internal, missing_error
from tidelog.handlers.request import MESSAGE_LENGTH_MAX, NO_THROTTLE, Request, Result
from tidelog.handlers.resources import Problem
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

ATTEMPTS_MAX = 8  # to change what others may be changing
HIGH_WATERMARK = -1
_LATE = Problem(ErrorCode.request_timed_out, "The store has not answered in time.")
TOO_MANY = Problem(
    ErrorCode.policy_violation,
    f"More than {PARTITIONS_CREATED_MAX} partitions in one request are not created.",
)
TOO_MANY_AT_ONCE = Problem(
    ErrorCode.policy_violation,
    f"In a cluster a topic gets at most {PARTITIONS_SHARED_MAX} partitions at once; add the rest after that.",
)
_FINE = Problem(ErrorCode.none, "")


def handle_create_partitions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: topics grow to the number asked for, never shrink; the answer waits for the store.

    *Versions*: 2 is flexible; 3 knows of quotas.
    """
    asked = request.decode()
    counts = Counter(topic.name for topic in asked.topics)
    topics = list({topic.name: topic for topic in asked.topics}.values())

    def answer(problems: list[Problem]) -> bytes:
        results = tuple(
            request.make(
                "CreatePartitionsTopicResult",
                name=topic.name,
                error_code=problem.error,
                error_message=problem.message[:MESSAGE_LENGTH_MAX] or None,
            )
            for topic, problem in zip(topics, problems, strict=True)
        )
        return request.respond(throttle_time=NO_THROTTLE, results=results)

    gathering = Gathering(broker, deadline_of(broker, asked.timeout), len(topics), _LATE, answer)
    left = PARTITIONS_CREATED_MAX
    for position, topic in enumerate(topics):
        known = broker.image.topics.get(topic.name)
        left -= max(topic.count - len(known.partitions), 0) if known is not None else 0
        if counts[topic.name] > 1:
            gathering.put(position, Problem(ErrorCode.invalid_request, "Duplicate topic name."))
        elif left < 0:
            gathering.put(position, TOO_MANY)
        elif (
            broker.is_sharing
            and known is not None
            and topic.count - len(known.partitions) > PARTITIONS_SHARED_MAX
        ):
            gathering.put(position, TOO_MANY_AT_ONCE)
        else:
            _grow(broker, topic, asked.validate_only, gathering, position)
    return gathering.result()


def _grow(
    broker: Broker,
    asked: Any,
    validate_only: bool,
    gathering: Gathering[Problem],
    position: int,
    attempts_left: int = ATTEMPTS_MAX,
) -> None:
    topic = broker.image.topics.get(asked.name)
    if topic is None:
        gathering.put(position, Problem(ErrorCode.unknown_topic_or_partition, ""))
        return
    added = _added(broker, topic, asked)
    if isinstance(added, Problem) or validate_only:
        gathering.put(position, added if isinstance(added, Problem) else _FINE)
        return

    def on_outcome(outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and attempts_left:  # somebody changed the topic meanwhile: look again
            _grow(broker, asked, validate_only, gathering, position, attempts_left - 1)
        elif isinstance(outcome, Done):
            gathering.put(position, _FINE)
        else:
            told = f"The store does not say that it is done: {outcome}"
            gathering.put(position, Problem(ErrorCode.request_timed_out, told))

    broker.grow_topic(topic, added, on_outcome)


def _added(broker: Broker, topic: TopicFacts, asked: Any) -> list[list[int]] | Problem:
    """The replicas of the partitions to add."""
    if is_internal(topic.name):  # what it keeps is found by the number of partitions
        reason = f"The topic {topic.name} is internal; it keeps its partitions."
        return Problem(ErrorCode.invalid_topic_exception, reason)
    present = len(topic.partitions)
    count = asked.count - present
    if count == 0:
        return Problem(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if count < 0:
        reason = f"The topic {topic.name} currently has {present} partition(s); {asked.count} is no increase."
        return Problem(ErrorCode.invalid_partitions, reason)
    replica_count = len(topic.partitions[0].replicas_after)
    if asked.assignments is None:
        racks = racks_of(broker.image.brokers)
        if replica_count > len(racks):
            reason = f"{replica_count} replica(s) need as many brokers; {len(racks)} are registered."
            return Problem(ErrorCode.invalid_replication_factor, reason)
        return place(count, replica_count, racks, present)
    assigned = [list(assignment.broker_ids) for assignment in asked.assignments]
    reason_or_none = _assignment_problem(broker, assigned, count, replica_count)
    return Problem(ErrorCode.invalid_replica_assignment, reason_or_none) if reason_or_none else assigned


def _assignment_problem(
    broker: Broker, assigned: list[list[int]], count: int, replica_count: int
) -> str | None:
    if len(assigned) != count:
        return f"{count} partition(s) are to be added, but {len(assigned)} assignment(s) were given."
    for replicas in assigned:
        unknown = [node_id for node_id in replicas if node_id not in broker.image.brokers]
        if unknown:
            return f"The assignment names broker {unknown[0]}, but no such broker is registered."
        if len({*replicas}) != len(replicas) or len(replicas) != replica_count:
            return f"An assignment needs {replica_count} different broker(s), {replicas} was given."
    return None


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
        return self._request.respond(throttle_time=NO_THROTTLE, topics=results)


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
        broker.fail_directory(partition.directory, failure)
        return ErrorCode.kafka_storage_error
    broker.checkpoints.want()
    broker.waiting.on_moved(partition)
    return ErrorCode.none
