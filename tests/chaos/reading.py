"""Reads a topic whole and compares it with what was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.chaos.awaiting import await_that
from tests.chaos.workload import Ledger, Load, content, parse_content

ANSWER_TIMEOUT_S = 60.0
SILENCE_S_MAX = 90.0
NOT_LED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
)


def elect_unclean(bootstrap_servers: str, topic: str, partition_count: int) -> None:
    """Let partitions be led whose only replica may have lost something, and wait until they are: who is
    elected flushes first what it has cut off."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    asked = [TopicPartition(topic, index) for index in range(partition_count)]
    answer = admin.elect_leaders(ElectionType.UNCLEAN, asked)
    for place, problem in answer.result(ANSWER_TIMEOUT_S).items():
        needless = problem is not None and problem.code() == KafkaError.ELECTION_NOT_NEEDED
        assert problem is None or needless, f"{place}: {problem}"
    reader = open_reader(bootstrap_servers)
    try:
        await_that(lambda: _are_led(reader, asked), f"{topic} is not led", ANSWER_TIMEOUT_S)
    finally:
        reader.close()


def _are_led(reader: Consumer, places: list[TopicPartition]) -> bool:
    try:
        for place in places:
            reader.list_topics(place.topic, timeout=ANSWER_TIMEOUT_S)  # else it believes what it knows
            reader.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
    except KafkaException as refused:
        if refused.args[0].code() not in NOT_LED:
            raise
        return False
    return True


def open_reader(bootstrap_servers: str) -> Consumer:
    """A consumer that checks every batch's CRC itself."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )


def end_offset(consumer: Consumer, topic: str, partition: int) -> int:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT_S)
    assert low == 0, f"{topic}-{partition} begins at {low}"
    return int(high)


def read_all(bootstrap_servers: str, topic: str, partition: int) -> Iterator[Message]:
    """Every record from offset 0 to the end as it was at the first step."""
    consumer = open_reader(bootstrap_servers)
    try:
        end = end_offset(consumer, topic, partition)
        consumer.assign([TopicPartition(topic, partition, 0)])
        offset = -1
        last_change = time.monotonic()
        while offset + 1 < end:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                assert error is None, f"{topic}-{partition} after offset {offset}: {error}"
                yield message
                offset = message.offset() or 0
                last_change = time.monotonic()
            assert time.monotonic() - last_change < SILENCE_S_MAX, f"no record after {offset} of {end}"
    finally:
        consumer.close()


@dataclass(slots=True)
class Findings:
    """What is wrong with a topic; empty when nothing is."""

    missing_count: int = 0
    duplicated_count: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.missing_count and not self.duplicated_count and not self.wrong


class PartitionCheck:
    """Follows one partition from its first record on.

    Offsets have no gap; content is whole; an idempotent writer's records come once and in order; a plain
    writer's may come again but never overtake; an acknowledged offset holds what was acknowledged.
    """

    def __init__(self, partition: int, ledgers: dict[str, Ledger], findings: Findings) -> None:
        self._partition = partition
        self._ledgers = ledgers
        self._findings = findings
        self._next_offset = 0
        self._next_number = dict.fromkeys(ledgers, 0)
        self._acknowledged = {
            offset: (name, number)
            for name, ledger in ledgers.items()
            for offset, number in dict(ledger.acknowledged[partition]).items()
        }
        self._unplaced = {
            (name, number)
            for name, ledger in ledgers.items()
            for place, number in set(ledger.unplaced)
            if place == partition
        }

    def add(self, offset: int, value: bytes) -> None:
        if offset != self._next_offset:
            self._wrong(f"offset {offset} after {self._next_offset - 1}")
        self._next_offset = offset + 1
        writer, partition, number = parse_content(value)
        if value != content(writer, self._partition, number):
            self._wrong(f"offset {offset} holds {value[:40]!r}, written for partition {partition}")
        self._check_order(offset, writer, number)
        self._unplaced.discard((writer, number))
        expected = self._acknowledged.pop(offset, None)
        if expected is not None and expected != (writer, number):
            self._findings.missing_count += 1
            self._wrong(f"offset {offset} holds {(writer, number)} instead of {expected}")

    def end(self) -> None:
        self._findings.missing_count += len(self._acknowledged)
        for offset, (writer, number) in list(self._acknowledged.items())[:3]:
            self._wrong(f"offset {offset}, record {number} of {writer}, was acknowledged and is missing")
        self._findings.missing_count += len(self._unplaced)
        for writer, number in sorted(self._unplaced)[:3]:
            self._wrong(f"record {number} of {writer} was acknowledged and is missing")

    def _check_order(self, offset: int, writer: str, number: int) -> None:
        expected = self._next_number[writer]
        if number > expected:
            self._wrong(f"offset {offset}: record {number} of {writer} where {expected} was due")
        elif number < expected and self._ledgers[writer].is_idempotent:
            self._findings.duplicated_count += 1
            self._wrong(f"offset {offset}: record {number} of {writer} for the second time")
        self._next_number[writer] = max(expected, number + 1)

    def _wrong(self, what: str) -> None:
        if len(self._findings.wrong) < 20:
            self._findings.wrong.append(f"partition {self._partition}: {what}")


def check_topic(bootstrap_servers: str, load: Load) -> Findings:
    """Read everything; compare with what was acknowledged before the reading began."""
    findings = Findings()
    ledgers = {writer.name: writer.ledger for writer in load.writers}
    for partition in range(load.partitions):
        check = PartitionCheck(partition, ledgers, findings)
        for message in read_all(bootstrap_servers, load.topic, partition):
            check.add(message.offset() or 0, message.value() or b"")
        check.end()
    return findings
