"""`tidelog consume`: prints the records of a topic, without a consumer group.

The partitions are assigned, not subscribed to: nobody else's reading is disturbed and nothing is committed.
"""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidelog.cli.addresses import unreachable
from tidelog.cli.connection import explain, open_consumer, topic_metadata
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.jsonlines import json_of
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, RecordFormat, TopicName
from tidelog.cli.screen import json_line
from tidelog.cli.start import Start, parse_start, starting_offsets

POLL_S = 0.2
POLL_RECORDS_MAX = 1_000
UNREACHABLE_AFTER_S = 10.0


class Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


def consume(
    topic: TopicName,
    partition: Annotated[list[int] | None, typer.Option(help="Only this one (may be repeated).")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="earliest, latest, OFFSET, -N (the last N) or @TIMESTAMP."
        ),
    ] = "earliest",
    count: Annotated[int | None, typer.Option(min=1, help="End after so many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End at the end instead of waiting.")
    ] = False,
    key_delimiter: Annotated[str | None, typer.Option(help="Print key, this text, value.")] = None,
    isolation: Annotated[Isolation, typer.Option(help="Which transactions to show.")] = Isolation.COMMITTED,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: Annotated[
        RecordFormat, typer.Option(help="Values, or one JSON object a line.")
    ] = RecordFormat.TEXT,
) -> None:
    """Print the records of TOPIC."""
    where = parse_start(start)
    printer = Printer(sys.stdout.buffer, format, key_delimiter, count)
    watch = _Watch(bootstrap_server)
    consumer = open_consumer(
        bootstrap_server,
        **{"isolation.level": isolation.value, "enable.partition.eof": True, "error_cb": watch.on_error},
    )
    try:
        partitions = _assign(consumer, bootstrap_server, topic, partition, where)
        _print_until_done(consumer, printer, watch, set(partitions) if exit_at_end else None)
    except KafkaException as error:
        raise explain(error, bootstrap_server) from None
    finally:
        consumer.close()


class Printer:
    """Writes records to a stream, as many as were asked for."""

    def __init__(
        self, out: BinaryIO, format: RecordFormat, key_delimiter: str | None, count: int | None
    ) -> None:
        self._out = out
        self._format = format
        self._key_delimiter = None if key_delimiter is None else key_delimiter.encode()
        self._remaining_count = count

    @property
    def is_done(self) -> bool:
        return self._remaining_count == 0

    def print(self, message: Message) -> None:
        self._out.write(self._line(message) + b"\n")
        if self._remaining_count is not None:
            self._remaining_count -= 1

    def flush(self) -> None:
        self._out.flush()

    def _line(self, message: Message) -> bytes:
        if self._format is RecordFormat.JSON:
            return json_line(json_of(message)).encode()
        if self._key_delimiter is None:
            return message.value() or b""
        return (message.key() or b"") + self._key_delimiter + (message.value() or b"")


class _Watch:
    """Notices that all brokers are gone for good, while librdkafka goes on trying."""

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._down_since: float | None = None

    def on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = time.monotonic()

    def on_answer(self) -> None:
        self._down_since = None

    def check(self) -> None:
        if self._down_since is not None and time.monotonic() - self._down_since > UNREACHABLE_AFTER_S:
            raise unreachable(self._bootstrap_server, "the connection was lost")


def _assign(
    consumer: Consumer, bootstrap_server: str, topic: str, wanted: list[int] | None, where: Start
) -> list[int]:
    existing = sorted(topic_metadata(consumer, bootstrap_server, topic).partitions)
    for number in wanted or []:
        if number not in existing:
            raise BadWord(f"--partition {number}: topic {topic!r} has partitions 0 to {existing[-1]}")
    partitions = sorted(set(wanted or existing))
    offsets = starting_offsets(consumer, topic, partitions, where)
    consumer.assign([TopicPartition(topic, number, offsets[number]) for number in partitions])
    return partitions


def _print_until_done(
    consumer: Consumer, printer: Printer, watch: _Watch, unfinished: set[int] | None
) -> None:
    """`unfinished`: the partitions whose end has not been seen, or None to wait for more at the end."""
    while unfinished is None or unfinished:
        messages = consumer.consume(POLL_RECORDS_MAX, POLL_S)
        for message in messages:
            error = message.error()
            if error is None:
                printer.print(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if unfinished is not None:
                    unfinished.discard(message.partition() or 0)
            else:
                raise Failure(f"partition {message.partition()}: {error.str()}")
            if printer.is_done:
                return printer.flush()
        printer.flush()
        if messages:
            watch.on_answer()
        watch.check()
