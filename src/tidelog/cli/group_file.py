"""Offsets in a file, in the format of kafka-consumer-groups: CSV without a heading.

A line is `topic,partition,offset`, or `group,topic,partition,offset` if several groups share a file.

**Invariant:** an invalid line is reported with its number, and then nothing of the file is used.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group_members import Partition

STDIN = "-"
_PARTITION = re.compile(r"\d{1,9}", re.ASCII)
_OFFSET = re.compile(r"\d{1,18}", re.ASCII)


def read_offsets(path: Path, group: str) -> dict[Partition, int]:
    """The file's offsets of the group."""
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else path.read_bytes()
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadWord(f"{path}: not a text file") from None
    except OSError as error:
        raise BadWord(f"--from-file {path}: {error.strerror}") from None
    offsets: dict[Partition, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        owner, partition, offset = _parse(line, f"{path} line {number}")
        if owner is not None and owner != group:
            continue
        if partition in offsets:
            raise BadWord(f"{path} line {number}: {partition.topic},{partition.number} appears twice")
        offsets[partition] = offset
    if not offsets:
        raise Failure(f"{path} has no offsets for group {group!r}")
    return offsets


def write_offsets(offsets: Iterable[tuple[Partition, int]]) -> None:
    """Print offsets in the format of `read_offsets` and Kafka's tool."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for partition, offset in offsets:
        writer.writerow((partition.topic, partition.number, offset))


def _parse(line: str, where: str) -> tuple[str | None, Partition, int]:
    try:
        (cells,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        cells = []
    cells = [cell.strip() for cell in cells]
    if len(cells) not in (3, 4) or not cells[-3]:
        raise BadWord(f"{where}: {line!r} is not topic,partition,offset")
    *owner, topic, partition, offset = cells
    if not _PARTITION.fullmatch(partition):
        raise BadWord(f"{where}: {partition!r} is not a partition")
    if not _OFFSET.fullmatch(offset):
        raise BadWord(f"{where}: {offset!r} is not an offset")
    return (owner[0] if owner else None), Partition(topic, int(partition)), int(offset)
