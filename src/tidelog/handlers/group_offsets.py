"""OffsetCommit, OffsetFetch and OffsetDelete: where a group is in each partition.

**Invariant:** a commit is acknowledged when it is in the journal, and an offset is told when it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from tidelog.base.limits import API_VERSION_BITS, COMMITS_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.cluster.image import TopicFacts
from tidelog.groups.coordinator import CommitAsk, GroupCoordinator
from tidelog.groups.offsets import Commit, Spot, no_offset
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Turn
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.groups import commit_deadline, coordinate
from tidelog.handlers.names import unknown_error
from tidelog.handlers.request import NO_THROTTLE, Request, Result
from tidelog.handlers.uuids import ZERO, to_bytes, to_uuid
from tidelog.protocol.commit import (
    CommitForm,
    decode_offset_commit,
    encode_offset_commit,
    frame_of,
)
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode

_MISSING = -1  # the number of partitions of a topic that there is not
_IDS_VERSION = 10
_EPOCHS_VERSION = 9
_MANY_VERSION = 8
_ERROR_VERSION = 2
OFFSET_COMMIT = 8
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4
_new = tuple.__new__  # of a named tuple, at a third of what calling its class costs


# Of a commit: each topic with its partitions, whatever else is said of them.
_Topics = Sequence[tuple[str | bytes, Sequence[tuple[int, *tuple[object, ...]]]]]


class _Named(NamedTuple):
    """One topic of a request: what it was named by, and what that is here."""

    asked: Any
    name: str | None
    topic_id: bytes
    partition_count: int


def _named(broker: Broker, topics: Iterable[Any], has_ids: bool) -> list[_Named]:
    named = []
    for asked in topics:
        if has_ids:
            topic = broker.image.topics_by_id.get(to_bytes(asked.topic_id) or ZERO)
        else:
            topic = broker.image.topics.get(asked.name)
        if topic is None:
            named.append(_Named(asked, None, NO_ID, 0))
        else:
            named.append(_Named(asked, topic.name, topic.topic_id, len(topic.partitions)))
    return named


def handle_offset_commit(broker: Broker, request: Request) -> Result:
    """*Behaviour*: keeps an offset for each partition, of a member or of somebody who is in no group.

    *Versions*: to 4 it may say how long to keep them; 6 adds leader epochs; 7 static members; 9 the consumer
    protocol; 10 names topics by id.
    """
    version, connection = request.version, request.connection
    decoded, form = decode_offset_commit(version, request.data, request.position)
    group_id, epoch, member_id, instance_id, retention_ms, topics = decoded
    connection.repeated = _RepeatedCommit(broker, version, form) if form is not None else None
    counts: list[int] = []
    commits: list[Commit] = []
    for topic, parts in topics:
        known = _known(broker, topic)
        count = len(known.partitions) if known is not None else _MISSING
        counts.append(count)
        if known is not None:
            name, topic_id = known.name, known.topic_id
            commits += [Commit(name, *part, topic_id) for part in parts if 0 <= part[0] < count]
    waiting = _WaitingCommit(broker, version, request.correlation_id, topics, counts)
    if not commits:
        return waiting.encode([])
    if len(commits) > COMMITS_MAX:
        return waiting.encode([ErrorCode.invalid_commit_offset_size] * len(commits))
    shard = broker.coordinators.find(group_id)
    if isinstance(shard, ErrorCode):
        return waiting.encode([shard] * len(commits))
    knows_epochs = version >= _EPOCHS_VERSION
    ask = CommitAsk(group_id, member_id, instance_id, epoch, retention_ms, knows_epochs, commits)
    broker.coordinators.commit(shard, ask, waiting)
    return waiting


def _known(broker: Broker, topic: str | bytes) -> TopicFacts | None:
    image = broker.image
    return image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)


class _RepeatedCommit:
    """The commits of a member that differ from its last one in offsets alone, and in nothing that is wrong:
    they go the shorter of two ways to the same coordinator."""

    __slots__ = ("_asker", "_broker", "_count_place", "_form", "_partitions", "_version", "_well")

    def __init__(self, broker: Broker, version: int, form: CommitForm) -> None:
        self._broker = broker
        self._version = version
        self._form = form
        knows_epochs = version >= _EPOCHS_VERSION
        self._asker = (form.group_id, form.member_id, None, form.epoch, -1, knows_epochs)
        self._count_place = OFFSET_COMMIT << API_VERSION_BITS | version
        self._partitions: list[int] = []
        self._well = b""  # what is answered if all is well with those

    def serve(self, frame: memoryview) -> Parked | None:
        broker, form = self._broker, self._form
        parts = form.parts_in(frame)
        if not parts or len(parts) > COMMITS_MAX:
            return None
        known, shard = _known(broker, form.topic), broker.coordinators.find(form.group_id)
        if known is None or isinstance(shard, ErrorCode):
            return None
        name, topic_id, count = known.name, known.topic_id, len(known.partitions)
        commits, partitions = [], []
        for partition, offset, leader_epoch in parts:
            if not 0 <= partition < count:
                return None
            commits.append(_new(Commit, (name, partition, offset, leader_epoch, "", topic_id)))
            partitions.append(partition)
        if partitions != self._partitions:
            self._partitions, self._well = partitions, form.well(partitions)
        broker.served_counts[self._count_place] += 1
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, _CORRELATION_ID_AT)
        topics = [(form.topic, parts)]
        waiting = _WaitingCommit(broker, self._version, correlation_id, topics, [count], self._well)
        broker.coordinators.commit(shard, _new(CommitAsk, (*self._asker, commits)), waiting)
        return waiting


class _WaitingCommit(Parked):
    """An OffsetCommit request that is answered when it is written."""

    __slots__ = ("_broker", "_correlation_id", "_counts", "_topics", "_version", "_well")

    def __init__(
        self,
        broker: Broker,
        version: int,
        correlation_id: int,
        topics: _Topics,
        counts: list[int],
        well: bytes = b"",
    ) -> None:
        super().__init__(commit_deadline(broker), [])
        self.api_key = OFFSET_COMMIT
        self._broker = broker
        self._version = version
        self._correlation_id = correlation_id
        self._topics = topics
        self._counts = counts  # of partitions in each topic
        self._well = well  # what is answered if all is well, if that is known

    def give(self, codes: list[ErrorCode]) -> None:
        self._broker.waiting.finish(self, self.encode(codes))

    def fail(self, code: int) -> None:
        if not self.is_gone:
            self._broker.waiting.finish(self, self._refusal(ErrorCode(code)))

    def finish_late(self) -> Answer | None:
        return self._refusal(ErrorCode.coordinator_not_available)

    def _refusal(self, code: ErrorCode) -> bytes:
        part_count = sum(len(parts) for _, parts in self._topics)
        return self.encode([code] * part_count)

    def encode(self, codes: list[ErrorCode]) -> bytes:
        """With one code for each partition that there is."""
        if self._well and not any(codes):
            return frame_of(self._correlation_id, self._well)
        left = iter(codes)
        answer = []
        for (topic, parts), count in zip(self._topics, self._counts, strict=True):
            told = []
            for part in parts:
                is_there = 0 <= part[0] < count
                told.append((part[0], next(left) if is_there else unknown_error(topic, count != _MISSING)))
            answer.append((topic, told))
        return encode_offset_commit(self._version, self._correlation_id, answer)


class _Wanted(NamedTuple):
    """One group of an OffsetFetch request; no topics for all that it has."""

    group_id: str
    member_id: str | None
    epoch: int
    topics: list[_Named] | None


class _Found(NamedTuple):
    error: ErrorCode
    topics: tuple[Any, ...]


def handle_offset_fetch(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the committed offsets of partitions, or of all that a group has; -1 where there is none.

    *Versions*: 2 may ask for all, and has the group's error; 5 adds leader epochs; 7 asks to wait for
    transactions, of which there are none; 8 asks for many groups; 9 says who asks; 10 names topics by id.
    """
    asked = request.decode()
    has_ids = request.version >= _IDS_VERSION
    wanted = []
    for group in asked.groups if request.version >= _MANY_VERSION else (asked,):
        topics = _named(broker, group.topics, has_ids) if group.topics is not None else None
        member_id, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        wanted.append(_Wanted(group.group_id, member_id, epoch, topics))
    late = _Found(ErrorCode.coordinator_not_available, ())
    gathering: Gathering[_Found] = Gathering(
        broker,
        commit_deadline(broker),
        len(wanted),
        late,
        lambda found: _encode_fetch(request, wanted, found),
    )
    if not wanted:
        return _encode_fetch(request, wanted, [])
    seen: set[str] = set()
    for place, group in enumerate(wanted):
        if group.group_id in seen:  # the answer would be as long again for a few bytes
            gathering.put(place, _Found(ErrorCode.invalid_request, ()))
            continue
        seen.add(group.group_id)
        _fetch_group(broker, request, group, place, gathering)
    return gathering.result()


