"""OffsetFetch: what a group has committed.

**Invariant:** an offset is told when it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.broker.broker import Broker
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.offsets import Spot, no_offset
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Turn
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.group_coordination import commit_deadline
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import ZERO, to_bytes, to_uuid
from tidelog.protocol.errors import ErrorCode

_IDS_VERSION = 10
_MANY_VERSION = 8
_ERROR_VERSION = 2


class _Named(NamedTuple):
    """One topic of a request: what it was named by, and what that is here."""

    asked: Any
    name: str | None
    topic_id: bytes


def _named(broker: Broker, topics: Iterable[Any], has_ids: bool) -> list[_Named]:
    named = []
    for asked in topics:
        if has_ids:
            topic = broker.image.topics_by_id.get(to_bytes(asked.topic_id) or ZERO)
        else:
            topic = broker.image.topics.get(asked.name)
        if topic is None:
            named.append(_Named(asked, None, NO_ID))
        else:
            named.append(_Named(asked, topic.name, topic.topic_id))
    return named


class _Wanted(NamedTuple):
    """One group of an OffsetFetch request; no topics for all that it has."""

    group_id: str
    member_id: str | None
    epoch: int
    topics: list[_Named] | None
    is_stable: bool  # an offset that a transaction is about to change is not to be told


class _Found(NamedTuple):
    error: ErrorCode
    topics: tuple[Any, ...]


def handle_offset_fetch(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the committed offsets of partitions, or of all that a group has; -1 where there is none.

    *Versions*: 2 may ask for all, and has the group's error; 5 adds leader epochs; 7 may refuse what
    an open transaction is about to change; 8 asks for many groups; 9 says who asks; 10 names topics by id.
    """
    asked = request.decode()
    has_ids = request.version >= _IDS_VERSION
    is_stable = getattr(asked, "require_stable", False)
    wanted = []
    for group in asked.groups if request.version >= _MANY_VERSION else (asked,):
        topics = _named(broker, group.topics, has_ids) if group.topics is not None else None
        member_id, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        wanted.append(_Wanted(group.group_id, member_id, epoch, topics, is_stable))
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
        return _all_fetched(broker, request, groups, wanted)
    topics = []
    for topic in wanted.topics:
        if topic.name is None and request.version >= _IDS_VERSION:
            unknown = ErrorCode.unknown_topic_id
            parts = [_part(request, index, no_offset(), unknown) for index in topic.asked.partition_indexes]
        else:
            name = topic.name or topic.asked.name
            parts = [
                _spot(broker, request, groups, wanted, (name, index))
                for index in topic.asked.partition_indexes
            ]
        topics.append(_topic(request, getattr(topic.asked, "name", ""), topic.topic_id, topic.asked, parts))
    return tuple(topics)


def _all_fetched(
    broker: Broker, request: Request, groups: GroupCoordinator, wanted: _Wanted
) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for name, index in groups.offsets.of(wanted.group_id):
        by_topic.setdefault(name, []).append(index)
    topics = []
    for name, indexes in by_topic.items():
        known = broker.image.topics.get(name)
        if known is None and request.version >= _IDS_VERSION:
            continue  # it has no id to be told by
        parts = [_spot(broker, request, groups, wanted, (name, index)) for index in indexes]
        topics.append(_topic(request, name, known.topic_id if known is not None else NO_ID, None, parts))
    return tuple(topics)


def _spot(broker: Broker, request: Request, groups: GroupCoordinator, wanted: _Wanted, spot: Spot) -> Any:
    if wanted.is_stable and groups.is_pending(wanted.group_id, spot):
        return _part(request, spot[1], no_offset(), ErrorCode.unstable_offset_commit)
    found = groups.committed(broker.coordinators.topics, wanted.group_id, spot)
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
        return request.respond(groups=groups)
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
    return request.respond(topics=topics, error_code=error)
