"""ElectLeaders: leadership given back to preferred replicas, or to any that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.base.limits import ELECTION_WAIT_MS, MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.elections import decide_preferred
from tidelog.cluster.facts import NOBODY, PartitionChange, PartitionFacts, TopicFacts
from tidelog.cluster.store import Done, Outcome, reason_of
from tidelog.handlers.names import leader_of
from tidelog.handlers.partition_changes import Decided, Piece, Place, Told, change_partitions
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE
from tidelog.protocol.errors import ErrorCode, Problem

PREFERRED, UNCLEAN = 0, 1
_NOT_NEEDED = Problem(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
_GONE = Problem(
    ErrorCode.preferred_leader_not_available, "The preferred leader is not there, or not in sync."
)
_NOBODY = Problem(ErrorCode.eligible_leaders_not_available, "No replica is there that could lead.")


def handle_elect_leaders(broker: Broker, request: Request) -> Result:
    """*Behaviour*: *preferred* gives leadership back to the first replica if that is in sync; *unclean* lets
    any replica lead that is there, where nobody does. Answered when the store has it. Asked for all
    partitions, it tells of those that were elected, or could not be.

    *Versions*: 1 adds the type of election; 2 is flexible.
    """
    asked = request.decode()
    kind = getattr(asked, "election_type", PREFERRED)
    is_known, is_all = kind in (PREFERRED, UNCLEAN), asked.topic_partitions is None
    rows = _rows(broker, asked) if is_known or not is_all else []
    is_right = is_known or asked.topic_partitions == ()
    error = ErrorCode.none if is_right else ErrorCode.invalid_request
    places = dict.fromkeys((name, index) for name, indexes in rows for index in indexes)

    def answer(told: Told) -> bytes:
        shown = {place: FINE if _is_done(broker, kind, *place) else LATE for place in places} | told
        if is_all:
            shown = {place: row for place, row in shown.items() if row is not _NOT_NEEDED}
        return _answer(request, error, rows, shown)

    def piece_of(some: list[Place], told: Told) -> _Elections:
        return _Elections(broker, some, told, kind)

    deadline_ms = broker.clock.uptime_ms + ELECTION_WAIT_MS
    return change_partitions(broker, places, piece_of, deadline_ms, answer)


class _Elections(Piece):
    def __init__(self, broker: Broker, places: list[Place], told: Told, kind: int) -> None:
        super().__init__(broker, places, told)
        self._kind = kind

    def decide_one(self, name: str, index: int) -> PartitionChange | Problem:
        return _decide(self._broker, self._kind, name, index)

    def write(self, decided: Decided, on_outcome: OnOutcome) -> None:
        control = self._broker.control
        elect = control.elect if self._kind == PREFERRED else control.elect_unclean
        elect(list(decided.values()), on_outcome)

    def problem_of(self, outcome: Outcome) -> Problem:
        if isinstance(outcome, Done):
            return FINE
        return Problem(ErrorCode.not_controller, reason_of(outcome)[:MESSAGE_LENGTH_MAX])


def _rows(broker: Broker, asked: Any) -> list[tuple[str, list[int]]]:
    if asked.topic_partitions is None:
        return [(name, list(topic.partitions)) for name, topic in broker.image.topics.items()]
    return [(topic.topic, list(topic.partitions)) for topic in asked.topic_partitions]


def _decide(broker: Broker, kind: int, name: str, index: int) -> PartitionChange | Problem:
    if kind not in (PREFERRED, UNCLEAN):
        return Problem(ErrorCode.invalid_request, f"Unknown election type {kind}")
    topic = broker.image.topics.get(name)
    facts = topic.partitions.get(index) if topic is not None else None
    if topic is None or facts is None:
        what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        return Problem(ErrorCode.unknown_topic_or_partition, f"No such {what}"[:MESSAGE_LENGTH_MAX])
    is_led = leader_of(broker, topic, index, broker.image.brokers) != NOBODY
    if kind == PREFERRED:
        return _decide_preferred(broker, topic, index, facts, is_led)
    if is_led and _leads_on(broker, facts):
        return _NOT_NEEDED
    here = broker.partitions.find(topic.topic_id, index)
    offline = broker.node_id if here is not None and not here.is_open else NOBODY
    if not any(broker.image.is_able(node_id) for node_id in facts.replicas if node_id != offline):
        return _NOBODY
    freed = facts if facts.leader == NOBODY else facts.without_leader()
    return PartitionChange(topic, index, replace(freed, is_unclean=True))


def _is_done(broker: Broker, kind: int, name: str, index: int) -> bool:
    """Whether the image shows what an election of that kind is for, whatever became of the store's answer."""
    topic = broker.image.topics.get(name)
    facts = topic.partitions.get(index) if topic is not None else None
    if topic is None or facts is None:
        return False
    leader = leader_of(broker, topic, index, broker.image.brokers)
    if kind == PREFERRED:
        return leader == facts.replicas[0]
    return leader != NOBODY and _leads_on(broker, facts)


def _leads_on(broker: Broker, facts: PartitionFacts) -> bool:
    """A leader that does not count has restarted without its log, and is about to lose its leadership."""
    return broker.image.counts(facts, facts.leader)


def _decide_preferred(
    broker: Broker, topic: TopicFacts, index: int, facts: PartitionFacts, is_led: bool
) -> PartitionChange | Problem:
    if is_led and facts.leader == facts.replicas[0]:
        return _NOT_NEEDED
    chosen = decide_preferred(broker.image, facts) if is_led else None
    return PartitionChange(topic, index, chosen) if chosen is not None else _GONE


def _answer(request: Request, error: ErrorCode, rows: list[tuple[str, list[int]]], told: Told) -> bytes:
    results = []
    for name, indexes in rows:
        parts = tuple(
            request.make(
                "PartitionResult", partition_id=index, error_code=code, error_message=message or None
            )
            for index in indexes
            if (name, index) in told
            for code, message in (told[name, index],)
        )
        results.append(request.make("ReplicaElectionResult", topic=name, partition_result=parts))
    return request.respond(error_code=error, replica_election_results=tuple(results))
