"""What tests of the segment reader share: folders written by the log engine, and their rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidelog.client.cluster import EARLIEST, LATEST, FoundOffset, TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.spark.columns import Columns
from tidelog.spark.segments import LogFolders
from tidelog.spark.survey import Place

Rows = list[dict[str, Any]]


def rows_of(
    pieces: Iterable[RawBatches], partition: TopicPartition, start: int, end: int, *, committed_only: bool
) -> Rows:
    """The rows that Spark makes of the pieces."""
    columns = Columns(*partition, start, end, include_headers=True, committed_only=committed_only)
    pages = [page for piece in pieces for page in columns.add(*piece[:4])]
    return [row for page in [*pages, *columns.finish()] for row in page.to_pylist()]


def read_folder(
    path: Path | str, partition: TopicPartition, start: int, end: int, *, committed_only: bool = False
) -> Rows:
    pieces = LogFolders([str(path)]).read(partition, start, end)
    return rows_of(pieces, partition, start, end, committed_only=committed_only)


def edges(place: Place, partition: TopicPartition, *, committed_only: bool = False) -> tuple[int, int]:
    """The earliest and the latest offset."""
    return (
        offset_at(place, partition, EARLIEST, committed_only=committed_only).offset,
        offset_at(place, partition, LATEST, committed_only=committed_only).offset,
    )


def offset_at(
    place: Place, partition: TopicPartition, time: int, *, committed_only: bool = False
) -> FoundOffset:
    return place.list_offsets({partition: time}, committed_only=committed_only)[partition]


def read_whole(path: Path | str, partition: TopicPartition, *, committed_only: bool = False) -> Rows:
    start, end = edges(LogFolders([str(path)]), partition, committed_only=committed_only)
    return read_folder(path, partition, start, end, committed_only=committed_only)


def offsets(rows: Rows) -> list[int]:
    return [row["offset"] for row in rows]
