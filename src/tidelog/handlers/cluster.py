"""Metadata and FindCoordinator: what clients learn of the cluster, from any broker (C4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidelog.base.limits import AUTO_CREATED_TOPICS_MAX
from tidelog.broker.broker import Broker
from tidelog.cluster.image import TopicFacts
from tidelog.cluster.placement import place
from tidelog.cluster.store import Outcome
from tidelog.handlers.names import is_internal, name_problem
from tidelog.handlers.request import Outstanding, Request, Result
from tidelog.handlers.uuids import to_bytes, to_uuid
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Role

_ZERO = timedelta(0)
_NO_OPERATIONS = -(2**31)
AUTO_CREATE_WAIT_MS = 5_000


def handle_metadata(broker: Broker, request: Request) -> Result:
    """*Behaviour*: brokers and the topics asked for; an unknown one is created if both sides allow it, and
    the answer waits until it is there.

    *Versions*: 0 takes no topics for all of them, 1 and later null; 4 lets the client forbid creation;
    7 adds leader epochs; 10 topic ids; 12 asks by id; 13 adds a top-level error.
    """
    asked = request.decode()
    wanted = _wanted_topics(broker, asked, request.version)
    if wanted is None:
        return _metadata(broker, request, [(t, None, t.name) for t in broker.image.topics.values()])
    missing = [name for topic, topic_id, name in wanted if topic is None and topic_id is None and name]
    may_create = broker.settings.flag("auto.create.topics.enable") and getattr(
        asked, "allow_auto_topic_creation", True
    )
    to_create = [name for name in dict.fromkeys(missing) if name_problem(name) is None]
    del to_create[AUTO_CREATED_TOPICS_MAX:]
    if not to_create or not may_create:
        return _metadata(broker, request, wanted)
    return _create_then_answer(broker, request, to_create, wanted)


Wanted = list[tuple[TopicFacts | None, bytes | None, str | None]]


def _wanted_topics(broker: Broker, asked: Any, version: int) -> Wanted | None:
    if asked.topics is None or (version == 0 and not asked.topics):
        return None
    wanted: Wanted = []
    # Each once: a large topic named a thousand times would make an answer of gigabytes.
    for topic in dict.fromkeys(asked.topics):
        topic_id = to_bytes(getattr(topic, "topic_id", None))
        if topic.name is None and topic_id is not None:
            wanted.append((broker.image.topics_by_id.get(topic_id), topic_id, None))
        else:
            wanted.append((broker.image.topics.get(topic.name or ""), None, topic.name or ""))
    return wanted


def _create_then_answer(broker: Broker, request: Request, names: list[str], wanted: Wanted) -> Result:
    """Park until the store has decided on every missing topic."""

    def answer() -> bytes:
        found: Wanted = [
            (broker.image.topics.get(name) if name else topic, topic_id, name)
            for topic, topic_id, name in wanted
        ]
        return _metadata(broker, request, found)

    parked = Outstanding(broker.uptime_ms + AUTO_CREATE_WAIT_MS, answer)
    undecided = dict.fromkeys(names)

    def on_outcome(name: str) -> None:
        undecided.pop(name)
        if not undecided:
            broker.waiting.finish(parked, answer())

    for name in names:
        count = broker.settings.number("num.partitions")
        replicas = min(broker.settings.number("default.replication.factor"), len(broker.image.brokers))
        assignment = place(count, replicas, list(broker.image.brokers), broker.node_id)

        def then(_: Outcome, name: str = name) -> None:
            on_outcome(name)

        broker.create_topic(name, {}, assignment, then)
    return parked


def _metadata(broker: Broker, request: Request, wanted: Wanted) -> bytes:
    brokers = tuple(
        request.make(
            "MetadataResponseBroker",
            node_id=facts.node_id,
            host=facts.host,
            port=facts.port,
            rack=facts.rack or None,
        )
        for facts in broker.image.brokers.values()
    )
    return request.respond(
        throttle_time=_ZERO,
        brokers=brokers,
        cluster_id=broker.image.cluster_id,
        controller_id=broker.node_id,
        topics=tuple(_topic(broker, request, topic, topic_id, name) for topic, topic_id, name in wanted),
        cluster_authorized_operations=_NO_OPERATIONS,
        error_code=ErrorCode.none,
    )


def _topic(
    broker: Broker, request: Request, topic: TopicFacts | None, topic_id: bytes | None, name: str | None
) -> Any:
    if topic is None:
        return request.make(
            "MetadataResponseTopic",
            error_code=_missing_error(name, topic_id),
            name=name if name is not None or request.version >= 12 else "",
            topic_id=to_uuid(topic_id),
            is_internal=False,
            partitions=(),
            topic_authorized_operations=_NO_OPERATIONS,
        )
    return request.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=to_uuid(topic.topic_id),
        is_internal=is_internal(topic.name),
        partitions=tuple(_partition(broker, request, topic, index) for index in sorted(topic.partitions)),
        topic_authorized_operations=_NO_OPERATIONS,
    )


def _missing_error(name: str | None, topic_id: bytes | None) -> ErrorCode:
    if topic_id is not None:
        return ErrorCode.unknown_topic_id
    if name_problem(name or "") is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _partition(broker: Broker, request: Request, topic: TopicFacts, index: int) -> Any:
    facts = topic.partitions[index]
    here = broker.partitions.of(topic.topic_id)
    is_offline = here is None or here[index].role is Role.OFFLINE
    return request.make(
        "MetadataResponsePartition",
        error_code=ErrorCode.leader_not_available if is_offline else ErrorCode.none,
        partition_index=index,
        leader_id=-1 if is_offline else facts.leader,
        leader_epoch=facts.leader_epoch,
        replica_nodes=tuple(facts.replicas),
        isr_nodes=tuple(facts.in_sync_replicas),
        offline_replicas=tuple(facts.replicas) if is_offline else (),
    )


def handle_find_coordinator(broker: Broker, request: Request) -> Result:
    """*Behaviour*: there are no groups and no transactions yet, so no coordinator can be had.

    *Versions*: 1 adds key types and messages; 4 asks for many at once.
    """
    asked = request.decode()
    error = ErrorCode.coordinator_not_available
    message = "this broker has no consumer groups and no transactions; assign partitions by hand"
    nowhere: dict[str, Any] = {
        "error_code": error,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if request.version < 4:
        return request.respond(throttle_time=_ZERO, **nowhere)
    coordinators = tuple(request.make("Coordinator", key=key, **nowhere) for key in asked.coordinator_keys)
    return request.respond(throttle_time=_ZERO, coordinators=coordinators)