def _fetch_group(
    broker: Broker,
    request: Request,
    wanted: _Wanted,
    place: int,
    gathering: Gathering[_Found],
) -> None:
    shard = broker.coordinators.find(wanted.group_id)
    if isinstance(shard, ErrorCode):
        gathering.put(place, _Found(shard, ()))
        return
    ticket = Part(gathering, place, lambda code: _Found(code, ()))

    def command(groups: GroupCoordinator, turn: Turn) -> None:
        code = groups.check_fetch(wanted.group_id, wanted.member_id, wanted.epoch)
        found = _Found(code, ())
        if code is ErrorCode.none:
            found = _Found(code, _fetched(broker, request, groups, wanted))
        turn.decision.answer(ticket, found)

    if not broker.coordinators.run(shard, command):
        ticket.fail(ErrorCode.coordinator_load_in_progress)


def _fetched(broker: Broker, request: Request, groups: GroupCoordinator, wanted: _Wanted) -> tuple[Any, ...]:
    if wanted.topics is None:
        return _all_fetched(broker, request, groups, wanted.group_id)
    topics = []
    for topic in wanted.topics:
        if topic.name is None and request.version >= _IDS_VERSION:
            unknown = ErrorCode.unknown_topic_id
            parts = [_part(request, index, no_offset(), unknown) for index in topic.asked.partition_indexes]
        else:
            name = topic.name or topic.asked.name
            parts = [
                _spot(broker, request, groups, wanted.group_id, (name, index))
                for index in topic.asked.partition_indexes
            ]
        topics.append(_topic(request, getattr(topic.asked, "name", ""), topic.topic_id, topic.asked, parts))
    return tuple(topics)


