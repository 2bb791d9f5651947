"""The requests about transactions, and what their answers say.

**Invariant:** nothing here waits or retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.client.exchange import (
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    STABLE_OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    KioExchange,
)
from tidelog.protocol.batch import NO_PRODUCER_ID
from tidelog.protocol.messages import make

ONGOING = "Ongoing"  # the state of an open transaction
_NO_EPOCH = _NO_GENERATION = -1


class Opened(NamedTuple):
    """A transactional id, and the identity under which its transaction is or was open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Described(NamedTuple):
    """A transactional id as its coordinator has it."""

    state: str
    identity: Opened


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str


def init_exchange(transactional_id: str, timeout_ms: int) -> KioExchange:
    return KioExchange(
        INIT_PRODUCER_ID,
        lambda types: make(
            types.InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=_NO_EPOCH,
        ),
    )


def end_exchange(opened: Opened, commits: bool) -> KioExchange:
    return KioExchange(
        END_TXN,
        lambda types: make(
            types.EndTxnRequest,
            transactional_id=opened.transactional_id,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            committed=commits,
        ),
    )


def commit_exchange(
    opened: Opened, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> KioExchange:
    return KioExchange(TXN_OFFSET_COMMIT, partial(_build_commit, opened, group_id, offsets))


def _build_commit(
    opened: Opened, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], types: ModuleType
) -> Any:
    topics: dict[str, list[Any]] = {}
    for partition, committed in offsets.items():
        row = make(
            types.TxnOffsetCommitRequestPartition,
            partition_index=partition.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=-1,
            committed_metadata=committed.metadata,
        )
        topics.setdefault(partition.topic, []).append(row)
    return make(
        types.TxnOffsetCommitRequest,
        transactional_id=opened.transactional_id,
        group_id=group_id,
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        generation_id=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        topics=tuple(
            make(types.TxnOffsetCommitRequestTopic, name=name, partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )


def stable_fetch_exchange(group_id: str, partitions: Sequence[TopicPartition] | None) -> KioExchange:
    """The committed offsets of these partitions or of all, none of which a transaction may change still."""
    return KioExchange(STABLE_OFFSET_FETCH, partial(_build_fetch, group_id, partitions))


def _build_fetch(group_id: str, partitions: Sequence[TopicPartition] | None, types: ModuleType) -> Any:
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        topics = tuple(
            make(types.OffsetFetchRequestTopics, name=name, partition_indexes=tuple(indexes))
            for name, indexes in by_topic.items()
        )
    group = make(
        types.OffsetFetchRequestGroup, group_id=group_id, member_id=None, member_epoch=-1, topics=topics
    )
    return make(types.OffsetFetchRequest, groups=(group,), require_stable=True)


def describe_exchange(transactional_ids: Sequence[str]) -> KioExchange:
    return KioExchange(
        DESCRIBE_TRANSACTIONS,
        lambda types: make(types.DescribeTransactionsRequest, transactional_ids=tuple(transactional_ids)),
    )


def list_exchange(pattern: str, older_than_ms: int) -> KioExchange:
    """Open transactions whose ids match, as far as the broker knows patterns and ages."""
    return KioExchange(
        LIST_TRANSACTIONS,
        lambda types: make(
            types.ListTransactionsRequest,
            state_filters=(ONGOING,),
            producer_id_filters=(),
            duration_filter=older_than_ms,
            transactional_id_pattern=pattern,
        ),
    )
