"""Produce, Fetch and the other requests with many parts, in any version, by their plain values.

Topics are given by name; versions that want ids get the id that the broker knows, or one that nobody has.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.wire.harness import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Harness,
    parts,
    seconds,
)

NOBODY = UUID(int=2**100)
Batches = bytes | bytearray | None


def topic_uuid(harness: Harness, name: str) -> UUID:
    facts = harness.broker.image.topics.get(name)
    return UUID(bytes=facts.topic_id) if facts else NOBODY


def produce_values(
    harness: Harness,
    version: int,
    topics: dict[str, list[tuple[int, Batches]]],
    acks: int = -1,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    part = parts(PRODUCE, version)
    data = tuple(
        part.TopicProduceData(
            name=name,
            topic_id=topic_uuid(harness, name),
            partition_data=tuple(
                part.PartitionProduceData(index=index, records=None if batch is None else bytes(batch))
                for index, batch in batches
            ),
        )
        for name, batches in topics.items()
    )
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": seconds(30),
        "topic_data": data,
    }


def produce(
    harness: Harness, version: int, topic: str, batch: Batches, acks: int = -1, index: int = 0
) -> Any:
    """What became of one batch."""
    values = produce_values(harness, version, {topic: [(index, batch)]}, acks)
    return harness.ask(PRODUCE, version, **values).responses[0].partition_responses[0]


def fetch_values(
    harness: Harness,
    version: int,
    topics: dict[str, list[tuple[int, int]]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**20,
    partition_max_bytes: int = 2**20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    forgotten: dict[str, list[int]] | None = None,
    replica_id: int = -1,
) -> dict[str, Any]:
    """Topics to (index, offset) of what to fetch."""
    part = parts(FETCH, version)

    def ask(index: int, offset: int) -> Any:
        return part.FetchPartition(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )

    values: dict[str, Any] = {
        "replica_id": replica_id,
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": tuple(
            part.FetchTopic(
                topic=name,
                topic_id=topic_uuid(harness, name),
                partitions=tuple(ask(index, offset) for index, offset in asks),
            )
            for name, asks in topics.items()
        ),
        "rack_id": "",
        "cluster_id": None,
    }
    if version >= 7:
        values["forgotten_topics_data"] = tuple(
            part.ForgottenTopic(topic=name, topic_id=topic_uuid(harness, name), partitions=tuple(indexes))
            for name, indexes in (forgotten or {}).items()
        )
    if version >= 15 and replica_id >= 0:
        values["replica_state"] = part.ReplicaState(replica_id=replica_id, replica_epoch=1)
    return values


def fetch(harness: Harness, version: int, topic: str, offset: int, index: int = 0, **options: Any) -> Any:
    """What one partition answers."""
    values = fetch_values(harness, version, {topic: [(index, offset)]}, **options)
    return harness.ask(FETCH, version, **values).responses[0].partitions[0]


def metadata_values(version: int, names: list[str] | None, may_create: bool = False) -> dict[str, Any]:
    part = parts(METADATA, version)
    topics = None if names is None else tuple(part.MetadataRequestTopic(name=n, topic_id=None) for n in names)
    return {
        "topics": topics,
        "allow_auto_topic_creation": may_create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def list_offset(
    harness: Harness,
    version: int,
    topic: str,
    timestamp: int,
    *,
    index: int = 0,
    isolation_level: int = 0,
    leader_epoch: int = -1,
) -> Any:
    values = list_values(version, topic, timestamp, index, leader_epoch)
    answer = harness.ask(LIST_OFFSETS, version, **values, isolation_level=isolation_level)
    return answer.topics[0].partitions[0]


def list_values(
    version: int, topic: str, timestamp: int, index: int = 0, leader_epoch: int = -1
) -> dict[str, Any]:
    part = parts(LIST_OFFSETS, version)
    ask = part.ListOffsetsPartition(
        partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topics = (part.ListOffsetsTopic(name=topic, partitions=(ask,)),)
    return {"replica_id": -1, "topics": topics, "timeout": seconds(1)}


def end_of_epoch(
    harness: Harness, version: int, topic: str, epoch: int, *, index: int = 0, leader_epoch: int = -1
) -> Any:
    part = parts(OFFSET_FOR_LEADER_EPOCH, version)
    ask = part.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    answer = harness.ask(
        OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=(part.OffsetForLeaderTopic(topic=topic, partitions=(ask,)),),
    )
    return answer.topics[0].partitions[0]
