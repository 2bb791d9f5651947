"""ElectLeaders: leadership given back to preferred replicas, or to any that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.elections import Elected, decide_preferred
from tidelog.cluster.image import NOBODY, PartitionFacts, TopicFacts
from tidelog.cluster.store import Done, Outcome
from tidelog.handlers.names import leader_of
from tidelog.handlers.partition_changes import Place, change_partitions
from tidelog.handlers.request import MESSAGE_LENGTH_MAX, NO_THROTTLE, Request, Result
from tidelog.protocol.errors import ErrorCode

PREFERRED, UNCLEAN = 0, 1
ELECTION_WAIT_MS = 30_000
Row = tuple[ErrorCode, str | None]
_DONE: Row = (ErrorCode.none, None)
_LATE: Row = (ErrorCode.request_timed_out, "The store has not answered in time.")
_NOT_NEEDED: Row = (ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
_GONE: Row = (ErrorCode.preferred_leader_not_available, "The preferred leader is not there, or not in sync.")
_NOBODY: Row = (ErrorCode.eligible_leaders_not_available, "No replica is there that could lead.")


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

    def answer(told: dict[Place, Row]) -> bytes:
        shown = {place: _DONE if _is_led(broker, *place) else _LATE for place in places} | told
        if is_all:
            shown = {place: row for place, row in shown.items() if row is not _NOT_NEEDED}
        return _answer(request, error, rows, shown)

    def row_of(outcome: Outcome) -> Row:
        is_done = isinstance(outcome, Done)
        return _DONE if is_done else (ErrorCode.not_controller, str(outcome)[:MESSAGE_LENGTH_MAX])

    return change_partitions(
        broker,
        places,
        lambda place: _decide(broker, kind, *place),
        broker.control.elect if kind == PREFERRED else broker.control.elect_unclean,
        row_of,
        broker.uptime_ms + ELECTION_WAIT_MS,
        answer,
    )


def _rows(broker: Broker, asked: Any) -> list[tuple[str, list[int]]]:
    if asked.topic_partitions is None:
        return [(name, list(topic.partitions)) for name, topic in broker.image.topics.items()]
    return [(topic.topic, list(topic.partitions)) for topic in asked.topic_partitions]


def _decide(broker: Broker, kind: int, name: str, index: int) -> Elected | Row:
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.invalid_request, f"Unknown election type {kind}"
    topic = broker.image.topics.get(name)
    facts = topic.partitions.get(index) if topic is not None else None
    if topic is None or facts is None:
        what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        return ErrorCode.unknown_topic_or_partition, f"No such {what}"[:MESSAGE_LENGTH_MAX]
    is_led = leader_of(broker, topic, index, broker.image.brokers) != NOBODY
    if kind == PREFERRED:
        return _decide_preferred(broker, topic, index, facts, is_led)
    if is_led:
        return _NOT_NEEDED
    here = broker.partitions.find(topic.topic_id, index)
    offline = broker.node_id if here is not None and not here.is_open else NOBODY
    if not any(broker.image.is_able(node_id) for node_id in facts.replicas if node_id != offline):
        return _NOBODY
    freed = facts if facts.leader == NOBODY else facts.without_leader()
    return Elected(topic, index, replace(freed, is_unclean=True))


def _is_led(broker: Broker, name: str, index: int) -> bool:
    topic = broker.image.topics.get(name)
    is_known = topic is not None and index in topic.partitions
    return topic is not None and is_known and leader_of(broker, topic, index, broker.image.brokers) != NOBODY


def _decide_preferred(
    broker: Broker, topic: TopicFacts, index: int, facts: PartitionFacts, is_led: bool
) -> Elected | Row:
    if is_led and facts.leader == facts.replicas[0]:
        return _NOT_NEEDED
    chosen = decide_preferred(broker.image, facts) if is_led else None
    return Elected(topic, index, chosen) if chosen is not None else _GONE


def _answer(
    request: Request, error: ErrorCode, rows: list[tuple[str, list[int]]], told: dict[Place, Row]
) -> bytes:
    results = []
    for name, indexes in rows:
        parts = tuple(
            request.make("PartitionResult", partition_id=index, error_code=code, error_message=message)
            for index in indexes
            if (name, index) in told
            for code, message in (told[name, index],)
        )
        results.append(request.make("ReplicaElectionResult", topic=name, partition_result=parts))
    return request.respond(
        throttle_time=NO_THROTTLE, error_code=error, replica_election_results=tuple(results)
    )
