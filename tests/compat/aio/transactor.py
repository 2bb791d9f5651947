"""aiokafka as a `Transactor`, on an event loop of its own; run as a module, a producer that dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import BrokerResponseError, ProducerFenced

from tests.compat.transactor import (
    ABORTED_EVERY,
    LAST,
    PATIENCE_S,
    TIMEOUT_MS,
    Ended,
    Place,
    Work,
    in_background,
    run_dying,
    transformed,
)

PRODUCER_FENCED = 90


class AioInstance:
    def __init__(self, producer: AIOKafkaProducer, runner: asyncio.Runner) -> None:
        self._producer = producer
        self._runner = runner

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, place: Place, values: Sequence[bytes]) -> None:
        async def send() -> None:
            sends = [await self._producer.send(place[0], value, partition=place[1]) for value in values]
            await asyncio.gather(*sends)

        self._run(send())

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        named = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(named, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def _run(self, what: Awaitable[object]) -> None:
        try:
            self._runner.run(_in_time(what))
        except ProducerFenced as fenced:
            raise Ended(PRODUCER_FENCED, str(fenced)) from fenced
        except BrokerResponseError as refused:
            raise Ended(refused.errno, str(refused)) from refused


class AioTransactor:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @contextmanager
    def instance(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[AioInstance]:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        with asyncio.Runner() as runner:
            producer = runner.run(start())
            try:
                yield AioInstance(producer, runner)
            finally:
                runner.run(producer.stop())

    def transform(self, work: Work) -> int:
        return asyncio.run(self._transform(work))

    async def _transform(self, work: Work) -> int:
        async with (
            AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=f"{work.group}-transformer"
            ) as producer,
            self._consumer(work.group) as consumer,
        ):
            consumer.subscribe([work.source])
            done, ended = 0, 0
            while done < work.count:
                found = await consumer.getmany(timeout_ms=1_000, max_records=work.size)
                if not found:
                    continue
                await producer.begin_transaction()
                for place, messages in found.items():
                    for message in messages:
                        value = transformed(message.value)
                        await producer.send(work.target, value, partition=place.partition)
                positions = {place: messages[-1].offset + 1 for place, messages in found.items()}
                await producer.send_offsets_to_transaction(positions, work.group)
                ended += 1
                if ended % ABORTED_EVERY:
                    await producer.commit_transaction()
                    done += sum(map(len, found.values()))
                else:
                    await producer.abort_transaction()
                    for place, messages in found.items():
                        consumer.seek(place, messages[0].offset)
        return ended

    def follow(self, place: Place) -> Callable[[], list[bytes]]:
        return in_background(lambda: asyncio.run(self._read(place)))

    async def _read(self, place: Place) -> list[bytes]:
        async with self._consumer(None) as consumer:
            consumer.assign([TopicPartition(*place)])
            values: list[bytes] = []
            while LAST not in values:
                values.append((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)
            return values[:-1]

    def die_in_the_middle(self, transactional_id: str, place: Place, value: bytes) -> None:
        run_dying(__name__, self.bootstrap, transactional_id, place, value)

    def _consumer(self, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )


async def _in_time(what: Awaitable[object]) -> None:
    await asyncio.wait_for(what, PATIENCE_S)


def main(bootstrap: str, transactional_id: str, topic: str, partition: str, value: str) -> None:
    with AioTransactor(bootstrap).instance(transactional_id) as instance:
        instance.begin()
        instance.send((topic, int(partition)), [value.encode()])
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
