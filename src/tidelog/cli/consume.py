"""`tidelog consume`: prints the records of a topic, without a consumer group.

Records are fetched from the leaders directly: other consumers are not affected, nothing is committed, and
no group is created.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, BinaryIO

import typer

from tidelog.cli.connection import open_admin, topic_metadata
from tidelog.cli.failure import BadWord
from tidelog.cli.jsonlines import json_of
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, RecordFormat, TopicName
from tidelog.cli.reading import PlacedRecord, Reading, explain_client, open_cluster
from tidelog.cli.screen import json_line
from tidelog.cli.start import parse_start
from tidelog.client.attempts import Attempts
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, TopicPartition

LOOK_S = 0.1  # between two fetches at the end of a partition
OUTAGE_TOLD_S = 2.0


class Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


def consume(
    topic: TopicName,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition (may be repeated).")
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="earliest, latest, OFFSET, -N (the last N) or @TIMESTAMP."
        ),
    ] = "earliest",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end instead of waiting.")
    ] = False,
    key_delimiter: Annotated[
        str | None, typer.Option(help="Print key and value with this text between them.")
    ] = None,
    isolation: Annotated[Isolation, typer.Option(help="Which transactions to show.")] = Isolation.COMMITTED,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: Annotated[
        RecordFormat, typer.Option(help="Values, or one JSON object a line.")
    ] = RecordFormat.TEXT,
) -> None:
    """Print the records of TOPIC."""
    where = parse_start(start)
    printer = Printer(sys.stdout.buffer, format, key_delimiter, count)
    existing = sorted(topic_metadata(open_admin(bootstrap_server), bootstrap_server, topic).partitions)
    chosen = _choose(topic, existing, partition)
    with open_cluster(bootstrap_server) as cluster:
        try:
            reading = Reading(cluster, topic, chosen, where, committed_only=isolation is Isolation.COMMITTED)
            if exit_at_end:
                _print_to_the_end(cluster, reading, printer)
            else:
                _print_until_done(cluster, reading, printer)
        except ClientError as error:
            printer.flush()
            raise explain_client(error, bootstrap_server) from None


class Printer:
    """Writes records to a stream, up to the requested number."""

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

    def print(self, found: PlacedRecord) -> None:
        self._out.write(self._line(found) + b"\n")
        if self._remaining_count is not None:
            self._remaining_count -= 1

    def flush(self) -> None:
        self._out.flush()

    def _line(self, found: PlacedRecord) -> bytes:
        record = found.record
        if self._format is RecordFormat.JSON:
            return json_line(json_of(found.partition, record)).encode()
        if self._key_delimiter is None:
            return record.value or b""
        return (record.key or b"") + self._key_delimiter + (record.value or b"")


def _choose(topic: str, existing: list[int], wanted: list[int] | None) -> list[int]:
    for number in wanted or []:
        if number not in existing:
            raise BadWord(f"--partition {number}: topic {topic!r} has partitions 0 to {existing[-1]}")
    return sorted(set(wanted or existing))


def _print_to_the_end(cluster: Cluster, reading: Reading, printer: Printer) -> None:
    """Print each partition once; retry unreadable ones until the timeout."""
    places: list[TopicPartition] | None = None
    attempts = cluster.attempts("reading to the end")
    while places is None or places:
        if _print(reading.records(places), printer):
            attempts = cluster.attempts("reading to the end")
        if printer.is_done:
            return
        places = list(reading.unread)
        if reading.problem is not None:
            attempts.again(reading.problem)


def _print_until_done(cluster: Cluster, reading: Reading, printer: Printer) -> None:
    """Print until no partition can be read any more."""
    attempts: Attempts | None = None
    outage = Outage()
    while not printer.is_done:
        is_new = _print(reading.records(), printer)
        outage.note(reading)
        if reading.is_at_a_loss and reading.problem is not None:
            attempts = attempts or cluster.attempts("following")
            attempts.again(reading.problem)
            continue
        attempts = None
        if not is_new and not printer.is_done:
            time.sleep(LOOK_S)


def _print(records: Iterator[PlacedRecord], printer: Printer) -> bool:
    """Print the records; return whether there were any."""
    is_new = False
    for found in records:
        is_new = True
        printer.print(found)
        if printer.is_done:
            break
    printer.flush()
    return is_new


class Outage:
    """Reports, once, that partitions are unreadable for longer than an election takes, and the recovery."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_told = False

    def note(self, reading: Reading) -> None:
        if not reading.unread:
            if self._is_told:
                print("tidelog: all partitions can be read again", file=sys.stderr)
            self._since, self._is_told = None, False
            return
        if self._since is None:
            self._since = time.monotonic()
        is_long = time.monotonic() - self._since >= OUTAGE_TOLD_S
        if is_long and not self._is_told and not reading.is_at_a_loss:
            self._is_told = True
            print(f"tidelog: {reading.problem}; reading the other partitions", file=sys.stderr)
