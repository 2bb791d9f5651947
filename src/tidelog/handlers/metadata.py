"""Metadata: what clients learn of the cluster, from any broker (C4)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tidelog.base.limits import (
    AUTO_CREATE_WAIT_MS,
    AUTO_CREATED_TOPICS_MAX,
    METADATA_AT_ONCE_MAX,
    METADATA_WAIT_MS,
)
from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.cluster.facts import NOBODY, TopicFacts
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.cluster.store import Outcome
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.names import controller_told, is_internal, leader_of, name_problem, offline_replicas
from tidelog.handlers.operations import CLUSTER_OPERATIONS, NO_OPERATIONS, TOPIC_OPERATIONS
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import to_bytes
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.metadata import DescribedPartition, TopicWriter

_NOT_AVAILABLE = int(ErrorCode.leader_not_available)
_NOT_FOUND = int(ErrorCode.listener_not_found)
BY_ID_VERSION = 12
LISTENER_VERSION = 6


def handle_metadata(broker: Broker, request: Request) -> Result:
    """*Behaviour*: brokers and the topics asked for; an unknown one is created if both sides allow it, and
    the answer waits until it is there. Many topics are described in pieces. A broker without the listener
    that the client came in by is left out, and a partition that it leads has no leader.

    *Versions*: 0 takes no topics for all of them, 1 and later null; 4 lets the client forbid creation;
    6 tells a leader without that listener from one that is gone; 7 adds leader epochs; 10 topic ids; 12 asks
    by id; 13 adds a top-level error.
    """
    asked = request.decode()
    if any(_is_unanswerable(topic, request.version) for topic in asked.topics or ()):
        return _refuse_metadata(request, asked.topics)
    wanted = _wanted_topics(broker, asked, request.version)
    if wanted is None:
        wanted = [(t, None, t.name) for t in broker.image.topics.values()]
        return _answer_in_pieces(broker, request, asked, wanted)
    missing = [name for topic, topic_id, name in wanted if topic is None and topic_id is None and name]
    may_create = broker.settings.flag("auto.create.topics.enable") and getattr(
        asked, "allow_auto_topic_creation", True
    )
    wished = dict.fromkeys(missing) if may_create else {}
    to_create = [
        name for name in wished if name_problem(name) is None and broker.image.clash_of(name) is None
    ]
    del to_create[AUTO_CREATED_TOPICS_MAX:]
    if not to_create:
        return _answer_in_pieces(broker, request, asked, wanted)
    return _create_then_answer(broker, request, asked, to_create, wanted)


def _is_unanswerable(topic: Any, version: int) -> bool:
    """Ids are told from version 10 on, but can be asked for from 12 on."""
    has_id = getattr(topic, "topic_id", None) is not None
    return (has_id or topic.name is None) if version < BY_ID_VERSION else not has_id and topic.name is None


def _refuse_metadata(request: Request, topics: tuple[Any, ...]) -> bytes:
    refused = tuple(
        request.make(
            "MetadataResponseTopic",
            error_code=ErrorCode.invalid_request,
            name=topic.name or "",
            topic_id=getattr(topic, "topic_id", None),
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NO_OPERATIONS,
        )
        for topic in topics
    )
    return request.respond(
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=refused,
        cluster_authorized_operations=NO_OPERATIONS,
        error_code=ErrorCode.invalid_request,
    )


class View(NamedTuple):
    """The cluster as the clients of one listener see it."""

    broker: Broker
    reachable: Container[int]
    unreachable: int  # the error of a partition whose leader is there, but not for them


Wanted = list[tuple[TopicFacts | None, bytes | None, str | None]]


def _wanted_topics(broker: Broker, asked: Any, version: int) -> Wanted | None:
    if asked.topics is None or (version == 0 and not asked.topics):
        return None
    # Each once: a large topic named a thousand times would make an answer of gigabytes.
    topics = dict.fromkeys(asked.topics)
    ids = [topic_id for topic in topics if (topic_id := to_bytes(getattr(topic, "topic_id", None)))]
    if ids:  # a request by id asks for nothing by name
        unique = dict.fromkeys(ids)
        return [(broker.image.topics_by_id.get(topic_id), topic_id, None) for topic_id in unique]
    return [(broker.image.topics.get(topic.name), None, topic.name) for topic in topics]


def _create_then_answer(
    broker: Broker, request: Request, asked: Any, names: list[str], wanted: Wanted
) -> Result:
    """Park until the store has decided on every missing topic."""

    def answer(decided: list[Outcome | None]) -> bytes:
        found: Wanted = [
            (broker.image.topics.get(name) if name else topic, topic_id, name)
            for topic, topic_id, name in wanted
        ]
        return Description(broker, request, asked, found).finish()

    deadline_ms = broker.clock.uptime_ms + AUTO_CREATE_WAIT_MS
    decided: Gathering[Outcome | None] = Gathering(broker, deadline_ms, len(names), None, answer)
    for place, name in enumerate(names):
        count = broker.settings.number("num.partitions")
        replica_count = broker.settings.number("default.replication.factor")
        if name == GROUPS_TOPIC:
            broker.coordinators.create_topic(partial(decided.put, place, None))
        else:
            broker.topics.have_created(name, {}, count, replica_count, partial(decided.put, place))
    return decided.result()


def _answer_in_pieces(broker: Broker, request: Request, asked: Any, wanted: Wanted) -> Result:
    description = Description(broker, request, asked, wanted)
    if description.advance():
        return description.finish()
    parked = _Describing(broker, description)
    broker.waiting.look_at(parked)
    return parked


class Description:
    """A Metadata answer while it is made. Brokers are those of its beginning; each topic is as it was when
    its turn came, which its leader epochs tell."""

    def __init__(self, broker: Broker, request: Request, asked: Any, wanted: Wanted) -> None:
        of_topics = getattr(asked, "include_topic_authorized_operations", False)
        reachable = broker.image.addresses(request.client.listener)
        unreachable = _NOT_FOUND if request.version >= LISTENER_VERSION else _NOT_AVAILABLE
        self._view = View(broker, reachable, unreachable)
        self._operations = TOPIC_OPERATIONS if of_topics else NO_OPERATIONS
        self._frame = _without_topics(broker, request, asked, reachable)
        self._writer = TopicWriter(request.version)
        self._wanted = wanted
        self._topics: list[bytes] = []

    def advance(self) -> bool:
        """Describe some more topics; whether those were all."""
        left = METADATA_AT_ONCE_MAX
        for place in range(len(self._topics), len(self._wanted)):
            if left <= 0:
                return False
            one = self._wanted[place]
            self._topics.append(_topic(self._view, self._writer, *one, self._operations))
            left -= 1 + (len(one[0].partitions) if one[0] is not None else 0)
        return True

    def finish(self) -> bytes:
        while not self.advance():
            pass
        return self._writer.splice(self._frame, self._topics)


class _Describing(Parked):
    """One client's description of many topics, in pieces between which others have their turn."""

    __slots__ = ("_broker", "_description")

    def __init__(self, broker: Broker, description: Description) -> None:
        super().__init__(broker.clock.uptime_ms + METADATA_WAIT_MS, [])
        self._broker = broker
        self._description = description

    def try_finish(self) -> bytes | None:
        if self._description.advance():
            return self._description.finish()
        self._broker.waiting.look_at(self)
        return None

    def finish_late(self) -> bytes:
        return self._description.finish()


