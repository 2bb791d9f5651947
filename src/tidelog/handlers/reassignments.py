"""AlterPartitionReassignments and ListPartitionReassignments: replicas that move from broker to broker
(KIP-455).

**Invariant:** a move is in the store before a client hears of it; that it has ended, the controller sees by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.base.limits import MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.facts import PartitionChange, PartitionFacts, TopicFacts
from tidelog.cluster.reassignments import decide_cancellation, decide_move, target_problem
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.partition_changes import Decided, Piece, Place, Told, change_partitions
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE
from tidelog.protocol.errors import ErrorCode, Problem

Targets = dict[Place, tuple[int, ...] | None]  # None to have it cancelled
_NOT_CONTROLLER = Problem(ErrorCode.not_controller, "This broker is not the controller, or not any more.")


def handle_alter_partition_reassignments(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the replicas of each partition begin to move to its target, or to another one than before;
    without a target they stay, or go back. Each partition has an error of its own; the answer waits for the
    store, not for the replicas.

    *Versions*: 1 lets clients say that the number of replicas must stay (KIP-860).
    """
    asked = request.decode()
    places = [(topic.name, each.partition_index) for topic in asked.topics for each in topic.partitions]
    replicas = [each.replicas for topic in asked.topics for each in topic.partitions]
    targets: Targets = dict(zip(places, replicas, strict=True))  # of several for a partition the last counts
    may_resize = getattr(asked, "allow_replication_factor_change", True)

    def answer(told: Told) -> bytes:
        return _answer(request, asked, may_resize, told)

    def piece_of(some: list[Place], told: Told) -> _Moves:
        return _Moves(broker, some, told, targets, may_resize)

    if not broker.control.is_controller:
        return answer(dict.fromkeys(targets, _NOT_CONTROLLER))
    return change_partitions(broker, targets, piece_of, deadline_of(broker, asked.timeout), answer)


class _Moves(Piece):
    def __init__(
        self, broker: Broker, places: list[Place], told: Told, targets: Targets, may_resize: bool
    ) -> None:
        super().__init__(broker, places, told)
        self._targets = targets
        self._may_resize = may_resize

    def decide_one(self, name: str, index: int) -> PartitionChange | Problem:
        return _decide(self._broker, name, index, self._targets[name, index], self._may_resize)

    def write(self, decided: Decided, on_outcome: OnOutcome) -> None:
        self._broker.control.write_partitions(list(decided.values()), on_outcome)


def _decide(
    broker: Broker, name: str, index: int, target: tuple[int, ...] | None, may_resize: bool
) -> PartitionChange | Problem:
    image, topic = broker.image, broker.image.topics.get(name)
    facts = topic.partitions.get(index) if topic is not None else None
    if topic is None or facts is None:
        what = f"a topic named {name}" if topic is None else f"partition {name}:{index}"
        return Problem(ErrorCode.unknown_topic_or_partition, f"Unable to find {what}.")
    settings = broker.settings_in_force.resolve(topic)
    problem = target_problem(image, facts, target, may_resize) if target is not None else None
    if problem is not None:
        return problem
    if target is None:
        found: PartitionFacts | Problem | None = decide_cancellation(image, facts, settings)
    else:
        found = decide_move(image, facts, target, settings)
    if found is None:
        return FINE
    return found if isinstance(found, Problem) else PartitionChange(topic, index, found)


def _answer(request: Request, asked: Any, may_resize: bool, told: Told) -> bytes:
    responses = tuple(
        request.make(
            "ReassignableTopicResponse",
            name=topic.name,
            partitions=tuple(
                request.make(
                    "ReassignablePartitionResponse",
                    partition_index=each.partition_index,
                    error_code=refusal.error,
                    error_message=refusal.message[:MESSAGE_LENGTH_MAX] or None,
                )
                for each in topic.partitions
                for refusal in (told.get((topic.name, each.partition_index), LATE),)
            ),
        )
        for topic in asked.topics
    )
    # Clients look for the controller if all was in vain, and at each partition else. Who asks for nothing
    # hears what Kafka's defaults say.
    is_elsewhere = bool(told) and all(refusal is _NOT_CONTROLLER for refusal in told.values())
    top = _NOT_CONTROLLER if is_elsewhere else FINE
    return request.respond(
        allow_replication_factor_change=may_resize or not asked.topics,
        error_code=top.error,
        error_message=top.message or (None if asked.topics else ""),
        responses=responses,
    )


def handle_list_partition_reassignments(broker: Broker, request: Request) -> Result:
    """*Behaviour*: of the partitions asked for, or of all, those whose replicas move."""
    asked = request.decode()
    topics = broker.image.topics
    wanted: list[tuple[TopicFacts, Iterable[int]]] = [
        (topic, topic.partitions) for topic in topics.values() if asked.topics is None
    ]
    for each in asked.topics or ():
        if each.name in topics:
            wanted.append((topics[each.name], each.partition_indexes))
    told = tuple(
        request.make("OngoingTopicReassignment", name=topic.name, partitions=rows)
        for topic, indexes in wanted
        if (rows := _moving(request, topic, indexes))
    )
    return request.respond(error_code=ErrorCode.none, error_message=None, topics=told)


def _moving(request: Request, topic: TopicFacts, indexes: Iterable[int]) -> tuple[Any, ...]:
    return tuple(
        request.make(
            "OngoingPartitionReassignment",
            partition_index=index,
            replicas=tuple(facts.replicas),
            adding_replicas=tuple(facts.adding),
            removing_replicas=tuple(facts.removing),
        )
        for index in indexes
        if (facts := topic.partitions.get(index)) is not None and facts.is_moving
    )
