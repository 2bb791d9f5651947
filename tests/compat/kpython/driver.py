"""kafka-python as a `Client`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import codec as codecs
from kafka.errors import BrokerResponseError

from tests.compat.client import (
    CONSUME_SECONDS_MAX,
    LONG_POLL_MS,
    Acknowledged,
    Acks,
    Received,
    Refused,
    Sent,
    Start,
    enough,
)
from tests.compat.python_client import PythonClient, acknowledged, producer_settings, received, to_send


class KafkaPython(PythonClient):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, codecs)

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Acknowledged]:
        settings = producer_settings(codec, acks, idempotent)
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, **settings)) as producer:
            sends = [producer.send(topic, **to_send(record)) for record in records]
            try:
                answers = [send.get(timeout=CONSUME_SECONDS_MAX) for send in sends]
            except BrokerResponseError as error:
                raise Refused(error.errno, str(error)) from error
        return acknowledged(answers, acks)

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        with self._at(topic, start, isolation_level=isolation) as consumer:
            return enough(self._poll(consumer, count), count, topic)

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        with self._at(topic, start, fetch_max_wait_ms=LONG_POLL_MS) as consumer:
            assert consumer.poll(timeout_ms=500) == {}
            act()
            return enough(self._poll(consumer, 1), 1, topic)[0]

    @staticmethod
    def _poll(consumer: KafkaConsumer, count: int) -> list[Received]:
        deadline = time.monotonic() + CONSUME_SECONDS_MAX
        records: list[Received] = []
        while len(records) < count and time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=1000, max_records=count - len(records))
            for batch in polled.values():
                records += [received(record) for record in batch]
        return records

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        partition = TopicPartition(topic, 0)
        with self._at(topic, "earliest") as consumer:
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        return None if found is None else int(found.offset)

    def edges(self, topic: str) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        with self._at(topic, "earliest") as consumer:
            earliest = consumer.beginning_offsets([partition])
            end = consumer.end_offsets([partition])
        return earliest[partition], end[partition]

    def topics(self) -> dict[str, int]:
        with closing(self._admin()) as admin:
            return {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(settings)}
        with closing(self._admin()) as admin:
            raise_refusal(admin.create_topics({topic: new}, raise_errors=False)["topics"])

    def delete_topic(self, topic: str) -> None:
        with closing(self._admin()) as admin:
            raise_refusal(admin.delete_topics([topic], raise_errors=False)["topics"])

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    @contextmanager
    def _at(self, topic: str, start: Start, **settings: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=2 * LONG_POLL_MS,
            **settings,
        )
        with closing(consumer):
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            if isinstance(start, int):
                consumer.seek(partition, start)
            elif start == "latest":
                consumer.seek_to_end(partition)
            yield consumer


def raise_refusal(answers: Sequence[Mapping[str, Any]]) -> None:
    for answer in answers:
        if answer["error_code"] != 0:
            raise Refused(answer["error_code"], str(answer))
