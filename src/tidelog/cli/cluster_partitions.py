"""A cluster with all its partitions, from one of its brokers: leaders, replicas, ISR.

Asked by DescribeTopicPartitions if the broker has it, which includes eligible leader replicas
(KIP-966), and by Metadata if it is older.

**Invariant:** asking changes nothing: no topic is created by being named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidelog.cli.nodes import Cluster, ask_cluster, has_controller
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.cli.settings import KINDS
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

NOBODY = -1
_MIN_IN_SYNC = "min.insync.replicas"
_PAGE = 2_000  # partitions in one answer: Kafka's default maximum


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition; `eligible` is None if the broker does not report it."""

    topic: str
    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...] | None
    min_in_sync: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def preferred(self) -> int:
        return self.replicas[0] if self.replicas else NOBODY

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        return tuple(replica for replica in self.replicas if replica not in self.in_sync)

    @property
    def complete(self) -> tuple[int, ...]:
        """The replicas that have, or had when they stopped, all acknowledged records."""
        return tuple(dict.fromkeys((*self.in_sync, *(self.eligible or ()))))

    @property
    def is_offline(self) -> bool:
        return self.leader == NOBODY

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def is_under_min_in_sync(self) -> bool:
        """As brokers count: a partition with fewer replicas than min.insync.replicas needs only as many as it
        has."""
        return self.is_offline or len(self.in_sync) < min(self.min_in_sync, len(self.replicas))

    @property
    def is_led_by_another(self) -> bool:
        """Whether the preferred replica could lead and does not."""
        return not self.is_offline and self.leader != self.preferred and self.preferred in self.in_sync


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of the cluster at one moment."""

    cluster: Cluster
    partitions: tuple[Partition, ...]

    @property
    def live(self) -> frozenset[int]:
        return frozenset(node.id for node in self.cluster.nodes if not node.is_fenced)

    def where(self, is_wanted: Callable[[Partition], bool]) -> tuple[Partition, ...]:
        return tuple(partition for partition in self.partitions if is_wanted(partition))

    def on(self, broker_id: int) -> tuple[Partition, ...]:
        return self.where(lambda partition: broker_id in partition.replicas)


def take_picture(bootstrap_server: str) -> Picture:
    """The state from a single broker, so that its parts are consistent."""
    with open_any(bootstrap_server) as broker:
        cluster = ask_cluster(broker)
        if not has_controller(cluster):
            cluster = replace(cluster, controller_id=NOBODY)
        ask = _pages if broker.serves(apis.DESCRIBE_TOPIC_PARTITIONS) else _metadata
        topics = [(found.name, part) for found in ask(broker) for part in found.partitions]
        needed = _min_in_sync(broker, sorted({name for name, _ in topics}))
    partitions = [_partition(name, found, needed[name]) for name, found in topics if name in needed]
    return Picture(cluster, tuple(sorted(partitions)))


def _pages(broker: RemoteBroker) -> Iterator[Any]:
    cursor_type = broker.types(apis.DESCRIBE_TOPIC_PARTITIONS).Cursor
    cursor = None
    while True:
        answer = broker.ask(
            apis.DESCRIBE_TOPIC_PARTITIONS, topics=(), response_partition_limit=_PAGE, cursor=cursor
        )
        yield from answer.topics
        left = answer.next_cursor
        if left is None:
            return
        cursor = make(cursor_type, topic_name=left.topic_name, partition_index=left.partition_index)


def _metadata(broker: RemoteBroker) -> Iterator[Any]:
    answer = broker.ask(
        apis.METADATA,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    yield from answer.topics


def _min_in_sync(broker: RemoteBroker, topics: list[str]) -> dict[str, int]:
    """By topic; without topics that were deleted in between."""
    if not topics:
        return {}
    kind = broker.types(apis.DESCRIBE_CONFIGS).DescribeConfigsResource
    wanted = tuple(
        make(kind, resource_type=KINDS["topic"], resource_name=topic, configuration_keys=(_MIN_IN_SYNC,))
        for topic in topics
    )
    answer = broker.ask(
        apis.DESCRIBE_CONFIGS, resources=wanted, include_synonyms=False, include_documentation=False
    )
    needed = {}
    for result in answer.results:
        if result.error_code is ErrorCode.unknown_topic_or_partition:
            continue
        check(f"the settings of topic {result.resource_name!r}", result.error_code, result.error_message)
        needed[result.resource_name] = next((int(found.value) for found in result.configs), 1)
    return needed


def _partition(topic: str, found: Any, min_in_sync: int) -> Partition:
    eligible = getattr(found, "eligible_leader_replicas", None)
    return Partition(
        topic,
        found.partition_index,
        found.leader_id,
        getattr(found, "leader_epoch", -1),
        tuple(found.replica_nodes),
        tuple(found.isr_nodes),
        # A Kafka broker without eligible leader replicas answers null, which is the same as none.
        tuple(eligible or ()) if hasattr(found, "eligible_leader_replicas") else None,
        min_in_sync,
    )
