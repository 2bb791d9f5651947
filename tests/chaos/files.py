"""A partition's files as the disk shows them, read without the help of the code under test."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

_OFFSET_AND_LENGTH = Struct(">qi")


class Batch(NamedTuple):
    position: int
    end_position: int
    base_offset: int


def segments(partition: Path, suffix: str = ".log") -> list[Path]:
    """The files of that kind, oldest first."""
    return sorted(partition.glob(f"*{suffix}"))


def active_segment(partition: Path) -> Path:
    return segments(partition)[-1]


def batches_of(segment: Path) -> list[Batch]:
    """The batches of an undamaged segment, by their announced lengths."""
    data = segment.read_bytes()
    found = []
    position = 0
    while position < len(data):
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
        end_position = position + _OFFSET_AND_LENGTH.size + length
        assert end_position <= len(data), f"{segment} is torn at {position}"
        found.append(Batch(position, end_position, base_offset))
        position = end_position
    return found
