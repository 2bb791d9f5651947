"""aiokafka as a member of a group; it knows the classic protocol alone.

Its loop runs on a thread, so that it beats while the member is busy, as the other clients do.

**Invariant:** partitions are not given up between a poll and the next one: whoever was handed records has the
time to commit them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import BrokerResponseError, CommitFailedError, KafkaError

from tests.compat.client import Refused
from tests.compat.groups.drivers import CALL_SECONDS_MAX, POLL_SECONDS, Consumed, Told
from tests.compat.groups.spec import HEARTBEAT_MS, Partition, Place, Spec

ASSIGNORS = {
    "": (RangePartitionAssignor,),
    "range": (RangePartitionAssignor,),
    "roundrobin": (RoundRobinPartitionAssignor,),
}
"""One at a time: the client sends a JoinGroup for each assignor, each with one more of them than the last.

Every join then begins two rebalances, of which the second fails the SyncGroup that others sent in the first:
members that join together go on so for ever, whoever's broker it is.
"""
T = TypeVar("T")


class AioMember:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._consumer: Any = None

    def start(self, told: Told) -> None:
        self._call(self._start(told))

    async def _start(self, told: Told) -> None:
        self._consumer = AIOKafkaConsumer(**_settings(self._spec))
        listener = _Listener(told, self._is_idle)
        if self._spec.pattern:
            self._consumer.subscribe(pattern=self._spec.pattern, listener=listener)
        else:
            self._consumer.subscribe(topics=list(self._spec.topics), listener=listener)
        await self._consumer.start()

    def identity(self) -> tuple[str, int]:
        coordinator = self._consumer and self._consumer._coordinator
        return (coordinator.member_id, coordinator.generation) if coordinator else ("", -1)

    def poll(self) -> list[Consumed]:
        polled = self._call(self._poll())
        return [
            Consumed(record.topic, record.partition, record.offset, record.value.decode())
            for batch in polled.values()
            for record in batch
        ]

    async def _poll(self) -> dict[TopicPartition, list[Any]]:
        self._is_idle.set()
        records: dict[TopicPartition, list[Any]] = await self._consumer.getmany(
            timeout_ms=int(POLL_SECONDS * 1000), max_records=100
        )
        if records:
            self._is_idle.clear()
        return records

    def hold(self) -> None:
        self._on_loop(self._is_idle.clear)

    def commit(self, places: Sequence[Place]) -> None:
        offsets = {TopicPartition(*each.of): OffsetAndMetadata(each.offset, each.metadata) for each in places}
        self._call(self._consumer.commit(offsets))

    def committed(self, partitions: Sequence[Partition]) -> list[Place]:
        return self._call(self._committed(partitions))

    async def _committed(self, partitions: Sequence[Partition]) -> list[Place]:
        asked = [TopicPartition(*partition) for partition in partitions]
        found = await self._consumer._coordinator.fetch_committed_offsets(asked)
        return [
            Place(at.topic, at.partition, each.offset, each.metadata or "")
            for at, each in found.items()
            if each.offset >= 0
        ]

    def position(self, partition: Partition) -> int:
        return int(self._call(self._consumer.position(TopicPartition(*partition))))

    def seek(self, partition: Partition, offset: int) -> None:
        self._on_loop(self._consumer.seek, TopicPartition(*partition), offset)

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._on_loop(self._consumer.pause, *(TopicPartition(*partition) for partition in partitions))

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._on_loop(self._consumer.resume, *(TopicPartition(*partition) for partition in partitions))

    def close(self) -> None:
        self._on_loop(self._is_idle.set)
        self._call(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)

    def _on_loop(self, call: Any, *arguments: Any) -> None:
        async def run() -> None:
            call(*arguments)

        self._call(run())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CommitFailedError as failure:
            cause = failure.__cause__ or failure.__context__
            raise Refused(getattr(cause, "errno", -1), repr(failure)) from failure
        except BrokerResponseError as failure:
            raise Refused(failure.errno, repr(failure)) from failure
        except KafkaError as failure:
            raise Refused(-1, repr(failure)) from failure


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is not typed
    def __init__(self, told: Told, is_idle: asyncio.Event) -> None:
        self._told = told
        self._is_idle = is_idle

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._is_idle.wait()
        self._told("revoked", sorted(map(tuple, revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._told("assigned", sorted(map(tuple, assigned)))


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
        "retry_backoff_ms": 20,
        "fetch_max_wait_ms": 100,
        "metadata_max_age_ms": 500,
        "partition_assignment_strategy": ASSIGNORS[spec.strategy],
    }
    if spec.instance:
        settings["group_instance_id"] = spec.instance
    return settings
