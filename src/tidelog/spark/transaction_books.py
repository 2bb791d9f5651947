"""The transactions of a partition without a broker: which are open, which were aborted.

As a broker that starts: the producers as the last good snapshot at or before the last segment has them, and
from there on the headers of the log. The `.txnindex` files are believed for the segments before that; that of
the last one may lack what a crash or a copy of a running log has cut off.

A stream asks before each of its batches: `updated` goes on where the books end, if the log is still the one
that they were kept of.

**Invariant:** a transaction whose abort marker is in the log is among the aborted ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidelog.base.compiled import Int64s
from tidelog.base.limits import BATCH_HEADER_SIZE, SPARK_WALKED_SIZE
from tidelog.log.format.names import SNAPSHOT_SUFFIX, file_name, offset_in_name
from tidelog.log.format.snapshot import decode_snapshot
from tidelog.protocol.batch import OFFSET_MAX
from tidelog.protocol.errors import CorruptBatch
from tidelog.spark import headers
from tidelog.spark.segment_file import SegmentFile, as_view

_ROWS = 256


class Walked(NamedTuple):
    """How far a segment was walked, and by what one knows that it is still the same: its last header."""

    name: str
    position: int
    last_position: int
    last: bytes


class TransactionBooks:
    """What the log says of transactions, up to but not including the batch at `end`."""

    def __init__(
        self, folder: Path, names: Sequence[str], *, since: int = OFFSET_MAX, end: int = OFFSET_MAX
    ) -> None:
        """`names` are all segments of the log; aborted transactions count that end at `since` or later."""
        self._state = headers.new_state(0)
        self._end = end
        self._walked: Walked | None = None
        indexed, believed = _read_indexes(folder, names, since)
        begin, opened = _read_snapshot(folder, believed)
        self._open = _table([(producer_id, first) for producer_id, first in opened], headers.OPEN_FIELDS)
        kept = [row for row in indexed if row[2] < begin]
        self._aborted = _table(kept, headers.ABORTED_FIELDS)
        self._state[headers.OPEN_COUNT] = len(opened)
        self._state[headers.ABORTED_COUNT] = len(kept)
        for name in names_from(names, begin):
            with SegmentFile(folder, name) as file:
                self._state[headers.NEXT_OFFSET] = file.base_offset
                self._walk(file, file.locate(begin).position)

    def updated(self, folder: Path, names: Sequence[str], end: int) -> bool:
        """Take what was appended to the last segment since; False if the books must be made anew."""
        walked = self._walked
        if walked is None or not names or names[-1] != walked.name or end < self._state[headers.NEXT_OFFSET]:
            return False
        with SegmentFile(folder, names[-1]) as file:
            if (
                file.size < walked.position
                or file.read(walked.last_position, BATCH_HEADER_SIZE) != walked.last
            ):
                return False  # the log was cut, and goes on differently
            self._end = end
            self._walk(file, walked.position)
        return True

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction that is still open begins."""
        count = int(self._state[headers.OPEN_COUNT])
        return int(self._open[:count, 1].min()) if count else None

    def aborted_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer and first offset of the aborted transactions that reach into [start, end)."""
        rows = self._aborted[: int(self._state[headers.ABORTED_COUNT])]
        found = rows[(rows[:, 2] >= start) & (rows[:, 1] < end)]
        return [(producer_id, first) for producer_id, first, _ in found.tolist()]

    def _walk(self, file: SegmentFile, position: int) -> None:
        state, status, before = self._state, headers.MORE, self._walked
        last_position = before.last_position if before and before.name == file.path.name else -1
        while position < file.size and status in (headers.MORE, headers.FULL):
            data = file.read(position, SPARK_WALKED_SIZE)
            state[headers.POSITION], state[headers.LAST_POSITION] = 0, -1
            left = file.size - position
            status = headers.settle(as_view(data), left, self._end, state, self._open, self._aborted)
            if state[headers.LAST_POSITION] >= 0:
                last_position = position + int(state[headers.LAST_POSITION])
            position += int(state[headers.POSITION])
            if status == headers.FULL:
                self._open = _grown(self._open, int(state[headers.OPEN_COUNT]))
                self._aborted = _grown(self._aborted, int(state[headers.ABORTED_COUNT]))
            elif not state[headers.POSITION]:
                break
        last = file.read(last_position, BATCH_HEADER_SIZE) if last_position >= 0 else b""
        self._walked = Walked(file.path.name, position, last_position, last) if last else None


def names_from(names: Sequence[str], offset: int) -> Sequence[str]:
    """The segments from the one that holds the offset on; all of them if they begin later."""
    return names[max(0, bisect_right(names, offset, key=offset_of) - 1) :]


def offset_of(name: str) -> int:
    return int(name[:20])


def _read_indexes(folder: Path, names: Sequence[str], since: int) -> tuple[list[tuple[int, int, int]], int]:
    """What the indexes have, and the offset of the first segment whose index is not believed: the last one's,
    or that of a damaged one."""
    found: list[tuple[int, int, int]] = []
    needed = names_from(names, since)
    for name in needed:
        with SegmentFile(folder, name) as file:
            rows, is_whole = file.aborted()
            if name == needed[-1] or not is_whole:
                return found, file.base_offset
            found += rows
    return found, 0


def _read_snapshot(folder: Path, offset_max: int) -> tuple[int, list[tuple[int, int]]]:
    """The last good snapshot at or before that offset: its offset, and the open transactions."""
    found = (offset_in_name(path.name, SNAPSHOT_SUFFIX) for path in folder.glob(f"*{SNAPSHOT_SUFFIX}"))
    for offset in sorted((each for each in found if each is not None), reverse=True):
        if offset <= offset_max:
            opened = _read_open(folder / file_name(offset, SNAPSHOT_SUFFIX))
            if opened is not None:
                return offset, opened
    return 0, []


def _read_open(path: Path) -> list[tuple[int, int]] | None:
    """Producer and first offset of each transaction that is open; None if the snapshot cannot be read."""
    try:
        entries = decode_snapshot(path.read_bytes())
    except (OSError, CorruptBatch):
        return None
    return [
        (entry.producer_id, entry.open_transaction_offset)
        for entry in entries
        if entry.open_transaction_offset >= 0
    ]


def _table(rows: Sequence[tuple[int, ...]], width: int) -> Int64s:
    """With room for some more."""
    table = np.empty((len(rows) + _ROWS, width), np.int64)
    table[: len(rows)] = np.array(rows, np.int64).reshape(-1, width)
    return table


def _grown(table: Int64s, used: int) -> Int64s:
    if used < len(table):
        return table
    return np.concatenate([table, np.empty_like(table)])
