"""Producers that run in the background and remember every acknowledgement.

A record says who wrote it, for which partition, and with which number, so that a reader can tell from
the content alone whether it is whole, in order and where it was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BURST = 100
BURST_PAUSE_S = 0.01  # keeps a writer at no more than 10,000 records a second
UNACKNOWLEDGED_MAX = 3_000
PROGRESS_TIMEOUT_S = 120.0

QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}
IDEMPOTENT = {"enable.idempotence": True, "acks": "all"}
COMPRESSED = IDEMPOTENT | {"compression.type": "lz4"}
# One request at a time: without sequences, that alone keeps retried batches in order.
PLAIN = {"enable.idempotence": False, "acks": "all", "max.in.flight": 1}


def content(writer: str, partition: int, number: int) -> bytes:
    """What a record holds: sizes vary, so that batches and segments end at ever different places."""
    return b"%s/%d/%d/" % (writer.encode(), partition, number) + b"x" * (number * 7 % 211)


def parse_content(value: bytes) -> tuple[str, int, int]:
    writer, partition, number, _ = value.split(b"/", 3)
    return writer.decode(), int(partition), int(number)


@dataclass(slots=True)
class Ledger:
    """What one writer was told: for each partition, offset to record number."""

    is_idempotent: bool
    acknowledged: list[dict[int, int]]
    sent: list[int]
    failures: list[str] = field(default_factory=list)
    # Partitions and record numbers. Librdkafka concludes that a record is there from the acknowledgement of a
    # later one, if its own was lost with a connection, and does not know where.
    unplaced: set[tuple[int, int]] = field(default_factory=set)

    @property
    def counts(self) -> list[int]:
        """Acknowledged records of each partition."""
        unplaced = Counter(partition for partition, _ in set(self.unplaced))
        return [len(offsets) + unplaced[index] for index, offsets in enumerate(self.acknowledged)]

    @property
    def count(self) -> int:
        return sum(self.counts)


class Writer:
    """One producer on a thread of its own."""

    def __init__(self, name: str, topic: str, partitions: int, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.ledger = Ledger(
            bool(settings.get("enable.idempotence")), [{} for _ in range(partitions)], [0] * partitions
        )
        self.timed_out = threading.Event()
        self._topic = topic
        self._producer = Producer(
            {"log_level": 0, "linger.ms": 2, "batch.size": 16_384, "error_cb": self._on_error}
            | QUICK
            | dict(settings)
        )
        self._going = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._going.set()

    def pause(self) -> None:
        self._going.clear()

    def finish(self) -> None:
        """Send no more and wait until everything sent is acknowledged."""
        self.end()
        self._producer.flush(PROGRESS_TIMEOUT_S)

    def end(self) -> None:
        self._ended.set()
        self._going.set()
        self._thread.join(PROGRESS_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._going.is_set() and len(self._producer) < UNACKNOWLEDGED_MAX:
                self._send_burst()
            self._producer.poll(BURST_PAUSE_S)

    def _send_burst(self) -> None:
        sent = self.ledger.sent
        for place in range(BURST):
            partition = place % len(sent)
            value = content(self.name, partition, sent[partition])
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            sent[partition] += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.failures.append(str(error))
            return
        _, partition, number = parse_content(message.value() or b"")
        offset = message.offset()
        if offset is None:
            self.ledger.unplaced.add((partition, number))
        else:
            self.ledger.acknowledged[partition][offset] = number

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.failures.append(f"fatal: {error}")
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self.timed_out.set()


class Load:
    """Several writers on one topic; a context manager that starts them paused."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        writers: Mapping[str, Mapping[str, Any]],
        replicas: int = 1,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        create_topic(bootstrap_servers, topic, partitions, replicas=replicas)
        common = {"bootstrap.servers": bootstrap_servers}
        self.writers = [
            Writer(name, topic, partitions, common | dict(settings)) for name, settings in writers.items()
        ]

    @property
    def acknowledged_count(self) -> int:
        return sum(writer.ledger.count for writer in self.writers)

    @property
    def failures(self) -> list[str]:
        return [f"{writer.name}: {failure}" for writer in self.writers for failure in writer.ledger.failures]

    def resume(self) -> None:
        for writer in self.writers:
            writer.resume()

    def pause(self) -> None:
        for writer in self.writers:
            writer.pause()

    def await_acknowledged(self, more: int) -> None:
        """Until so many more records are acknowledged than now."""
        wanted = self.acknowledged_count + more
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        tick = threading.Event()
        while self.acknowledged_count < wanted:
            assert not self.failures, self.failures[:5]
            assert time.monotonic() < deadline, f"stuck at {self.acknowledged_count} acknowledged records"
            tick.wait(0.002)

    def finish(self) -> None:
        """Stop sending; everything sent must end up acknowledged."""
        for writer in self.writers:
            writer.finish()
        assert not self.failures, self.failures[:5]
        for writer in self.writers:
            assert writer.ledger.counts == writer.ledger.sent, (
                f"{writer.name}: not everything was acknowledged"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.end()


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    config: Mapping[str, str] | None = None,
    replicas: int = 1,
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(config or {}))])[topic].result(20)
