"""Consumers that tell what they have read: alone by assignment, of two clients, and as members of a group.

A reader alone has all partitions from the first record on. Members commit what they have read.

**Invariant:** what a client was told reaches the witness in the order in which the client was told it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import OffsetOutOfRangeError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.anomalies import NOTHING, Witness, audience_of, clock
from tests.chaos.workload import content, parse_content

COMMIT_EVERY_S = 0.3
CLIENT: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 1_000,
}
READER: dict[str, Any] = {"fetch.wait.max.ms": 200, "enable.auto.commit": False, "check.crcs": True}
WRONG = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError._BAD_MSG,
    KafkaError._FATAL,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""What a reader must never be told; all else it gets over by itself."""
DIARY: dict[str, Any] = {"log_level": 7, "debug": "broker,topic,metadata,fetch"}
DIARY_BYTES, DIARIES = 8 << 20, 4


class Target(NamedTuple):
    bootstrap_servers: str
    topic: str
    partitions: int
    diaries: Path


def _diary(path: Path) -> logging.Logger:
    """What librdkafka has to say of late."""
    diary = logging.Logger(path.stem)
    handler = RotatingFileHandler(path, maxBytes=DIARY_BYTES, backupCount=DIARIES - 1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    diary.addHandler(handler)
    return diary


class Seen:
    """What all readers have seen, besides what the witness keeps of it."""

    def __init__(self, witness: Witness, diary: Path) -> None:
        self._witness = witness
        self._diary = diary  # who was given what when, and where it began
        self._beginning: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self.highest: dict[str, dict[int, int]] = defaultdict(dict)  # of an audience: partition to offset
        self.placed_counts: Counter[str] = Counter()  # of a member: how many partitions it was ever given
        self.owned: dict[str, set[int]] = defaultdict(set)  # of a member: what it has now
        self.errors: Counter[str] = Counter()
        self.problems: list[str] = []

    def polled(self, reader: str, partition: int, offset: int, value: bytes) -> None:
        writer, meant_for, number = parse_content(value)
        if value != content(writer, partition, number):
            self.problems.append(f"{reader}: {partition}:{offset} holds what was sent to {meant_for}")
        with self._lock:
            highest = self.highest[audience_of(reader)]
            highest[partition] = max(highest.get(partition, NOTHING), offset)
        if (reader, partition) in self._beginning:
            self._beginning.discard((reader, partition))
            self._tell(f"{reader} begins at {partition}:{offset}")
        self._witness.polled(reader, partition, offset, writer, number)

    def _tell(self, line: str) -> None:
        with self._lock, self._diary.open("a") as file:
            file.write(f"{clock()} {line}\n")

    def placed(self, reader: str, partition: int) -> None:
        self._beginning.add((reader, partition))
        self._tell(f"{reader} is given {partition}")
        self.placed_counts[reader] += 1
        self.owned[reader].add(partition)
        self._witness.placed(reader, partition)

    def given_up(self, reader: str, partition: int) -> None:
        self._tell(f"{reader} gives up {partition}")
        self.owned[reader].discard(partition)

    def commit_asked(self, member: str, partition: int, offset: int) -> None:
        self._witness.commit_asked(member, partition, offset)

    def commit_failed(self, member: str) -> None:
        self._witness.commit_failed(member)

    def committed(self, member: str, partition: int, offset: int) -> None:
        self._witness.committed(member, partition, offset)

    def told(self, reader: str, error: str, *, is_wrong: bool) -> None:
        self.errors[f"{reader}: {error}"] += 1
        if is_wrong:
            self._tell(f"{reader} is told {error}")
            self.problems.append(f"{reader}: {error}")


class Reader:
    """Alone, by assignment; it keeps a diary."""

    def __init__(self, name: str, target: Target, seen: Seen) -> None:
        self.name = name
        self._target = target
        self._seen = seen
        self._consumer = self._connect()
        self._begin()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _connect(self) -> Consumer:
        named = {"bootstrap.servers": self._target.bootstrap_servers, "group.id": f"unused-{self.name}"}
        told = {"auto.offset.reset": "error", "logger": _diary(self._target.diaries / f"{self.name}.log")}
        return Consumer(named | CLIENT | READER | DIARY | told)

    def _begin(self) -> None:
        places = [TopicPartition(self._target.topic, index, 0) for index in range(self._target.partitions)]
        self._consumer.assign(places)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is not None:
                self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._seen.told(self.name, error.name(), is_wrong=error.code() in WRONG)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self._seen.polled(self.name, partition, offset, message.value() or b"")


class Member(Reader):
    """One of a group; its audience is the group."""

    def __init__(self, name: str, target: Target, seen: Seen, settings: Mapping[str, Any]) -> None:
        self._group = audience_of(name)
        self._own_settings = dict(settings)
        self._places: dict[int, int] = {}  # what to commit
        self._committed_s = time.monotonic()
        self._is_committing = False
        super().__init__(name, target, seen)

    def _connect(self) -> Consumer:
        named = {"bootstrap.servers": self._target.bootstrap_servers, "group.id": self._group}
        told = {"auto.offset.reset": "earliest", "on_commit": self._on_committed}
        return Consumer(named | CLIENT | READER | told | self._own_settings)

    def _begin(self) -> None:
        self._consumer.subscribe(
            [self._target.topic],
            on_assign=self._on_assigned,
            on_revoke=self._on_given_up,
            on_lost=self._on_given_up,
        )

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._places.pop(each.partition, None)
            self._seen.placed(self.name, each.partition)

    def _on_given_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._places.pop(each.partition, None)
            self._seen.given_up(self.name, each.partition)

    def _take(self, message: Message) -> None:
        super()._take(message)
        if message.error() is None:
            self._places[message.partition() or 0] = (message.offset() or 0) + 1
            if not self._is_committing and time.monotonic() - self._committed_s > COMMIT_EVERY_S:
                self._commit()
                self._committed_s = time.monotonic()

    def _commit(self) -> None:
        """Without waiting for it: who does not poll takes no part in a rebalance. But one at a time:
        librdkafka tries one that has failed again behind the next, and takes the group back."""
        topic = self._target.topic
        wanted = [TopicPartition(topic, index, offset) for index, offset in self._places.items()]
        for index, offset in self._places.items():
            self._seen.commit_asked(self.name, index, offset)
        self._is_committing = True
        try:
            self._consumer.commit(offsets=wanted, asynchronous=True)
        except KafkaException:  # it has nothing to commit for the moment
            self._is_committing = False
            self._seen.commit_failed(self.name)

    def _on_committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._is_committing = False
        for each in partitions if error is None else ():
            if each.error is None:
                self._seen.committed(self.name, each.partition, each.offset)
        self._seen.commit_failed(self.name)  # what is left of it

    def end(self) -> None:
        super().end()
        self._seen.commit_failed(self.name)


class AioReader:
    """Alone, by assignment, with aiokafka."""

    def __init__(self, name: str, target: Target, seen: Seen) -> None:
        self.name = name
        self._target = target
        self._seen = seen
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    async def _run(self) -> None:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of every broker that is away
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._target.bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=6_000,
            metadata_max_age_ms=1_000,
            fetch_max_wait_ms=200,
        )
        await consumer.start()
        topic = self._target.topic
        places = [aiokafka.TopicPartition(topic, index) for index in range(self._target.partitions)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        while not self._ended.is_set():
            await self._poll(consumer)
        with suppress(asyncio.CancelledError):  # of its own fetches, which it does not catch if one backs off
            await consumer.stop()

    async def _poll(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        try:
            polled = await consumer.getmany(timeout_ms=200)
        except AioKafkaError as error:
            is_wrong = isinstance(error, OffsetOutOfRangeError)
            self._seen.told(self.name, type(error).__name__, is_wrong=is_wrong)
            return
        for place, records in polled.items():
            for record in records:
                self._seen.polled(self.name, place.partition, record.offset, record.value or b"")
