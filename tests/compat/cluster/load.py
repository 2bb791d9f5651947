"""Idempotent producers over a replicated topic: at full speed, or slow enough for every client to keep up.

**Invariant:** `Load.finish` and the checks of `tests/chaos/reading.py` hold for these as for one broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.chaos.workload import IDEMPOTENT, Load, Writer, content
from tests.compat.groups.spec import Partition
from tests.testing.watching import watch
from tidelog.testing import Cluster


class ReplicatedLoad(Load):
    """`Load` on a topic with three replicas of which two must be in sync."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, writers: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        watch(cluster).create(topic, partitions)
        common = {"bootstrap.servers": cluster.bootstrap_servers}
        self.writers = [
            self._writer(name, common | dict(settings) | {"metadata.max.age.ms": 1_000})
            for name, settings in writers.items()
        ]

    def _writer(self, name: str, settings: Mapping[str, Any]) -> Writer:
        return Writer(name, self.topic, self.partitions, settings)


class Trickle(ReplicatedLoad):
    """One writer, one record for each partition at a time."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(cluster, topic, partitions, {"trickle": IDEMPOTENT})

    def _writer(self, name: str, settings: Mapping[str, Any]) -> Writer:
        return _SlowWriter(name, self.topic, self.partitions, settings)

    @property
    def ends(self) -> dict[Partition, int]:
        """How far each partition was acknowledged."""
        (writer,) = self.writers
        return {(self.topic, index): count for index, count in enumerate(writer.ledger.counts)}


class _SlowWriter(Writer):
    def _send_burst(self) -> None:
        sent = self.ledger.sent
        for partition in range(len(sent)):
            value = content(self.name, partition, sent[partition])
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            sent[partition] += 1
