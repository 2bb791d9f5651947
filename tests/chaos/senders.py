"""Producers that number their records, for every partition; idempotent, with acks=all.

**Invariant:** who waits for one partition sends on to the others, up to a bound for each.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.anomalies import NOTHING, UNKNOWN_OFFSET, Witness
from tests.chaos.readers import CLIENT, Target
from tests.chaos.workload import content, parse_content

TICK_S = 0.05
RECORDS_A_TICK = 2
UNACKNOWLEDGED_MAX = 400
FLUSH_S = 150.0
SENDER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
}


class Sender:
    def __init__(self, name: str, target: Target, witness: Witness, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.sent = [0] * target.partitions
        self.acknowledged = [0] * target.partitions
        self.last_acknowledged = [NOTHING] * target.partitions  # the highest number
        self.failures: list[str] = []
        self._topic = target.topic
        self._witness = witness
        named: dict[str, Any] = {"bootstrap.servers": target.bootstrap_servers, "error_cb": self._on_error}
        self._producer = Producer(named | CLIENT | SENDER | dict(settings))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send no more; everything sent is acknowledged when this returns, or refused."""
        self.end()
        self._producer.flush(FLUSH_S)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            for partition in range(len(self.sent)):
                if self.sent[partition] - self.acknowledged[partition] < UNACKNOWLEDGED_MAX:
                    self._send(partition)
            self._producer.poll(0)

    def _send(self, partition: int) -> None:
        for _ in range(RECORDS_A_TICK):
            value = content(self.name, partition, self.sent[partition])
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            self.sent[partition] += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        _, partition, number = parse_content(message.value() or b"")
        if error is not None:
            self.failures.append(f"{self.name}: record {number} of partition {partition}: {error}")
            return
        offset = message.offset()
        place = offset if offset is not None and offset >= 0 else UNKNOWN_OFFSET
        self.acknowledged[partition] += 1
        self.last_acknowledged[partition] = max(self.last_acknowledged[partition], number)
        self._witness.acknowledged(self.name, partition, number, place)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal: {error}")
