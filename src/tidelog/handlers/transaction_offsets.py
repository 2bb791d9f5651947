"""TxnOffsetCommit: where a group is in each partition, as a part of a transaction.

A group whose partition is not in the transaction here waits for the coordinator of the transaction, as a
batch of it does (`broker/data_plane/verifying`).

**Invariant:** what is committed shows when the transaction is committed, and never before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidelog.base.decision import Writer
from tidelog.base.limits import COMMITS_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.shard import Awaited
from tidelog.broker.data_plane.verifying import FOR_THE_MOMENT, refusal_of
from tidelog.groups.offsets import Commit, TransactionCommit
from tidelog.handlers.group_coordination import commit_deadline
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition
from tidelog.transactions.transaction import Identity

_EPOCH_VERSION = 2
_MEMBER_VERSION = 3
_ABORTABLE_VERSION = 4
_ADDING_VERSION = 5
_COORDINATORS = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)


def handle_txn_offset_commit(broker: Broker, request: Request) -> Result:
    """*Behaviour*: keeps an offset for each partition, pending until the transaction ends.

    *Versions*: 2 adds leader epochs; 3 the member of the group; 4 knows TRANSACTION_ABORTABLE; 5 adds the
    group to the transaction (KIP-890).
    """
    asked = request.decode()
    commits: list[Commit] = []
    is_there: list[bool] = []
    for topic in asked.topics:
        known = broker.image.topics.get(topic.name)
        for part in topic.partitions:
            is_there.append(known is not None and part.partition_index in known.partitions)
            if known is not None and is_there[-1]:
                commits.append(_commit(topic.name, part, known.topic_id))

    def encode(codes: Sequence[int]) -> bytes:
        left = iter(codes)
        told = [next(left) if each else ErrorCode.unknown_topic_or_partition for each in is_there]
        return _respond(request, asked.topics, told)

    if not commits:
        return encode([])
    if not asked.group_id:
        return encode([ErrorCode.invalid_group_id] * len(commits))
    if len(commits) > COMMITS_MAX:
        return encode([ErrorCode.invalid_commit_offset_size] * len(commits))
    shard = broker.coordinators.find(asked.group_id)
    if isinstance(shard, ErrorCode):
        return encode([shard] * len(commits))
    refuse = partial(_refused, encode, len(commits))
    ticket = Awaited(broker.waiting, commit_deadline(broker), encode, refuse)
    held = HeldCommit(broker, request, asked, shard.partition, commits, ticket)
    if broker.transacting.verifying.passes(held.partition, held.producer):
        held.run()
    elif not broker.transacting.verifying.hold(held):
        ticket.fail(ErrorCode.coordinator_not_available)
    return ticket.result()


def _refused(encode: Callable[[Sequence[int]], bytes], count: int, code: ErrorCode) -> bytes:
    return encode([code] * count)


def _commit(topic: str, part: Any, topic_id: bytes) -> Commit:
    leader_epoch = getattr(part, "committed_leader_epoch", -1)
    metadata = part.committed_metadata or ""
    return Commit(topic, part.partition_index, part.committed_offset, leader_epoch, metadata, topic_id)


def _respond(request: Request, topics: Sequence[Any], codes: Sequence[int]) -> bytes:
    left = iter(codes)
    told = tuple(
        request.make(
            "TxnOffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                request.make(
                    "TxnOffsetCommitResponsePartition",
                    partition_index=part.partition_index,
                    error_code=ErrorCode(next(left)),
                )
                for part in topic.partitions
            ),
        )
        for topic in topics
    )
    return request.respond(topics=told)


class HeldCommit:
    """A commit that may have to wait for the coordinator of its transaction."""

    __slots__ = (
        "_asked",
        "_broker",
        "_ticket",
        "_version",
        "is_added",
        "partition",
        "producer",
        "size",
        "transactional_id",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        asked: Any,
        partition: Partition,
        commits: list[Commit],
        ticket: Awaited,
    ) -> None:
        self._broker = broker
        self._version = request.version
        self._asked = TransactionCommit(
            asked.group_id,
            getattr(asked, "member_id", ""),
            getattr(asked, "group_instance_id", None),
            getattr(asked, "generation_id", -1),
            commits,
            Writer(asked.producer_id, asked.producer_epoch),
        )
        self._ticket = ticket
        self.partition = partition
        self.producer = Identity(asked.producer_id, asked.producer_epoch)
        self.transactional_id = asked.transactional_id
        self.is_added = request.version >= _ADDING_VERSION
        self.size = len(request.data)

    @property
    def is_gone(self) -> bool:
        return self._ticket.is_gone

    def run(self) -> int:
        code = refusal_of(self.partition, self.producer)
        shard = self._broker.coordinators.find(self._asked.group_id)
        if isinstance(shard, ErrorCode):
            code = code or shard
        elif shard.partition is not self.partition:  # the group has moved; the transaction has its old place
            code = code or ErrorCode.not_leader_or_follower
        if code:
            self._ticket.fail(_told(code, self._version))
            return code
        assert not isinstance(shard, ErrorCode)
        asked, ticket = self._asked, self._ticket
        is_run = self._broker.coordinators.run(
            shard, lambda groups, turn: groups.commit_in_transaction(turn, asked, ticket)
        )
        if not is_run:
            ticket.fail(ErrorCode.coordinator_load_in_progress)
        return ErrorCode.none

    def refuse(self, code: int) -> None:
        self._ticket.fail(_told(code, self._version))


def _told(code: int, version: int) -> int:
    """The error that a producer gets: clients of groups know the errors of their coordinators."""
    if code == ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code == ErrorCode.not_leader_or_follower:
        return ErrorCode.not_coordinator
    if code == ErrorCode.transaction_abortable and version < _ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    if code == ErrorCode.not_coordinator:  # of the transaction, not of the group
        return ErrorCode.coordinator_load_in_progress
    if code in FOR_THE_MOMENT and code != ErrorCode.concurrent_transactions and code not in _COORDINATORS:
        return ErrorCode.coordinator_not_available
    return code
