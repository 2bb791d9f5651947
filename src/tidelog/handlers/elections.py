"""ElectLeaders: leadership given back to preferred replicas, or to any that is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.elections import Elected, decide_preferred, elect
from tidelog.cluster.image import NOBODY, PartitionFacts, TopicFacts
from tidelog.cluster.store import Done, Outcome
from tidelog.handlers.names import leader_of
from tidelog.handlers.request import MESSAGE_LENGTH_MAX, NO_THROTTLE, Outstanding, Request, Result
from tidelog.protocol.errors import ErrorCode

PREFERRED, UNCLEAN = 0, 1
ELECTION_WAIT_MS = 30_000
Told = tuple[ErrorCode, str | None]
_NOT_NEEDED: Told = (ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
_GONE: Told = (ErrorCode.preferred_leader_not_available, "The preferred leader is not there, or not in sync.")
_NOBODY: Told = (ErrorCode.eligible_leaders_not_available, "No replica is there that could lead.")


def handle_elect_leaders(broker: Broker, request: Request) -> Result:
    """*Behaviour*: *preferred* gives leadership back to the first replica if that is in sync; *unclean* lets
    any replica lead that is there, where nobody does. Answered when the store has it.

    *Versions*: 1 adds the type of election; 2 is flexible.
    """
    asked = request.decode()
    kind = getattr(asked, "election_type", PREFERRED)
    is_known = kind in (PREFERRED, UNCLEAN)
    told: dict[tuple[str, int], Told] = {}
    elected: list[Elected] = []
    for name, index in _wanted(broker, asked) if is_known or asked.topic_partitions else ():
        outcome = _decide(broker, kind, name, index)
        if isinstance(outcome, Elected):
            elected.append(outcome)
            told[name, index] = (ErrorCode.none, None)
        elif asked.topic_partitions is not None or outcome is not _NOT_NEEDED:
            told[name, index] = outcome
    if not elected:
        is_right = is_known or asked.topic_partitions == ()
        names = broker.image.topics if is_known and asked.topic_partitions is None else ()
        return _answer(request, ErrorCode.none if is_right else ErrorCode.invalid_request, told, names)
    return _write(broker, request, elected, told)


def _wanted(broker: Broker, asked: Any) -> list[tuple[str, int]]:
    if asked.topic_partitions is None:
        return [(name, index) for name, topic in broker.image.topics.items() for index in topic.partitions]
    named = ((topic.topic, index) for topic in asked.topic_partitions for index in topic.partitions)
    return list(dict.fromkeys(named))


def _decide(broker: Broker, kind: int, name: str, index: int) -> Elected | Told:
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.invalid_request, f"Unknown election type {kind}"
    topic = broker.image.topics.get(name)
    facts = topic.partitions.get(index) if topic is not None else None
    if topic is None or facts is None:
        what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        return ErrorCode.unknown_topic_or_partition, f"No such {what}"[:MESSAGE_LENGTH_MAX]
    is_led = leader_of(broker, topic, index) != NOBODY
    if kind == PREFERRED:
        return _decide_preferred(broker, topic, index, facts, is_led)
    if is_led:
        return _NOT_NEEDED
    chosen = elect(broker.image, facts, broker.partitions.resolve(topic), is_unclean=True)
    if chosen is None or chosen.leader in (NOBODY, facts.leader):
        return _NOBODY
    return Elected(topic, index, chosen)


def _decide_preferred(
    broker: Broker, topic: TopicFacts, index: int, facts: PartitionFacts, is_led: bool
) -> Elected | Told:
    if is_led and facts.leader == facts.replicas[0]:
        return _NOT_NEEDED
    chosen = decide_preferred(broker.image, facts) if is_led else None
    return Elected(topic, index, chosen) if chosen is not None else _GONE


def _write(
    broker: Broker, request: Request, elected: list[Elected], told: dict[tuple[str, int], Told]
) -> Result:
    def answer(failure: Told | None = None) -> bytes:
        for each in elected if failure is not None else ():
            told[each.topic.name, each.index] = failure or _NOBODY
        return _answer(request, ErrorCode.none, told)

    late: Told = (ErrorCode.request_timed_out, "The store has not answered in time.")
    parked = Outstanding(broker.uptime_ms + ELECTION_WAIT_MS, lambda: answer(late))

    def on_outcome(outcome: Outcome) -> None:
        failure = None if isinstance(outcome, Done) else (ErrorCode.not_controller, str(outcome))
        broker.waiting.finish(parked, answer(failure))

    broker.control.elect(elected, on_outcome)
    return parked


def _answer(
    request: Request, error: ErrorCode, told: dict[tuple[str, int], Told], names: Iterable[str] = ()
) -> bytes:
    by_topic: dict[str, list[Any]] = {name: [] for name in names}
    for (name, index), (code, message) in told.items():
        part = request.make("PartitionResult", partition_id=index, error_code=code, error_message=message)
        by_topic.setdefault(name, []).append(part)
    results = tuple(
        request.make("ReplicaElectionResult", topic=name, partition_result=tuple(parts))
        for name, parts in by_topic.items()
    )
    return request.respond(throttle_time=NO_THROTTLE, error_code=error, replica_election_results=results)