def _all_fetched(
    broker: Broker, request: Request, groups: GroupCoordinator, group_id: str
) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for name, index in groups.offsets.of(group_id):
        by_topic.setdefault(name, []).append(index)
    topics = []
    for name, indexes in by_topic.items():
        known = broker.image.topics.get(name)
        if known is None and request.version >= _IDS_VERSION:
            continue  # it has no id to be told by
        parts = [_spot(broker, request, groups, group_id, (name, index)) for index in indexes]
        topics.append(_topic(request, name, known.topic_id if known is not None else NO_ID, None, parts))
    return tuple(topics)


def _spot(broker: Broker, request: Request, groups: GroupCoordinator, group_id: str, spot: Spot) -> Any:
    found = groups.committed(broker.coordinators.topics, group_id, spot)
    if found is None or broker.coordinators.is_deleted(spot[0], found.topic_id):
        found = no_offset()
    return _part(request, spot[1], found, ErrorCode.none)


def _part(request: Request, index: int, committed: CommittedOffset, code: ErrorCode) -> Any:
    many = request.version >= _MANY_VERSION
    return request.make(
        "OffsetFetchResponsePartitions" if many else "OffsetFetchResponsePartition",
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _topic(request: Request, name: str, topic_id: bytes, asked: Any, parts: list[Any]) -> Any:
    many = request.version >= _MANY_VERSION
    told_id = asked.topic_id if hasattr(asked, "topic_id") else to_uuid(topic_id)
    return request.make(
        "OffsetFetchResponseTopics" if many else "OffsetFetchResponseTopic",
        name=name,
        topic_id=told_id,
        partitions=tuple(parts),
    )


def _encode_fetch(request: Request, wanted: list[_Wanted], found: list[_Found]) -> bytes:
    if request.version >= _MANY_VERSION:
        groups = tuple(
            request.make(
                "OffsetFetchResponseGroup", group_id=group.group_id, topics=part.topics, error_code=part.error
            )
            for group, part in zip(wanted, found, strict=True)
        )
        return request.respond(throttle_time=NO_THROTTLE, groups=groups)
    topics, error = found[0].topics, found[0].error
    if error is not ErrorCode.none and request.version < _ERROR_VERSION:
        topics = tuple(
            _topic(
                request,
                topic.asked.name,
                NO_ID,
                topic.asked,
                [_part(request, index, no_offset(), error) for index in topic.asked.partition_indexes],
            )
            for topic in wanted[0].topics or ()
        )
    return request.respond(throttle_time=NO_THROTTLE, topics=topics, error_code=error)


def handle_offset_delete(broker: Broker, request: Request) -> Result:
    """*Behaviour*: forgets what a group committed, but not for topics that its members consume."""
    asked = request.decode()
    named = _named(broker, asked.topics, False)
    spots = [
        (topic.name, part.partition_index)
        for topic in named
        for part in topic.asked.partitions
        if topic.name is not None and 0 <= part.partition_index < topic.partition_count
    ]

    def encode(answer: tuple[ErrorCode, list[ErrorCode]]) -> bytes:
        if answer[0] is not ErrorCode.none:
            return refuse(answer[0])
        codes = dict(zip(spots, answer[1], strict=True))
        unknown = ErrorCode.unknown_topic_or_partition
        topics = tuple(
            request.make(
                "OffsetDeleteResponseTopic",
                name=topic.asked.name,
                partitions=tuple(
                    request.make(
                        "OffsetDeleteResponsePartition",
                        partition_index=part.partition_index,
                        error_code=codes.get((topic.asked.name, part.partition_index), unknown),
                    )
                    for part in topic.asked.partitions
                ),
            )
            for topic in named
        )
        return request.respond(error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=topics)

    def refuse(code: ErrorCode) -> bytes:
        return request.respond(error_code=code, throttle_time=NO_THROTTLE, topics=())

    if not asked.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        asked.group_id,
        lambda ticket: lambda groups, turn: groups.delete_offsets(turn, asked.group_id, spots, ticket),
        encode,
        refuse,
    )
