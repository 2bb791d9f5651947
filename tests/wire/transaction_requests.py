"""Requests of transactions in any version, by their plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.wire.harness import FIND_COORDINATOR, INIT_PRODUCER_ID, Harness, parts, seconds
from tidelog.transactions.transaction import NO_IDENTITY, Identity

ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS, COMMIT_OFFSETS = 24, 25, 26, 27, 28
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
TRANSACTION_APIS = (
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END,
    WRITE_MARKERS,
    COMMIT_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
ID = "writer"
GROUP = "group"
ADDED_BY_BROKERS = 4  # the first version of AddPartitionsToTxn that leaders send
Partitions = dict[str, Sequence[int]]  # topic to partitions
Spots = dict[str, list[tuple[int, int]]]  # topic to (partition, offset)


def serve_transactions(harness: Harness) -> None:
    """Have the broker make the topic that keeps transactional ids, and one producer with such an id."""
    harness.ask(FIND_COORDINATOR, 1, key=ID, key_type=1)
    assert harness.ask(INIT_PRODUCER_ID, 5, **init_values()).error_code == 0


def init_values(
    transactional_id: str | None = ID, identity: Identity = NO_IDENTITY, timeout_ms: int = 60_000
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": seconds(timeout_ms / 1_000),
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }


def add_values(
    version: int,
    identity: Identity,
    partitions: Partitions,
    *,
    transactional_id: str = ID,
    verify_only: bool = False,
) -> dict[str, Any]:
    part = parts(ADD_PARTITIONS, version)
    topics = tuple(
        part.AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes))
        for name, indexes in partitions.items()
    )
    if version < ADDED_BY_BROKERS:
        return {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.epoch,
            "v3_and_below_topics": topics,
        }
    transaction = part.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return {"transactions": (transaction,)}


def add_offsets_values(
    identity: Identity, group_id: str = GROUP, transactional_id: str = ID
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "group_id": group_id,
    }


def end_values(identity: Identity, committed: bool, transactional_id: str = ID) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "committed": committed,
    }


def commit_values(
    version: int,
    identity: Identity,
    spots: Spots,
    *,
    group_id: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    transactional_id: str = ID,
) -> dict[str, Any]:
    part = parts(COMMIT_OFFSETS, version)
    topics = tuple(
        part.TxnOffsetCommitRequestTopic(
            name=name,
            partitions=tuple(
                part.TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata=metadata,
                )
                for index, offset in asked
            ),
        )
        for name, asked in spots.items()
    )
    return {
        "transactional_id": transactional_id,
        "group_id": group_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "topics": topics,
    }


def marker_values(
    version: int,
    identity: Identity,
    partitions: Partitions,
    committed: bool,
    *,
    coordinator_epoch: int = 0,
    protocol: int = 2,
) -> dict[str, Any]:
    """`protocol`: by which a transaction was ended; version 2 says it."""
    part = parts(WRITE_MARKERS, version)
    topics = tuple(
        part.WritableTxnMarkerTopic(name=name, partition_indexes=tuple(indexes))
        for name, indexes in partitions.items()
    )
    marker = part.WritableTxnMarker(
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        transaction_result=committed,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
        transaction_version=protocol,
    )
    return {"markers": (marker,)}


def list_values(
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> dict[str, Any]:
    return {
        "state_filters": tuple(states),
        "producer_id_filters": tuple(producer_ids),
        "duration_filter": duration_ms,
        "transactional_id_pattern": pattern,
    }


def transaction_values(api_key: int, version: int) -> dict[str, Any]:
    """Of a request about the topic `t`."""
    identity = Identity(0, 0)
    match api_key:
        case 24:
            return add_values(version, identity, {"t": [0, 1]}, verify_only=True)
        case 25:
            return add_offsets_values(identity)
        case 26:
            return end_values(identity, committed=True)
        case 27:
            return marker_values(version, identity, {"t": [0]}, committed=False)
        case 28:
            return commit_values(version, identity, {"t": [(0, 1)]})
        case 65:
            return {"transactional_ids": (ID, "other")}
        case _:
            return list_values(["Ongoing"], [0], 0, "w.*")
