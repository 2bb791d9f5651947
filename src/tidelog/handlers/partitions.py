"""CreatePartitions: topics that grow.

**Invariant:** a partition is in the store before a client hears of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tidelog.base.limits import MESSAGE_LENGTH_MAX, PARTITIONS_CREATED_MAX, PARTITIONS_SHARED_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.quotas import Mutations
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.facts import TopicFacts
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import Outcome
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.names import is_internal
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE, OVER_QUOTA, change_store, problem_of
from tidelog.protocol.errors import ErrorCode, Problem

TOO_MANY = Problem(
    ErrorCode.policy_violation,
    f"More than {PARTITIONS_CREATED_MAX} partitions in one request are not created.",
)
TOO_MANY_AT_ONCE = Problem(
    ErrorCode.policy_violation,
    f"In a cluster a topic gets at most {PARTITIONS_SHARED_MAX} partitions at once; add the rest after that.",
)


_QUOTA_VERSION = 3  # from here on clients know the error


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
        return request.respond(results=results)

    quota = broker.quotas.mutations(request.client, request.version >= _QUOTA_VERSION)
    changes: list[_Growth | Problem] = []
    left = PARTITIONS_CREATED_MAX
    for topic in topics:
        known = broker.image.topics.get(topic.name)
        added_count = topic.count - len(known.partitions) if known is not None else 0
        left -= max(added_count, 0)
        if counts[topic.name] > 1:
            changes.append(Problem(ErrorCode.invalid_request, "Duplicate topic name."))
        elif left < 0:
            changes.append(TOO_MANY)
        elif broker.is_sharing and added_count > PARTITIONS_SHARED_MAX:
            changes.append(TOO_MANY_AT_ONCE)
        else:
            changes.append(_Growth(broker, topic, asked.validate_only, quota))
    return change_store(broker, deadline_of(broker, asked.timeout), changes, LATE, answer)


class _Added(NamedTuple):
    topic: TopicFacts
    replicas: list[list[int]]  # of each new partition


class _Growth(StoreChange[_Added, Problem]):
    def __init__(self, broker: Broker, asked: Any, validate_only: bool, quota: Mutations) -> None:
        self._broker = broker
        self._quota: Mutations | None = quota  # until it has counted
        self._asked = asked
        self._validate_only = validate_only

    def decide(self) -> _Added | Settled[Problem]:
        topic = self._broker.image.topics.get(self._asked.name)
        if topic is None:
            return Settled(Problem(ErrorCode.unknown_topic_or_partition, ""))
        replicas = _added(self._broker, topic, self._asked)
        if isinstance(replicas, Problem):
            return Settled(replicas)
        if self._validate_only:
            return Settled(FINE)
        if self._quota is not None and not self._quota.take(len(replicas)):
            return Settled(OVER_QUOTA)
        self._quota = None
        return _Added(topic, replicas)

    def write(self, added: _Added, on_outcome: OnOutcome) -> None:
        self._broker.topics.grow(added.topic, added.replicas, on_outcome)

    def row_of(self, added: _Added, outcome: Outcome) -> Problem:
        return problem_of(outcome)


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
