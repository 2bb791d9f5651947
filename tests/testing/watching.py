"""What a client sees of a cluster: who is there, who leads, who is in sync; and waiting until it is so.

**Invariant:** a wait ends with what is awaited or fails the test, with what was seen last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.cli.nodes import describe_cluster
from tidelog.testing import Cluster

TIMEOUT_S = 120.0
LOOK_S = 0.02


class Seen(NamedTuple):
    """One partition as Metadata tells it."""

    leader: int
    in_sync_replicas: frozenset[int]
    replicas: tuple[int, ...]


class Watcher:
    """A client that asks one broker, or any."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.admin = AdminClient(
            {
                "bootstrap.servers": bootstrap_servers,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def create(self, name: str, partitions: int = 1, replicas: int = -1, **config: object) -> None:
        """A topic; it has leaders when this returns."""
        named = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, replicas, config=named)
        self.admin.create_topics([topic])[name].result(TIMEOUT_S)
        self.until(
            lambda: [each.leader for each in self.partitions(name)].count(-1) == 0, f"{name} is not led"
        )

    def partitions(self, topic: str) -> list[Seen]:
        found = self.admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return [
            Seen(each.leader, frozenset(each.isrs), tuple(each.replicas)) for _, each in sorted(found.items())
        ]

    def leader(self, topic: str, partition: int = 0) -> int:
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [self.partitions(topic)[partition].leader]
            return found[0] >= 0

        self.until(is_led, f"{topic}-{partition} is not led")
        return found[0]

    def brokers(self) -> set[int]:
        return set(self.admin.list_topics(timeout=TIMEOUT_S).brokers)

    def controller(self) -> int:
        """Which broker decides; Metadata names any."""
        return describe_cluster(self._bootstrap_servers).controller_id

    def until_in_sync(self, *topics: str) -> None:
        """Until every replica of the topics is in sync."""

        def are_in_sync() -> bool:
            seen = [each for topic in topics for each in self.partitions(topic)]
            return all(each.leader >= 0 and each.in_sync_replicas == set(each.replicas) for each in seen)

        self.until(are_in_sync, f"not all replicas of {topics} are in sync", *topics)

    def until(self, holds: Callable[[], object], complaint: str, *topics: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        tick = threading.Event()
        while not _tried(holds):
            assert time.monotonic() < deadline, f"{complaint}: {[self.partitions(topic) for topic in topics]}"
            tick.wait(LOOK_S)


def watch(cluster: Cluster, node_id: int | None = None) -> Watcher:
    """A watcher of any broker, or of that one."""
    return Watcher(cluster.bootstrap_servers if node_id is None else cluster[node_id].bootstrap_servers)


def _tried(holds: Callable[[], object]) -> object:
    """A client whose brokers are all gone at the moment has seen nothing."""
    try:
        return holds()
    except KafkaException:
        return False
