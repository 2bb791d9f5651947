"""Open transactions as the leaders of partitions have them, and those of them that hang: no coordinator has
them open for that partition, so none will ever end them.

**Invariant:** a transaction is said to hang only if every coordinator has been asked, and if it is open still
after that.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from confluent_kafka.admin._metadata import ClusterMetadata

from tidelog.cli.connection import cluster_metadata, open_admin
from tidelog.cli.failure import Failure
from tidelog.cli.group_members import Partition
from tidelog.cli.nodes import Cluster, describe_cluster
from tidelog.cli.remote import RemoteBroker, check
from tidelog.cli.txn_coordinators import Transaction, owners_of
from tidelog.cluster.features import TRANSACTIONS_TOPIC
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

PARTITIONS_ASKED_MAX = 1_000  # in one request, as each may have many producers
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`coordinator_epoch` is that of the last marker; -1 before the first. `last_timestamp` is that of the
    producer's last record there."""

    partition: Partition
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int

    def is_older(self, age_ms: int, now_ms: int) -> bool:
        """Whether it is so old, as far as records say it: one from the future says nothing."""
        return not 0 <= now_ms - self.last_timestamp < age_ms

    def json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["partition"]
        return {"topic": self.partition.topic, "partition": self.partition.number} | facts


class Hanging(NamedTuple):
    transaction: OpenTransaction
    transactional_id: str | None  # that has the producer id, and not this transaction


class Found(NamedTuple):
    partition_count: int
    hanging: list[Hanging]
    failures: list[Failure]


class Leaders:
    """The leaders of all partitions, as a broker knew them."""

    def __init__(self, bootstrap_server: str) -> None:
        self.bootstrap_server = bootstrap_server
        self.metadata: ClusterMetadata = cluster_metadata(open_admin(bootstrap_server), bootstrap_server)
        self.cluster: Cluster = describe_cluster(bootstrap_server)

    def leader_of(self, partition: Partition) -> int:
        found: int = self.metadata.topics[partition.topic].partitions[partition.number].leader
        return found

    def partitions(self) -> list[Partition]:
        return sorted(
            Partition(name, number)
            for name, topic in self.metadata.topics.items()
            for number in topic.partitions
            if name != TRANSACTIONS_TOPIC  # no transaction writes there
        )

    def check_coordinators(self) -> list[Failure]:
        """A coordinator that nobody leads may have any transaction."""
        topic = self.metadata.topics.get(TRANSACTIONS_TOPIC)
        known = {node.id for node in self.cluster.nodes}
        leaderless = (
            [] if topic is None else [n for n, p in topic.partitions.items() if p.leader not in known]
        )
        if not leaderless:
            return []
        names = ", ".join(f"{TRANSACTIONS_TOPIC}-{number}" for number in sorted(leaderless))
        return [Failure(f"{names}: no leader; see 'tidelog cluster health', then search again")]

    def open(self, node_id: int) -> RemoteBroker:
        return RemoteBroker(self.cluster.node(node_id).address)


def open_transactions(
    leaders: Leaders, wanted: Collection[Partition]
) -> tuple[list[OpenTransaction], list[Failure]]:
    """What is open in these partitions, and the failures of those that could not be asked."""
    by_leader: dict[int, list[Partition]] = {}
    for partition in wanted:
        by_leader.setdefault(leaders.leader_of(partition), []).append(partition)
    found: list[OpenTransaction] = []
    failures: list[Failure] = []
    for node_id, partitions in sorted(by_leader.items()):
        if node_id == _NOBODY:
            names = ", ".join(map(name_of, partitions))
            failures.append(Failure(f"{names}: no leader; see 'tidelog cluster health'"))
            continue
        try:
            with leaders.open(node_id) as broker:
                _ask_leader(broker, partitions, found, failures)
        except Failure as failure:
            count = f"{len(partitions)} partitions are" if len(partitions) > 1 else "a partition is"
            failures.append(Failure(f"broker {node_id} cannot be asked; {count} missing: {failure}"))
    return sorted(found, key=lambda each: (each.partition, each.start_offset)), failures


def _ask_leader(
    broker: RemoteBroker,
    partitions: list[Partition],
    found: list[OpenTransaction],
    failures: list[Failure],
) -> None:
    pieces = [
        partitions[start : start + PARTITIONS_ASKED_MAX]
        for start in range(0, len(partitions), PARTITIONS_ASKED_MAX)
    ]
    while pieces:
        piece = pieces.pop(0)
        for partition, row in _describe_producers(broker, piece):
            if row.error_code is ErrorCode.policy_violation and len(piece) > 1:
                pieces.append([partition])  # too many producers for one answer
                continue
            try:
                check(name_of(partition), row.error_code, row.error_message)
            except Failure as failure:
                failures.append(failure)
                continue
            found += _open_of(partition, row.active_producers)


def _describe_producers(broker: RemoteBroker, partitions: Iterable[Partition]) -> list[tuple[Partition, Any]]:
    types = broker.types(apis.DESCRIBE_PRODUCERS)
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.number)
    answer = broker.ask(
        apis.DESCRIBE_PRODUCERS,
        topics=tuple(
            types.TopicRequest(name=name, partition_indexes=tuple(numbers))
            for name, numbers in topics.items()
        ),
    )
    return [
        (Partition(str(topic.name), int(row.partition_index)), row)
        for topic in answer.topics
        for row in topic.partitions
    ]


def _open_of(partition: Partition, producers: Iterable[Any]) -> list[OpenTransaction]:
    return [
        OpenTransaction(
            partition,
            int(producer.current_txn_start_offset),
            int(producer.producer_id),
            int(producer.producer_epoch),
            int(producer.coordinator_epoch),
            int(producer.last_timestamp),
        )
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]


def find_hanging(leaders: Leaders, wanted: Collection[Partition], age_ms: int) -> Found:
    """The transactions without an end, among those whose last record is so old."""
    opened, failures = open_transactions(leaders, wanted)
    now_ms = time.time_ns() // 1_000_000
    old = [each for each in opened if each.is_older(age_ms, now_ms)]
    if not old:
        return Found(len(wanted), [], failures)
    owners, doubts = owners_of(leaders.bootstrap_server, sorted({each.producer_id for each in old}))
    doubts += leaders.check_coordinators()
    hanging = [each for each in old if not has(owners, each)]
    if doubts:
        unknown = sorted({each.producer_id for each in hanging} - owners.keys())
        hanging = [each for each in hanging if each.producer_id in owners]
        if unknown:
            ids = ", ".join(map(str, unknown))
            doubts.append(Failure(f"of producer {ids} it cannot be said whether a coordinator has it"))
    still, more = open_transactions(leaders, sorted({each.partition for each in hanging}))
    left = {(each.partition, each.producer_id, each.start_offset) for each in still}
    found = [
        Hanging(each, owners[each.producer_id].transactional_id if each.producer_id in owners else None)
        for each in hanging
        if (each.partition, each.producer_id, each.start_offset) in left
    ]
    return Found(len(wanted), found, failures + doubts + more)


def has(owners: dict[int, Transaction], opened: OpenTransaction) -> bool:
    """Whether a coordinator will end it."""
    owner = owners.get(opened.producer_id)
    return owner is not None and owner.is_open and opened.partition in owner.partitions


def name_of(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
