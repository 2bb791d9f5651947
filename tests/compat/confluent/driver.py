"""confluent-kafka (librdkafka) as a `Client`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, Literal, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.client import (
    CODECS,
    CONSUME_SECONDS_MAX,
    LONG_POLL_MS,
    Acknowledged,
    Acks,
    Headers,
    Received,
    Refused,
    Sent,
    Start,
    enough,
)

TIMESTAMP_TYPES: dict[int, Literal["create", "append"]] = {
    TIMESTAMP_CREATE_TIME: "create",
    TIMESTAMP_LOG_APPEND_TIME: "append",
}

LINGER_MS = 50
"""Enough that records sent together mostly share a batch; librdkafka promises nothing about where it cuts."""


class Confluent:
    name = "confluent-kafka"
    codecs = CODECS
    sets_timestamps = True
    sends_both_null = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Acknowledged]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": LINGER_MS,
                "message.max.bytes": 64 << 20,
            }
        )
        return produce_with(producer, topic, records)

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]:
        with closing(self._consumer(committed_only=committed_only)) as consumer:
            consumer.assign([TopicPartition(topic, 0, _place(start))])
            deadline = time.monotonic() + CONSUME_SECONDS_MAX
            records: list[Received] = []
            while len(records) < count and (left := deadline - time.monotonic()) > 0:
                records += [
                    received(message) for message in consumer.consume(count - len(records), min(left, 1))
                ]
        return enough(records, count, topic)

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        with closing(self._consumer({"fetch.wait.max.ms": LONG_POLL_MS})) as consumer:
            consumer.assign([TopicPartition(topic, 0, _place(start))])
            assert consumer.poll(1.0) is None
            act()
            message = consumer.poll(CONSUME_SECONDS_MAX)
            assert message is not None, "the waiting consumer was not woken"
            return received(message)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        with closing(self._consumer()) as consumer:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, 0, timestamp_ms)], CONSUME_SECONDS_MAX
            )
        if found.error is not None:
            raise Refused(found.error.code(), found.error.str())
        return None if found.offset == OFFSET_END else int(found.offset)

    def edges(self, topic: str) -> tuple[int, int]:
        with closing(self._consumer()) as consumer:
            earliest, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), CONSUME_SECONDS_MAX)
        return earliest, end

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=CONSUME_SECONDS_MAX).topics
        return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(settings))
        settle(self._admin.create_topics([new])[topic])

    def delete_topic(self, topic: str) -> None:
        settle(self._admin.delete_topics([topic])[topic])

    def read_to_end(self, topic: str, *, committed_only: bool) -> list[Received]:
        """Everything from the earliest offset until the client says that the partition has ended."""
        settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 50}
        consumer = self._consumer(settings, committed_only=committed_only)
        deadline = time.monotonic() + CONSUME_SECONDS_MAX
        records: list[Received] = []
        with closing(consumer):
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return records
                records.append(received(message))
        raise AssertionError(f"{topic} did not end; {len(records)} records came")

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def _consumer(
        self, settings: Mapping[str, Any] | None = None, *, committed_only: bool = False
    ) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                "fetch.message.max.bytes": 64 << 20,
                **(settings or {}),
            }
        )


def produce_with(producer: Producer, topic: str, records: Sequence[Sent]) -> list[Acknowledged]:
    """Sends the records and waits for all of them; the first refusal is raised."""
    acknowledged: list[Acknowledged] = []
    refusals: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refusals.append(error)
            return
        offset = message.offset()
        acknowledged.append(
            Acknowledged(-1 if offset is None or offset < 0 else offset, message.timestamp()[1])
        )

    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=0,
            headers=list(record.headers),
            timestamp=record.timestamp_ms or 0,
            on_delivery=on_delivery,
        )
    assert producer.flush(CONSUME_SECONDS_MAX) == 0, "the producer still waits for acknowledgements"
    if refusals:
        raise Refused(refusals[0].code(), refusals[0].str())
    return acknowledged


def received(message: Message) -> Received:
    if (error := message.error()) is not None:
        raise Refused(error.code(), error.str())
    offset = message.offset()
    assert offset is not None
    timestamp_type, timestamp_ms = message.timestamp()
    return Received(
        offset=offset,
        key=message.key(),
        value=message.value(),
        headers=cast(Headers, tuple(message.headers() or ())),
        timestamp_ms=timestamp_ms,
        timestamp_type=TIMESTAMP_TYPES[timestamp_type],
    )


def _place(start: Start) -> int:
    return {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}[start] if isinstance(start, str) else start


def settle(future: Any) -> Any:
    """What an admin call came to; a refusal is raised."""
    try:
        return future.result(CONSUME_SECONDS_MAX)
    except KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0].str()) from error
