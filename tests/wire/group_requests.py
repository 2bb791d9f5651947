"""Requests of groups in any version, by their plain values; topics are given by name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.wire.harness import FIND_COORDINATOR, Harness, parts, seconds
from tests.wire.requests import topic_uuid

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
GROUP_APIS = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
    CONSUMER_HEARTBEAT,
    CONSUMER_DESCRIBE,
)
GROUP = "group"
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"  # version 1, of the topic `t`
Protocols = tuple[tuple[str, bytes], ...]
Spots = dict[str, list[tuple[int, int]]]  # topic to (partition, offset)


def serve_groups(harness: Harness) -> None:
    """Have the broker make the topic that keeps groups."""
    harness.ask(FIND_COORDINATOR, 0, key=GROUP)


def join_values(
    version: int,
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    protocol_type: str = "consumer",
    protocols: Protocols = (("range", SUBSCRIPTION),),
) -> dict[str, Any]:
    part = parts(JOIN_GROUP, version)
    return {
        "group_id": group_id,
        "session_timeout": seconds(session_ms / 1_000),
        "rebalance_timeout": seconds(rebalance_ms / 1_000),
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": protocol_type,
        "protocols": tuple(
            part.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ),
        "reason": None,
    }


def sync_values(
    version: int,
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> dict[str, Any]:
    part = parts(SYNC_GROUP, version)
    return {
        "group_id": group_id,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": protocol[0],
        "protocol_name": protocol[1],
        "assignments": tuple(
            part.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in (assignments or {}).items()
        ),
    }


def beat_values(
    member_id: str, generation: int, *, group_id: str = GROUP, instance_id: str | None = None
) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
    }


def leave_values(version: int, *leaving: tuple[str, str | None], group_id: str = GROUP) -> dict[str, Any]:
    """(member id, instance id) of who leaves; old versions know one member."""
    if version < 3:
        return {"group_id": group_id, "member_id": leaving[0][0]}
    part = parts(LEAVE_GROUP, version)
    members = tuple(
        part.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=None)
        for member_id, instance_id in leaving
    )
    return {"group_id": group_id, "members": members}


def commit_values(
    harness: Harness,
    version: int,
    spots: Spots,
    member_id: str = "",
    epoch: int = -1,
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    metadata: str | None = "said",
    leader_epoch: int = 0,
) -> dict[str, Any]:
    part = parts(OFFSET_COMMIT, version)

    def row(index: int, offset: int) -> Any:
        return part.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )

    topics = tuple(
        part.OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_uuid(harness, name),
            partitions=tuple(row(index, offset) for index, offset in asked),
        )
        for name, asked in spots.items()
    )
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "retention_time": seconds(-0.001),
        "topics": topics,
    }


def fetch_offsets_values(
    harness: Harness,
    version: int,
    *groups: tuple[str, dict[str, list[int]] | None],
    member: tuple[str | None, int] = (None, -1),
) -> dict[str, Any]:
    """(group, topic to partitions or None for all) of each; old versions know one group."""
    part = parts(OFFSET_FETCH, version)
    many = version >= 8
    name_of = "OffsetFetchRequestTopics" if many else "OffsetFetchRequestTopic"

    def topics(asked: dict[str, list[int]] | None) -> Any:
        if asked is None:
            return None
        make_topic = getattr(part, name_of)
        return tuple(
            make_topic(name=name, topic_id=topic_uuid(harness, name), partition_indexes=tuple(indexes))
            for name, indexes in asked.items()
        )

    if not many:
        return {"group_id": groups[0][0], "topics": topics(groups[0][1]), "require_stable": True}
    rows = tuple(
        part.OffsetFetchRequestGroup(
            group_id=group_id, member_id=member[0], member_epoch=member[1], topics=topics(asked)
        )
        for group_id, asked in groups
    )
    return {"groups": rows, "require_stable": True}


def delete_offsets_values(asked: dict[str, list[int]], group_id: str = GROUP) -> dict[str, Any]:
    part = parts(OFFSET_DELETE, 0)
    topics = tuple(
        part.OffsetDeleteRequestTopic(
            name=name,
            partitions=tuple(part.OffsetDeleteRequestPartition(partition_index=index) for index in indexes),
        )
        for name, indexes in asked.items()
    )
    return {"group_id": group_id, "topics": topics}


def consumer_beat_values(
    version: int,
    member_id: str = "m",
    epoch: int = 0,
    *,
    group_id: str = GROUP,
    owned: dict[UUID, list[int]] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """A heartbeat of the consumer protocol; by default one that joins."""
    part = parts(CONSUMER_HEARTBEAT, version)
    partitions = tuple(
        part.TopicPartitions(topic_id=topic_id, partitions=tuple(indexes))
        for topic_id, indexes in (owned or {}).items()
    )
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": seconds(60),
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": partitions,
    } | values


def group_values(harness: Harness, api_key: int, version: int) -> dict[str, Any]:
    """A plausible request of any of the APIs of groups, about the topic `t`."""
    match api_key:
        case 8:
            return commit_values(harness, version, {"t": [(0, 5), (1, 6)]})
        case 9:
            return fetch_offsets_values(harness, version, (GROUP, {"t": [0, 1]}))
        case 11:
            return join_values(version)
        case 12:
            return beat_values("m", 1)
        case 13:
            return leave_values(version, ("m", None))
        case 14:
            return sync_values(version, "m", 1, {"m": b"part"})
        case 15:
            return {"groups": (GROUP, "other"), "include_authorized_operations": True}
        case 16:
            return {"states_filter": ("Empty", "Stable"), "types_filter": ("classic", "consumer")}
        case 42:
            return {"groups_names": ("absent", "other")}
        case 47:
            return delete_offsets_values({"t": [0, 1]}, "other")
        case 68:
            return consumer_beat_values(version, group_id="modern", member_id="m" if version else "")
        case _:
            return {"group_ids": (GROUP, "modern"), "include_authorized_operations": True}
