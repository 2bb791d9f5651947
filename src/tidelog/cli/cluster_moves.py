"""Moves of replicas between brokers: requests to the cluster and their progress (KIP-455).

**Invariant:** each partition has its own outcome; asking for progress changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.cluster_layout import Place
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import Cluster, ask_cluster, open_controller
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

UNKNOWN_SIZE = -1
_TIMEOUT = timedelta(seconds=ANSWER_TIMEOUT_S - 5)  # a late answer is better than none
_TOGETHER = 1_000  # partitions in one request


@dataclass(frozen=True, slots=True)
class Move:
    """A partition with new replicas, or a new order of them; `size` is the size of one copy."""

    topic: str
    number: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int = UNKNOWN_SIZE

    @property
    def place(self) -> Place:
        return self.topic, self.number

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def copied_size(self) -> int:
        """The size of all copies to make; negative if unknown."""
        return self.size * len(self.adding)


@dataclass(frozen=True, slots=True)
class Disks:
    """The sizes of replicas by partition and broker, and the free space; of the brokers that report them."""

    sizes: dict[tuple[Place, int], int] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)

    def size_of(self, place: Place, brokers: Iterable[int]) -> int:
        """The size of the largest known copy."""
        return max(
            (self.sizes.get((place, broker), UNKNOWN_SIZE) for broker in brokers), default=UNKNOWN_SIZE
        )


def list_moves(bootstrap_server: str) -> list[Move]:
    """The moves under way, by name: `before` lacks the added replicas, `after` the leaving ones."""
    with open_any(bootstrap_server) as broker:
        answer = broker.ask(apis.LIST_PARTITION_REASSIGNMENTS, timeout=_TIMEOUT, topics=None)
    check("the list of moves", answer.error_code, answer.error_message)
    found = []
    for topic in answer.topics:
        for part in topic.partitions:
            before = tuple(broker for broker in part.replicas if broker not in part.adding_replicas)
            after = tuple(broker for broker in part.replicas if broker not in part.removing_replicas)
            found.append(Move(str(topic.name), int(part.partition_index), before, after))
    return sorted(found, key=lambda move: move.place)


def request_moves(
    bootstrap_server: str, targets: Mapping[Place, Sequence[int] | None]
) -> dict[Place, str | None]:
    """Request moves, or with None their cancellation; for each partition why it was refused, or None."""
    with open_any(bootstrap_server) as broker:
        cluster = ask_cluster(broker)
    outcomes: dict[Place, str | None] = {}
    places = sorted(targets)
    with open_controller(cluster, bootstrap_server) as broker:
        for start in range(0, len(places), _TOGETHER):
            some = {place: targets[place] for place in places[start : start + _TOGETHER]}
            outcomes |= _request(broker, some)
    return outcomes


def _request(broker: RemoteBroker, targets: Mapping[Place, Sequence[int] | None]) -> dict[Place, str | None]:
    types = broker.types(apis.ALTER_PARTITION_REASSIGNMENTS)
    by_topic: dict[str, list[Any]] = {}
    for (topic, number), target in targets.items():
        replicas = None if target is None else tuple(target)
        row = make(types.ReassignablePartition, partition_index=number, replicas=replicas)
        by_topic.setdefault(topic, []).append(row)
    answer = broker.ask(
        apis.ALTER_PARTITION_REASSIGNMENTS,
        timeout=_TIMEOUT,
        allow_replication_factor_change=True,
        topics=tuple(
            make(types.ReassignableTopic, name=topic, partitions=tuple(rows))
            for topic, rows in by_topic.items()
        ),
    )
    check("the move of replicas", answer.error_code, answer.error_message)
    told = {
        (topic.name, part.partition_index): part for topic in answer.responses for part in topic.partitions
    }
    return {place: _reason(told.get(place)) for place in targets}


def _reason(result: Any) -> str | None:
    if result is None:
        return "the broker did not say"
    if result.error_code is ErrorCode.none:
        return None
    return str(result.error_message or result.error_code.name.replace("_", " ")).rstrip(".")


def ask_disks(cluster: Cluster, brokers: Collection[int], places: Collection[Place] | None = None) -> Disks:
    """The replicas of these partitions, or all, on these brokers; a broker that does not answer is
    left out."""
    disks = Disks()
    for node in cluster.nodes:
        if node.id not in brokers or node.is_fenced:
            continue
        try:
            with RemoteBroker(node.address) as broker:
                answer = broker.ask(apis.DESCRIBE_LOG_DIRS, topics=_wanted(broker, places))
        except Failure:
            continue
        for found in answer.results:
            free = getattr(found, "usable_bytes", UNKNOWN_SIZE)
            if free >= 0:
                disks.free[node.id] = disks.free.get(node.id, 0) + free
            for topic in found.topics:
                for part in topic.partitions:
                    disks.sizes[(topic.name, part.partition_index), node.id] = part.partition_size
    return disks


def _wanted(broker: RemoteBroker, places: Collection[Place] | None) -> tuple[Any, ...] | None:
    if places is None:
        return None
    kind = broker.types(apis.DESCRIBE_LOG_DIRS).DescribableLogDirTopic
    return tuple(
        make(kind, topic=topic, partitions=tuple(number for name, number in sorted(places) if name == topic))
        for topic in sorted({topic for topic, _ in places})
    )


def keeps_books(bootstrap_server: str) -> bool:
    """Whether stopped brokers stay registered, so that they must be unregistered."""
    with open_any(bootstrap_server) as broker:
        return broker.serves(apis.UNREGISTER_BROKER)


def unregister(bootstrap_server: str, broker_id: int) -> bool:
    """Unregister a stopped broker; False if it is not registered."""
    with open_any(bootstrap_server) as broker:
        answer = broker.ask(apis.UNREGISTER_BROKER, broker_id=broker_id)
    if answer.error_code is ErrorCode.broker_id_not_registered:
        return False
    check(f"broker {broker_id}", answer.error_code, answer.error_message)
    return True
