"""Kafka's checkpoint files: a version, a count, then a line of fields for each entry.

**Invariant:** a content that is not whole is None, or no offsets: cut off inside a number, it would read as
another number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Offsets = dict[tuple[str, int], int]

_VERSION = "0"
_OFFSET_FIELDS = 3
_EPOCH_FIELDS = 2


class EpochLines(NamedTuple):
    """The leader epochs of a log, each with its first offset; and the first line that cannot follow, which
    ends the list."""

    entries: list[tuple[int, int]]
    stray: str | None


def encode_rows(rows: Sequence[str]) -> bytes:
    return ("\n".join([_VERSION, str(len(rows)), *rows]) + "\n").encode()


def decode_rows(content: bytes | None, width: int) -> list[list[str]] | None:
    """The fields of each entry, or None if the file is missing or bad."""
    if content is None or content[-1:] != b"\n":
        return None
    try:
        lines = content.decode().split("\n")
        if lines[0] != _VERSION:
            return None
        rows = [line.split(" ") for line in lines[2:] if line]
        if len(rows) != int(lines[1]) or any(len(row) != width for row in rows):
            return None
    except (ValueError, IndexError):
        return None
    return rows


def encode_offsets(offsets: Offsets) -> bytes:
    return encode_rows([f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()])


def decode_offset_rows(content: bytes | None) -> list[list[str]] | None:
    return decode_rows(content, _OFFSET_FIELDS)


def decode_offsets(content: bytes | None) -> Offsets:
    """An offset for each partition; none at all if the file is missing or bad."""
    offsets: Offsets = {}
    for topic, index, offset in decode_offset_rows(content) or ():
        try:
            offsets[topic, int(index)] = int(offset)
        except ValueError:
            return {}
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return encode_rows([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epochs(content: bytes | None) -> EpochLines | None:
    """None if the file is missing or bad."""
    rows = decode_rows(content, _EPOCH_FIELDS)
    if rows is None:
        return None
    entries: list[tuple[int, int]] = []
    for row in rows:
        try:
            epoch, start_offset = int(row[0]), int(row[1])
        except ValueError:
            return EpochLines(entries, " ".join(row))
        if entries and (epoch <= entries[-1][0] or start_offset < entries[-1][1]):
            return EpochLines(entries, " ".join(row))
        entries.append((epoch, start_offset))
    return EpochLines(entries, None)
