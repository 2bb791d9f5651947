"""`tidelog produce`: lines from a file or stdin become records.

**Invariant:** exit code 0 means that the broker acknowledged every line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import client_settings, explain, no_such_topic
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.jsonlines import Headers, OutgoingRecord, record_of
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, RecordFormat, TopicName

DELIVERY_TIMEOUT_MS = 60_000
BY_KEY = -1  # the partitioner chooses the partition
TOPIC_WAIT_S = 5.0  # for a topic that is created at first use


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    file: Annotated[str, typer.Argument(help="Lines to send; - is stdin.")] = "-",
    key_delimiter: Annotated[str | None, typer.Option(help="Separator of key and value in a line.")] = None,
    partition: Annotated[int, typer.Option(help="Send all records to this partition; -1: by key.")] = BY_KEY,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header for every record.")
    ] = None,
    acks: Annotated[Acks, typer.Option(help="The acknowledgement to wait for.")] = Acks.ALL,
    compression: Annotated[Compression, typer.Option(help="Codec of the batches.")] = Compression.NONE,
    null: Annotated[
        str | None, typer.Option(metavar="WORD", help="Send a key or value equal to WORD as null.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: Annotated[
        RecordFormat, typer.Option(help="Bare lines, or one JSON object a line.")
    ] = RecordFormat.TEXT,
) -> None:
    """Send each line of FILE (or stdin) to TOPIC."""
    headers: Headers = [_header(word) for word in header or []]
    if key_delimiter == "":
        raise BadWord("--key-delimiter: must not be empty; write, for example, --key-delimiter :")
    settings = client_settings(bootstrap_server) | {
        "acks": acks.value,
        "enable.idempotence": acks is Acks.ALL,
        "compression.type": compression.value,
        "partitioner": "murmur2_random",  # the default of the Java client
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "linger.ms": 5,
    }
    with _open_input(file) as lines:
        delivery = Delivery(Producer(settings), topic)
        partition_count = delivery.await_topic(bootstrap_server, partition)
        if format is RecordFormat.JSON:
            records = _json_records(lines, partition, headers, Partitions(topic, partition_count))
        else:
            records = _text_records(lines, key_delimiter, null, partition, headers)
        delivery.send_all(records)


class Delivery:
    """Sends records and counts acknowledgements and failures."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._acknowledged_count = 0
        self._failed_count = 0
        self._first_error: KafkaError | None = None

    def await_topic(self, bootstrap_server: str, partition: int) -> int:
        """The number of partitions. Asking for a topic creates it if the broker allows that; raises a Failure
        at once if it does not."""
        deadline = time.monotonic() + TOPIC_WAIT_S
        while True:
            try:
                found = self._producer.list_topics(self._topic, timeout=ANSWER_TIMEOUT_S).topics[self._topic]
            except KafkaException as error:
                raise explain(error, bootstrap_server) from None
            if found.error is None:
                break
            if found.error.code() == KafkaError.TOPIC_EXCEPTION:
                raise BadWord(f"{self._topic!r} is not a valid topic name")
            if time.monotonic() > deadline:
                raise no_such_topic(self._topic)
            time.sleep(0.05)
        if partition >= len(found.partitions):
            raise BadWord(
                f"--partition {partition}: topic {self._topic!r} has {len(found.partitions)} partitions"
            )
        return len(found.partitions)

    def send_all(self, records: Iterator[OutgoingRecord]) -> None:
        """Send until the input ends, the user stops it, or a line is invalid; then wait for the answers."""
        started = time.monotonic()
        try:
            for record in records:
                self._send(record)
        finally:
            self._producer.flush()
            seconds = time.monotonic() - started
            print(f"{self._acknowledged_count} records in {seconds:.2f} s", file=sys.stderr)
        if self._failed_count:
            reason = self._first_error.str() if self._first_error is not None else "unknown"
            raise Failure(f"{self._failed_count} records were not delivered: {reason}")

    def _send(self, record: OutgoingRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=self._on_delivery,
                    timestamp=record.timestamp,
                    headers=record.headers,
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._count_failure(error.args[0])
                return

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged_count += 1
        else:
            self._count_failure(error)

    def _count_failure(self, error: KafkaError) -> None:
        self._failed_count += 1
        self._first_error = self._first_error or error


class Partitions:
    """The original partition of copied records if the topic has it, else chosen by key."""

    def __init__(self, topic: str, count: int) -> None:
        self._topic = topic
        self._count = count
        self._is_told = False

    def place(self, partition: int) -> int:
        if partition < self._count:
            return partition
        if not self._is_told:
            self._is_told = True
            print(
                f"tidelog: topic {self._topic!r} has no partition {partition}; its last one is "
                f"{self._count - 1}; records of higher partitions are placed by key",
                file=sys.stderr,
            )
        return BY_KEY


def _open_input(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except OSError as error:
        raise BadWord(f"{file}: {error.strerror}; name a readable file, or - for stdin") from None


def _text_records(
    lines: BinaryIO,
    delimiter: str | None,
    null: str | None,
    partition: int,
    headers: Headers,
) -> Iterator[OutgoingRecord]:
    null_word = None if null is None else null.encode()
    split_at = None if delimiter is None else delimiter.encode()
    for line in lines:
        key: bytes | None = None
        value: bytes | None = line.removesuffix(b"\n")
        if split_at is not None and value is not None and split_at in value:
            key, _, value = value.partition(split_at)
        if null_word is not None:
            key = None if key == null_word else key
            value = None if value == null_word else value
        yield OutgoingRecord(key, value, headers, partition)


def _json_records(
    lines: BinaryIO, partition: int, headers: Headers, partitions: Partitions
) -> Iterator[OutgoingRecord]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = record_of(line, f"line {number}")
        record.headers.extend(headers)
        record.partition = partition if partition >= 0 else partitions.place(record.partition)
        yield record


def _header(word: str) -> tuple[str, str | bytes | None]:
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise BadWord(f"--header {word}: not a header; write --header name=value")
    return name, value.encode()
