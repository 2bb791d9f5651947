"""`tidelog consume`: prints the records of a topic, without a consumer group.

Leaders are asked for their records: nobody else's reading is disturbed, nothing is committed, and
no group and no topic of groups comes of it.
"""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated, BinaryIO

import typer

from tidelog.cli.connection import open_admin, topic_metadata
from tidelog.cli.failure import BadWord
from tidelog.cli.jsonlines import json_of
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, RecordFormat, TopicName
from tidelog.cli.reading import PlacedRecord, Reading, explain_client, open_cluster
from tidelog.cli.screen import json_line
from tidelog.cli.start import parse_start, starting_offsets
from tidelog.client.errors import ClientError
from tidelog.protocol.errors import CorruptBatch

LOOK_S = 0.1  # between two looks for more, at the end


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
    existing = sorted(topic_metadata(open_admin(bootstrap_server), bootstrap_server, topic).partitions)
    chosen = _choose(topic, existing, partition)
    with open_cluster(bootstrap_server) as cluster:
        try:
            offsets = starting_offsets(cluster, topic, chosen, where)
            reading = Reading(cluster, topic, offsets, committed_only=isolation is Isolation.COMMITTED)
            _print_until_done(reading, printer, exit_at_end)
        except (ClientError, CorruptBatch) as error:
            printer.flush()
            raise explain_client(error, bootstrap_server) from None


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


def _print_until_done(reading: Reading, printer: Printer, exit_at_end: bool) -> None:
    while True:
        is_new = False
        for found in reading.records():
            is_new = True
            printer.print(found)
            if printer.is_done:
                return printer.flush()
        printer.flush()
        if exit_at_end:
            return None
        if not is_new:
            time.sleep(LOOK_S)
