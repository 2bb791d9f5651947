"""Records on every partition of a topic: some at once, or a stream that lasts as long as its block.

**Invariant:** `ends` is what the broker acknowledged, and nothing else is on the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from tests.compat.client import CONSUME_SECONDS_MAX
from tests.compat.groups.spec import Partition

PAUSE_SECONDS = 0.005


def partitions_of(topic: str, count: int) -> list[Partition]:
    return [(topic, index) for index in range(count)]


class Stream:
    """Writes to the partitions in turn until its block ends."""

    def __init__(self, bootstrap: str, partitions: Sequence[Partition]) -> None:
        self.ends: dict[Partition, int] = dict.fromkeys(partitions, 0)
        self._partitions = list(partitions)
        self._sent_count = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, count: int) -> dict[Partition, int]:
        """`count` more, acknowledged when this returns the ends."""
        for _ in range(count):
            self._send()
        assert self._producer.flush(CONSUME_SECONDS_MAX) == 0, "not acknowledged"
        return self.ends

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending.set()
        self._thread.join()
        assert self._producer.flush(CONSUME_SECONDS_MAX) == 0, "not acknowledged"

    def _run(self) -> None:
        while not self._is_ending.wait(PAUSE_SECONDS):
            self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        topic, index = self._partitions[self._sent_count % len(self._partitions)]
        value = b"%d" % self._sent_count
        self._producer.produce(topic, value, partition=index, on_delivery=self._delivered)
        self._sent_count += 1

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, str(error)
        partition = (message.topic(), message.partition())
        self.ends[partition] = max(self.ends[partition], message.offset() + 1)
