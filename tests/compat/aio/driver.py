"""aiokafka as a `Client`: each call is an event loop of its own, so nothing outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import codec as codecs
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import BrokerResponseError

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


class Aio(PythonClient):
    name = "aiokafka"

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
        return asyncio.run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(
        self, topic: str, records: Sequence[Sent], codec: str, acks: Acks, idempotent: bool
    ) -> list[Acknowledged]:
        settings = producer_settings(codec, acks, idempotent)
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, **settings) as producer:
            try:
                sends = [await producer.send(topic, **to_send(record)) for record in records]
                answers = await asyncio.wait_for(asyncio.gather(*sends), CONSUME_SECONDS_MAX)
            except BrokerResponseError as error:
                raise Refused(error.errno, str(error)) from error
        return acknowledged(answers, acks)

    def produce_batch(self, topic: str, records: Sequence[Sent]) -> None:
        """All the records in one batch: this client lets its user cut them."""

        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, max_batch_size=1 << 20) as producer:
                batch = producer.create_batch()
                for record in records:
                    added = batch.append(key=record.key, value=record.value, timestamp=record.timestamp_ms)
                    assert added is not None, "the batch is full"
                sent = await producer.send_batch(batch, topic, partition=0)
                try:
                    await asyncio.wait_for(sent, CONSUME_SECONDS_MAX)
                except BrokerResponseError as error:
                    raise Refused(error.errno, str(error)) from error

        asyncio.run(send())

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]:
        async def read() -> list[Received]:
            isolation = "read_committed" if committed_only else "read_uncommitted"
            async with self._at(topic, start, isolation_level=isolation) as consumer:
                records: list[Received] = []
                async with asyncio.timeout(CONSUME_SECONDS_MAX):
                    while len(records) < count:
                        records.append(received(await consumer.getone()))
                return enough(records, count, topic)

        return asyncio.run(read())

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        async def read() -> Received:
            async with self._at(topic, start, fetch_max_wait_ms=LONG_POLL_MS) as consumer:
                assert await consumer.getmany(timeout_ms=500) == {}
                await asyncio.to_thread(act)
                return received(await asyncio.wait_for(consumer.getone(), CONSUME_SECONDS_MAX))

        return asyncio.run(read())

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        async def ask() -> int | None:
            async with self._at(topic, "earliest") as consumer:
                partition = TopicPartition(topic, 0)
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                return None if found is None else int(found.offset)

        return asyncio.run(ask())

    def edges(self, topic: str) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            async with self._at(topic, "earliest") as consumer:
                partition = TopicPartition(topic, 0)
                earliest = await consumer.beginning_offsets([partition])
                end = await consumer.end_offsets([partition])
                return earliest[partition], end[partition]

        return asyncio.run(ask())

    def topics(self) -> dict[str, int]:
        async def ask() -> dict[str, int]:
            async with self._admin() as admin:
                described = await admin.describe_topics()
                return {each["topic"]: len(each["partitions"]) for each in described}

        return asyncio.run(ask())

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(settings))

        async def ask() -> None:
            async with self._admin() as admin:
                answer = await admin.create_topics([new])
                _raise_refusal([error[1:] for error in answer.topic_errors])

        asyncio.run(ask())

    def delete_topic(self, topic: str) -> None:
        async def ask() -> None:
            async with self._admin() as admin:
                answer = await admin.delete_topics([topic])
                _raise_refusal([error[1:] for error in answer.topic_error_codes])

        asyncio.run(ask())

    @asynccontextmanager
    async def _at(self, topic: str, start: Start, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none" if isinstance(start, int) else start,
            request_timeout_ms=2 * LONG_POLL_MS,
            **settings,
        )
        async with consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            if isinstance(start, int):
                consumer.seek(partition, start)
            yield consumer

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()


def _raise_refusal(errors: Sequence[Sequence[Any]]) -> None:
    for code, *said in errors:
        if code != 0:
            raise Refused(code, str(said))
