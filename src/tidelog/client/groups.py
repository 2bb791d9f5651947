"""The committed offsets of a group, read and written from outside: as a consumer without members.

**Invariant:** topics are given by name, never by id: the versions used are those before topic ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any

from tidelog.base.limits import COMMITS_AT_ONCE
from tidelog.client.codes import name_of, passes
from tidelog.client.errors import ConnectionLost, Refused, TopicGone, TopicPartition
from tidelog.client.exchange import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, KioExchange
from tidelog.client.properties import Address
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

_NO_GENERATION = -1
_MEMBERS = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)


def coordinator_exchange(group_id: str) -> KioExchange:
    return KioExchange(
        FIND_COORDINATOR,
        lambda types: make(
            types.FindCoordinatorRequest, key=group_id, key_type=0, coordinator_keys=(group_id,)
        ),
    )


def read_coordinator(group_id: str, answer: Any) -> Address:
    row = answer.coordinators[0] if getattr(answer, "coordinators", ()) else answer
    code = getattr(row, "error_code", ErrorCode.coordinator_not_available)
    if code != ErrorCode.none:
        message = f"group {group_id}: FindCoordinator: {name_of(code)}"
        raise ConnectionLost(message) if passes(code) else Refused(message, code)
    return row.host, row.port


def commit_exchanges(group_id: str, offsets: Mapping[TopicPartition, int]) -> Iterator[KioExchange]:
    """As many requests as needed: brokers bound the size of each."""
    rows = sorted(offsets.items())
    for first in range(0, len(rows), COMMITS_AT_ONCE):
        piece = rows[first : first + COMMITS_AT_ONCE]
        yield KioExchange(OFFSET_COMMIT, partial(_build_commit, group_id, piece))


def _build_commit(group_id: str, rows: list[tuple[TopicPartition, int]], types: ModuleType) -> Any:
    topics: dict[str, list[Any]] = {}
    for partition, offset in rows:
        row = make(
            types.OffsetCommitRequestPartition,
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topics.setdefault(partition.topic, []).append(row)
    return make(
        types.OffsetCommitRequest,
        group_id=group_id,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        retention_time=timedelta(milliseconds=-1),
        topics=tuple(
            make(types.OffsetCommitRequestTopic, name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def check_commit(group_id: str, answer: Any) -> None:
    """Raise the coordinator's first error; a retriable one takes precedence."""
    rows = [
        (topic.name, row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    ]
    refused = [row for row in rows if row[2] != ErrorCode.none]
    for topic, index, code in sorted(refused, key=lambda row: not _may_pass(row[2])):
        message = f"group {group_id}: committing an offset of {TopicPartition(topic, index)}: {name_of(code)}"
        if _may_pass(code):
            raise ConnectionLost(message)
        if code == ErrorCode.unknown_topic_or_partition:
            raise TopicGone(f"{message}: the topic was deleted")
        if code in _MEMBERS:
            message += ": the group has members of its own; stop them, or choose another group id"
        raise Refused(message, code)


def _may_pass(code: int) -> bool:
    return passes(code) and code != ErrorCode.unknown_topic_or_partition


def committed_exchange(group_id: str) -> KioExchange:
    return KioExchange(OFFSET_FETCH, lambda types: _build_fetch(types, group_id))


def _build_fetch(types: ModuleType, group_id: str) -> Any:
    if not hasattr(types, "OffsetFetchRequestGroup"):
        return make(types.OffsetFetchRequest, group_id=group_id, topics=None, require_stable=False)
    group = make(
        types.OffsetFetchRequestGroup, group_id=group_id, member_id=None, member_epoch=-1, topics=None
    )
    return make(types.OffsetFetchRequest, groups=(group,), require_stable=False)


def read_committed(group_id: str, answer: Any) -> dict[TopicPartition, int]:
    row = answer.groups[0] if getattr(answer, "groups", ()) else answer
    _check_fetch(group_id, getattr(row, "error_code", ErrorCode.none))
    offsets = {}
    for topic in getattr(row, "topics", ()):
        for partition in topic.partitions:
            _check_fetch(group_id, partition.error_code)
            if partition.committed_offset >= 0:
                offsets[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
    return offsets


def _check_fetch(group_id: str, code: int) -> None:
    if code != ErrorCode.none:
        message = f"group {group_id}: OffsetFetch: {name_of(code)}"
        raise ConnectionLost(message) if passes(code) else Refused(message, code)