def _without_topics(
    broker: Broker, request: Request, asked: Any, reachable: Mapping[int, tuple[str, int]]
) -> bytes:
    of_cluster = getattr(asked, "include_cluster_authorized_operations", False)
    brokers = tuple(
        request.make(
            "MetadataResponseBroker",
            node_id=node_id,
            host=host,
            port=port,
            rack=broker.image.brokers[node_id].rack or None,
        )
        for node_id, (host, port) in reachable.items()
    )
    return request.respond(
        brokers=brokers,
        cluster_id=broker.image.cluster_id,
        controller_id=controller_told(broker, reachable),
        topics=(),
        cluster_authorized_operations=CLUSTER_OPERATIONS if of_cluster else NO_OPERATIONS,
        error_code=ErrorCode.none,
    )


def _topic(
    view: View,
    writer: TopicWriter,
    topic: TopicFacts | None,
    topic_id: bytes | None,
    name: str | None,
    operations: int,
) -> bytes:
    if topic is None:
        error = _missing_error(name, topic_id)
        told = operations if topic_id is None else NO_OPERATIONS  # nobody knows whose id it is
        return writer.write(error, name, topic_id, is_internal(name or ""), (), told)
    described = _described(view, topic)
    return writer.write(0, topic.name, topic.topic_id, is_internal(topic.name), described, operations)


def _missing_error(name: str | None, topic_id: bytes | None) -> ErrorCode:
    if topic_id is not None:
        return ErrorCode.unknown_topic_id
    if name_problem(name or "") is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _described(view: View, topic: TopicFacts) -> Iterator[DescribedPartition]:
    broker, reachable, unreachable = view
    for index in sorted(topic.partitions):
        facts = topic.partitions[index]
        leader = leader_of(broker, topic, index, reachable)
        error = 0
        if leader == NOBODY:
            is_hidden = facts.leader in broker.image.brokers and facts.leader not in reachable
            error = unreachable if is_hidden else _NOT_AVAILABLE
        offline = offline_replicas(broker, topic, index, reachable)
        yield error, index, leader, facts.leader_epoch, facts.replicas, facts.in_sync_replicas, offline
