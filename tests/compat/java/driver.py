"""The Java producer, consumer and admin client as a `Client`, through a JVM that stays."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from tests.compat.client import (
    CODECS,
    CONSUME_SECONDS_MAX,
    LONG_POLL_MS,
    Acknowledged,
    Acks,
    Received,
    Sent,
    Start,
    enough,
)
from tests.compat.java.jvm import Jvm

CONSUME_MS_MAX = int(CONSUME_SECONDS_MAX * 1000)
TIMESTAMP_TYPES: dict[str, Literal["create", "append"]] = {"CreateTime": "create", "LogAppendTime": "append"}


class Producer:
    """A Java producer that is open."""

    def __init__(self, jvm: Jvm, handle: int) -> None:
        self._jvm = jvm
        self._handle = handle

    def send(self, topic: str, records: Sequence[Sent]) -> list[Acknowledged]:
        """Sends the records and waits for all of them."""
        sent = [_to_send(record) for record in records]
        answers = self._jvm.call("producer.send", handle=self._handle, topic=topic, records=sent)
        return [Acknowledged(offset, timestamp_ms) for offset, timestamp_ms in answers]

    def instance_id(self) -> str:
        """What the broker named this client by (KIP-714)."""
        return str(self._jvm.call("producer.instance", handle=self._handle))


class Consumer:
    """A Java consumer that is open and assigned to partition 0 of one topic."""

    def __init__(self, jvm: Jvm, handle: int, topic: str) -> None:
        self._jvm = jvm
        self._topic = topic
        self._handle = handle

    def poll(self, count: int, wait_ms: int = CONSUME_MS_MAX) -> list[Received]:
        """Until `count` records are there or the time is over."""
        return [_received(record) for record in self.call("poll", count=count, wait_ms=wait_ms)]

    def call(self, name: str, /, **arguments: Any) -> Any:
        return self._jvm.call(f"consumer.{name}", handle=self._handle, topic=self._topic, **arguments)


class Java:
    name = "the Java client"
    codecs = CODECS
    sets_timestamps = True
    sends_both_null = True

    def __init__(self, bootstrap: str, jvm: Jvm, settings: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.jvm = jvm
        self._settings = dict(settings or {})

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Acknowledged]:
        settings = {
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": "50",
        }
        with self.producer(settings) as producer:
            return producer.send(topic, records)

    @contextmanager
    def producer(self, settings: Mapping[str, str] | None = None) -> Iterator[Producer]:
        roomy = {"max.request.size": str(64 << 20), "buffer.memory": str(64 << 20)}
        roomy |= {"request.timeout.ms": "15000", "delivery.timeout.ms": "60000"}
        chosen = {"bootstrap.servers": self.bootstrap} | roomy | dict(settings or {})
        handle = self.jvm.call("producer.open", settings=chosen)
        try:
            yield Producer(self.jvm, handle)
        finally:
            self.jvm.call("producer.close", handle=handle)

    @contextmanager
    def consumer(
        self, topic: str, start: Start = "earliest", settings: Mapping[str, str] | None = None
    ) -> Iterator[Consumer]:
        """Assigned to the topic and placed, without a group; it never makes a topic by asking for it."""
        chosen = {
            "bootstrap.servers": self.bootstrap,
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
            "default.api.timeout.ms": str(CONSUME_MS_MAX),
        }
        chosen |= self._settings | dict(settings or {})
        handle = self.jvm.call("consumer.open", settings=chosen, topic=topic, start=start)
        try:
            yield Consumer(self.jvm, handle, topic)
        finally:
            self.jvm.call("consumer.close", handle=handle)

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        with self.consumer(topic, start, {"isolation.level": isolation}) as consumer:
            return enough(consumer.poll(count)[:count], count, topic)

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        with self.consumer(topic, start, {"fetch.max.wait.ms": str(LONG_POLL_MS)}) as consumer:
            assert consumer.poll(1, wait_ms=500) == []
            act()
            return enough(consumer.poll(1), 1, topic)[0]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        with self.consumer(topic) as consumer:
            found = consumer.call("offset_for_time", timestamp=timestamp_ms)
            return None if found is None else int(found)

    def edges(self, topic: str) -> tuple[int, int]:
        with self.consumer(topic) as consumer:
            earliest, end = consumer.call("edges")
            return earliest, end

    def topics(self) -> dict[str, int]:
        with self.consumer("any") as consumer:
            return dict(consumer.call("topics"))

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self.admin("create_topic", topic=topic, partitions=partitions, replicas=1, settings=dict(settings))

    def delete_topic(self, topic: str) -> None:
        self.admin("delete_topic", topic=topic)

    def admin(self, name: str, /, **arguments: Any) -> Any:
        """One call of the Java admin client."""
        return self.jvm.call(
            f"admin.{name}", bootstrap=self.bootstrap, **{"validate_only": False} | arguments
        )


def _to_send(record: Sent) -> dict[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [(name, _text(value)) for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def _received(record: dict[str, Any]) -> Received:
    return Received(
        offset=record["offset"],
        key=_bytes(record["key"]),
        value=_bytes(record["value"]),
        headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
        timestamp_ms=record["timestamp"],
        timestamp_type=TIMESTAMP_TYPES[record["timestamp_type"]],
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
