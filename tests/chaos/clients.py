"""Real clients that write numbered records and read them, alone and in groups, and tell a witness all of it.

Senders are idempotent with acks=all and send to every partition, also while others do not answer. A reader
alone has all partitions from the first record on; a group has members of one protocol, who commit what they
have read.

**Invariant:** what a client was told reaches the witness in the order in which the client was told it.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.anomalies import NOTHING, UNKNOWN_OFFSET, Witness, audience_of
from tests.chaos.awaiting import await_that
from tests.chaos.workload import content, parse_content

TICK_S = 0.05
RECORDS_A_TICK = 2
UNACKNOWLEDGED_MAX = 400
"""Of one partition: whoever waits for one sends on to the others."""
COMMIT_EVERY = 50
START_S = 60.0
FLUSH_S = 150.0
CATCH_UP_S = 90.0
CLIENT: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 1_000,
}
SENDER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
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
Mark = dict[tuple[str, int], int]
"""The next number of each sender and partition at some moment."""


class Sender:
    def __init__(self, name: str, clients: Clients, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.sent = [0] * clients.partitions
        self.acknowledged = [0] * clients.partitions
        self.last_acknowledged = [NOTHING] * clients.partitions  # the highest number
        self.failures: list[str] = []
        self._clients = clients
        named: dict[str, Any] = {"bootstrap.servers": clients.bootstrap_servers, "error_cb": self._on_error}
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
            self._producer.produce(
                self._clients.topic, value, partition=partition, on_delivery=self._on_delivery
            )
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
        self._clients.witness.acknowledged(self.name, partition, number, place)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal: {error}")


class Reader:
    """Alone, by assignment."""

    def __init__(self, name: str, clients: Clients) -> None:
        self.name = name
        self.problems: list[str] = []
        self._clients = clients
        self._consumer = Consumer(self._settings())
        self._begin()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _settings(self) -> dict[str, Any]:
        named = {"bootstrap.servers": self._clients.bootstrap_servers, "group.id": f"unused-{self.name}"}
        return named | CLIENT | READER | {"auto.offset.reset": "error"}

    def _begin(self) -> None:
        topic = self._clients.topic
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(self._clients.partitions)])

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
            self._clients.note_error(self.name, error)
            if error.code() in WRONG:
                self.problems.append(f"{self.name}: {error}")
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        writer, meant_for, number = parse_content(message.value() or b"")
        if message.value() != content(writer, partition, number):
            self.problems.append(f"{self.name}: {partition}:{offset} holds what was sent to {meant_for}")
        self._clients.polled(self.name, partition, offset, writer, number)


class Member(Reader):
    """One of a group; its audience is the group."""

    def __init__(self, name: str, clients: Clients, settings: Mapping[str, Any]) -> None:
        self._group = audience_of(name)
        self._own_settings = dict(settings)
        self._places: dict[int, int] = {}  # what to commit
        super().__init__(name, clients)

    def _settings(self) -> dict[str, Any]:
        named = {"bootstrap.servers": self._clients.bootstrap_servers, "group.id": self._group}
        return named | CLIENT | READER | {"auto.offset.reset": "earliest"} | self._own_settings

    def _begin(self) -> None:
        self._consumer.subscribe(
            [self._clients.topic],
            on_assign=self._on_assigned,
            on_revoke=self._on_given_up,
            on_lost=self._on_given_up,
        )

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._places.pop(each.partition, None)
            self._clients.placed_counts[self.name] += 1
            self._clients.witness.placed(self.name, each.partition)

    def _on_given_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._places.pop(each.partition, None)

    def _take(self, message: Message) -> None:
        super()._take(message)
        if message.error() is None:
            self._places[message.partition() or 0] = (message.offset() or 0) + 1
            if (message.offset() or 0) % COMMIT_EVERY == 0:
                self._commit()

    def _commit(self) -> None:
        topic = self._clients.topic
        wanted = [TopicPartition(topic, index, offset) for index, offset in self._places.items()]
        with suppress(KafkaException):  # not committed then; the next one will be, or is somebody else's
            for each in self._consumer.commit(offsets=wanted, asynchronous=False) or []:
                if each.error is None:
                    self._clients.witness.committed(self._group, each.partition, each.offset)


class Clients:
    """A context manager: all of them, from start to end."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        senders: Mapping[str, Mapping[str, Any]],
        groups: Mapping[str, Mapping[str, Any]],
        members: int = 2,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.partitions = partitions
        self.witness = Witness()
        self.errors: Counter[str] = Counter()
        self.placed_counts: Counter[str] = Counter()  # of a member: how many partitions it was ever given
        self._highest: dict[str, dict[int, int]] = defaultdict(dict)
        self.senders = [Sender(name, self, settings) for name, settings in senders.items()]
        self.readers: list[Reader] = [Reader("alone", self)]
        for group, settings in groups.items():
            self.readers += [Member(f"{group}/{number}", self, settings) for number in range(members)]

    @property
    def audiences(self) -> list[str]:
        return sorted({audience_of(reader.name) for reader in self.readers})

    @property
    def failures(self) -> list[str]:
        return [failure for sender in self.senders for failure in sender.failures]

    @property
    def problems(self) -> list[str]:
        return [problem for reader in self.readers for problem in reader.problems]

    def polled(self, reader: str, partition: int, offset: int, writer: str, number: int) -> None:
        highest = self._highest[audience_of(reader)]
        highest[partition] = max(highest.get(partition, NOTHING), offset)
        self.witness.polled(reader, partition, offset, writer, number)

    def note_error(self, reader: str, error: KafkaError) -> None:
        self.errors[f"{reader}: {error.name()}"] += 1

    # Progress.

    def await_going(self) -> None:
        """Until all write and read, everywhere: who has not begun yet needs more than who has."""
        mark, partitions = self.mark(), set(range(self.partitions))

        def are_going() -> bool:
            have_read = all(set(self._highest[audience]) == partitions for audience in self.audiences)
            return have_read and self.passed(mark) == partitions

        await_that(are_going, lambda: f"of {mark} {self.passed(mark)}; read {dict(self._highest)}", START_S)

    def mark(self) -> Mark:
        return {
            (each.name, partition): each.sent[partition]
            for each in self.senders
            for partition in range(self.partitions)
        }

    def passed(self, mark: Mark) -> set[int]:
        """The partitions in which every sender has an acknowledgement for something sent since."""
        return {
            partition
            for partition in range(self.partitions)
            if all(each.last_acknowledged[partition] >= mark[each.name, partition] for each in self.senders)
        }

    def await_passed(self, mark: Mark, timeout_s: float = 60.0) -> float:
        """Until all partitions have; how many seconds it took."""
        partitions = set(range(self.partitions))
        return await_that(
            lambda: self.passed(mark) == partitions,
            lambda: f"no acknowledgement in partitions {partitions - self.passed(mark)}; {self.failures[:5]}",
            timeout_s,
        )

    def finish(self) -> None:
        """Nothing more is sent, all of it is acknowledged, and everybody has read to the end."""
        for sender in self.senders:
            sender.finish()
        assert not self.failures, self.failures[:5]
        for sender in self.senders:
            assert sender.acknowledged == sender.sent, f"{sender.name}: not everything was acknowledged"
        self.readers.append(Reader("final", self))
        ends = self._ends()

        def have_all() -> bool:
            return all(
                self._highest[audience].get(partition, NOTHING) >= end - 1
                for audience in self.audiences
                for partition, end in ends.items()
            )

        def complaint() -> str:
            return f"of {ends} were read: {dict(self._highest)}; {dict(self.errors)}"

        await_that(have_all, complaint, CATCH_UP_S)

    def _ends(self) -> dict[int, int]:
        asking = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "ends"} | CLIENT)
        ends = {}
        for partition in range(self.partitions):
            places = asking.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=30)
            ends[partition] = int(places[1])
        asking.close()
        return ends

    def judge(self) -> dict[str, int]:
        """How often each kind of anomaly was seen."""
        return self.witness.end(self.audiences)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        endings: Sequence[Sender | Reader] = [*self.senders, *self.readers]
        for each in endings:
            each._ended.set()
        for each in endings:
            each.end()
