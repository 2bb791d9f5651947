"""kafka-python as a member of a group; it knows the classic protocol alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError

from tests.compat.client import Refused
from tests.compat.groups.drivers import POLL_SECONDS, Consumed, Told
from tests.compat.groups.spec import HEARTBEAT_MS, Partition, Place, Spec

ASSIGNORS = {
    "": [RangePartitionAssignor, RoundRobinPartitionAssignor],
    "range": [RangePartitionAssignor],
    "roundrobin": [RoundRobinPartitionAssignor],
    "cooperative-sticky": [CooperativeStickyAssignor],
}
SEE_MS = 10_000
UNKNOWN_TO_THE_CLIENT = -1
"""The client keeps to itself which code the broker refused a commit with."""


class KafkaPythonMember:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._consumer = KafkaConsumer(**_settings(spec))

    def start(self, told: Told) -> None:
        listener = _Listener(told)
        if self._spec.pattern:
            self._consumer.subscribe(pattern=self._spec.pattern, listener=listener)
        else:
            self._consumer.subscribe(topics=list(self._spec.topics), listener=listener)
            self._see_topics()

    def _see_topics(self) -> None:
        """Have the client's coordinator look at the topics before it joins. A leader that shares them out
        before that takes its first look for a change, and joins again."""
        coordinator = self._consumer._coordinator
        while not all(coordinator._metadata_snapshot.get(topic) for topic in self._spec.topics):
            seen = coordinator._cluster.request_update()
            coordinator._net.run(coordinator._manager.wait_for, seen, SEE_MS)

    def identity(self) -> tuple[str, int]:
        metadata = self._consumer.group_metadata()
        return metadata.member_id, metadata.generation_id

    def poll(self) -> list[Consumed]:
        if self._consumer._coordinator._join_task is not None:
            # A join for new metadata that the last poll's timeout cut short; the client would forget it.
            self._consumer._coordinator.request_rejoin()
        with _refusals():
            polled = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=100)
        return [
            Consumed(record.topic, record.partition, record.offset, record.value.decode())
            for batch in polled.values()
            for record in batch
        ]

    def hold(self) -> None:
        """Its callbacks come from within a poll."""

    def commit(self, places: Sequence[Place]) -> None:
        offsets = {
            TopicPartition(*each.of): OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
            for each in places
        }
        with _refusals():
            self._consumer.commit(offsets)

    def committed(self, partitions: Sequence[Partition]) -> list[Place]:
        found = []
        for partition in partitions:
            with _refusals():
                each = self._consumer.committed(TopicPartition(*partition), metadata=True)
            if each is not None and each.offset >= 0:
                found.append(Place(*partition, each.offset, each.metadata or "", each.leader_epoch))
        return found

    def position(self, partition: Partition) -> int:
        return int(self._consumer.position(TopicPartition(*partition)))

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._consumer.pause(*(TopicPartition(*partition) for partition in partitions))

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._consumer.resume(*(TopicPartition(*partition) for partition in partitions))

    def close(self) -> None:
        self._consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is not typed
    def __init__(self, told: Told) -> None:
        self._told: Callable[[str, Sequence[Partition]], None] = told

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._told("assigned", sorted(map(tuple, assigned)))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._told("revoked", sorted(map(tuple, revoked)))

    def on_partitions_lost(self, lost: Any) -> None:
        self._told("lost", sorted(map(tuple, lost)))


def _settings(spec: Spec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": spec.bootstrap,
        "group_id": spec.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": bool(spec.auto_commit_ms),
        "auto_commit_interval_ms": spec.auto_commit_ms or 5_000,
        "max_poll_interval_ms": spec.poll_interval_ms,
        "session_timeout_ms": spec.session_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 100,
        "metadata_max_age_ms": 500,
        "partition_assignment_strategy": ASSIGNORS[spec.strategy],
    }
    if spec.instance:
        settings["group_instance_id"] = spec.instance
    return settings


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as failure:
        raise Refused(failure.errno, repr(failure)) from failure
    except KafkaError as failure:
        raise Refused(UNKNOWN_TO_THE_CLIENT, repr(failure)) from failure
