"""Readers of committed records: one that follows, and notes when; one that reads what there is in the end.

**Invariant:** a record that was read at an offset is there in the end.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.chaos.readers import CLIENT

SETTINGS: dict[str, Any] = {
    "group.id": "never-joined",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
    "check.crcs": True,
}
SILENCE_S_MAX = 120.0


class Read(NamedTuple):
    partition: int
    offset: int
    value: bytes
    time_ns: int


class Follower:
    """Context manager: reads all partitions from the start on, until the end of the block."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.reads: list[Read] = []
        self.problems: list[str] = []
        self._consumer = Consumer(CLIENT | SETTINGS | {"bootstrap.servers": bootstrap})
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reads {topic}", daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(100, 0.1):
                time_ns, error = time.monotonic_ns(), message.error()
                place = (message.partition() or 0, message.offset() or 0)
                if error is None:
                    self.reads.append(Read(*place, message.value() or b"", time_ns))
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                    self.problems.append(str(error))


def read_all(bootstrap: str, topic: str, partition: int) -> list[Read]:
    """What is committed now, once nothing is open."""
    settings = CLIENT | SETTINGS | {"bootstrap.servers": bootstrap, "enable.partition.eof": True}
    reads: list[Read] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + SILENCE_S_MAX
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} does not end: {len(reads)} records came"
            for message in consumer.consume(1_000, 0.5):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return reads
                if error is None:
                    deadline = time.monotonic() + SILENCE_S_MAX
                    reads.append(Read(partition, message.offset() or 0, message.value() or b"", 0))
