"""Record batches to Arrow: fetched bytes as the columns of Spark's Kafka connector.

Python runs once per piece of fetched data and once per Arrow record batch; the records themselves are read by
the compiled loops of `walk`, directly into the buffers that Arrow will own. For large values copying is the
main cost: if the fetched bytes may be overwritten, values are only moved together within them, and these
bytes become the column.

**Invariant:** every offset of the range is returned at most once and in order; inconsistent bytes raise only
`CorruptRecords`; nothing is overwritten before it was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from tidelog.base.compiled import Bytes, Int64s
from tidelog.base.limits import DECOMPRESSED_SIZE_MAX, MIB, SPARK_MOVED_SIZE_MIN
from tidelog.protocol import compression
from tidelog.protocol.batch import ATTRIBUTES_POSITION, CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, read_marker
from tidelog.spark import scan, walk
from tidelog.spark.page import Pages

_BATCHES_AT_ONCE = 1_024
_UNFOLDED_AT_ONCE = 4 * MIB  # compressed batches are decompressed up to this size, then walked

_PROBLEMS = {
    scan.BAD_LENGTH: "its length is less than that of a header",
    scan.BAD_MAGIC: "it is no record batch of format 2, and message sets of clients before 0.11 are not read",
    scan.BAD_OFFSETS: "its offsets cannot be",
    scan.BAD_CRC: "its checksum does not match",
    scan.BAD_COUNT: "its record count is negative",
    scan.BAD_VARINT: "a number is cut off or too long",
    scan.BAD_RECORD_SIZE: "a record is longer than what is left",
    scan.BAD_FIELD_SIZE: "a key or value is longer than its record",
    scan.BAD_DELTA: "its offsets are not in order or beyond the last",
    scan.BAD_HEADERS: "the headers do not fill their record",
    scan.BAD_TIMESTAMP: "a timestamp is out of the range that Spark has",
    scan.LEFT_OVER: "there is more than the records it counts",
}


class CorruptRecords(ValueError):
    """Record batches that are inconsistent, or in an unsupported format."""


class Columns:
    """The rows of one partition's offsets [start, end), as record batches of about `rows` rows."""

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        include_headers: bool = False,
        committed_only: bool = False,
        rows: int = 10_000,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.end = end
        self.include_headers = include_headers
        self._pages = Pages(topic, partition, include_headers, rows)
        self._page = self._pages.open()
        self._ground: Bytes | None = None  # the fetched bytes that may be overwritten with values
        self._aborted = AbortedTransactions() if committed_only else None
        self._table = np.empty((_BATCHES_AT_ONCE, scan.BATCH_FIELDS), np.int64)
        self._found = np.empty(scan.FOUND_FIELDS, np.int64)
        self._cursor = np.zeros(walk.CURSOR_FIELDS, np.int64)
        self._cursor[walk.CURSOR_OFFSET] = start
        self._wanted = np.empty(walk.ROOMS, np.int64)

    @property
    def position(self) -> int:
        """The first offset that was not added yet."""
        return min(int(self._cursor[walk.CURSOR_OFFSET]), self.end)

    @property
    def next_offset(self) -> int:
        """The first offset that was neither returned nor skipped."""
        return self._page.first_offset if self._page.row_count else self.position

    def add(
        self,
        data: memoryview,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]] | None = None,
        *,
        may_overwrite: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Add the whole batches of `data[start:end]`; `aborted` is the fetch's list of aborted transactions.

        With `may_overwrite` the rows own the memory of `data` from now on, if it is writable.
        """
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"{start} to {end} is not a part of {len(data)} bytes")
        view = _readable(data)
        ground = np.frombuffer(data, np.uint8) if may_overwrite and not data.readonly else None
        if self._aborted:
            self._aborted.expect(aborted or ())
        found = self._found
        while self.position < self.end:
            status = scan.scan(view, start, end, self.position, self.end, self._table, found)
            count, start = int(found[scan.FOUND_BATCHES]), int(found[scan.FOUND_POSITION])
            yield from self._take(data, view, ground, self._table[:count])
            if status != scan.DONE:
                raise self._corrupt(int(found[scan.FOUND_OFFSET]), _PROBLEMS[status])
            if found[scan.FOUND_PAST_END]:
                self._cursor[walk.CURSOR_OFFSET] = self.end
            if count < len(self._table):
                break

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The remaining rows."""
        if self._page.row_count:
            yield self._close_page()

    def _take(
        self, data: memoryview, view: Bytes, ground: Bytes | None, table: Int64s
    ) -> Iterator[pa.RecordBatch]:
        """The rows of all batches in the table."""
        if not len(table):
            return
        self._check_crcs(data, table)
        kept = self._without_dropped(data, table)
        codecs = kept[:, scan.BATCH_ATTRIBUTES] & CODEC_MASK
        if codecs.any():
            for body, run in self._runs(data, view, kept, codecs.tolist()):
                yield from self._walk(body, run)
        elif ground is not None and _span(kept) >= SPARK_MOVED_SIZE_MIN:
            yield from self._walk_in_place(view, ground[int(kept[0, scan.BATCH_BODY]) :], kept)
        else:
            yield from self._walk(view, kept)
        last = table[-1]
        next_offset = int(last[scan.BATCH_OFFSET]) + int(last[scan.BATCH_LAST_DELTA]) + 1
        self._cursor[walk.CURSOR_OFFSET] = max(self.position, min(next_offset, self.end))

    def _check_crcs(self, data: memoryview, table: Int64s) -> None:
        """Check the batches that were too large for the scan to check."""
        large = table[table[:, scan.BATCH_CRC] >= 0]
        columns = (
            large[:, column].tolist()
            for column in (scan.BATCH_START, scan.BATCH_END, scan.BATCH_CRC, scan.BATCH_OFFSET)
        )
        for start, end, crc, offset in zip(*columns, strict=True):
            if crc32c(data[start + ATTRIBUTES_POSITION : end]) != crc:
                raise self._corrupt(offset, _PROBLEMS[scan.BAD_CRC])

    def _without_dropped(self, data: memoryview, table: Int64s) -> Int64s:
        """The batches visible to consumers: no control batches, and for read_committed no aborted ones."""
        attributes = table[:, scan.BATCH_ATTRIBUTES]
        if not (attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)).any():
            return table
        kept = attributes & CONTROL_BIT == 0
        if self._aborted:
            try:
                kept &= ~self._aborted.find(data, table)
            except CorruptBatch as problem:
                raise self._corrupt(self._aborted.offset, str(problem)) from None
        seen: Int64s = table[kept]
        return seen

    def _runs(
        self, data: memoryview, view: Bytes, table: Int64s, codecs: list[int]
    ) -> Iterator[tuple[Bytes, Int64s]]:
        """Parts of the table whose bodies are in one buffer: as fetched, or decompressed."""
        first = 0
        while first < len(codecs):
            stop = first
            if codecs[first] == compression.NONE:
                while stop < len(codecs) and codecs[stop] == compression.NONE:
                    stop += 1
                yield view, table[first:stop]
            else:
                bodies: list[bytes] = []
                size = 0
                while stop < len(codecs) and codecs[stop] != compression.NONE and size < _UNFOLDED_AT_ONCE:
                    body = self._unfold(data, table[stop])
                    table[stop, scan.BATCH_BODY] = size
                    size += len(body)
                    table[stop, scan.BATCH_END] = size
                    bodies.append(body)
                    stop += 1
                yield _readable(b"".join(bodies) if len(bodies) > 1 else bodies[0]), table[first:stop]
            first = stop

    def _unfold(self, data: memoryview, batch: Int64s) -> bytes:
        start, end = int(batch[scan.BATCH_BODY]), int(batch[scan.BATCH_END])
        if start == end:
            return b""  # compaction leaves the bare header of an empty batch
        codec = int(batch[scan.BATCH_ATTRIBUTES]) & CODEC_MASK
        try:
            return compression.decompress(codec, data[start:end], DECOMPRESSED_SIZE_MAX)
        except CorruptBatch as problem:
            raise self._corrupt(int(batch[scan.BATCH_OFFSET]), str(problem)) from None

    def _walk_in_place(self, data: Bytes, ground: Bytes, table: Int64s) -> Iterator[pa.RecordBatch]:
        """A walk that moves values to `ground`, which begins at the first body."""
        if self._page.row_count:
            yield self._close_page()
        self._page.begin_at(ground)
        self._ground = ground
        yield from self._walk(data, table)
        self._ground = None
        if self._page.row_count:
            yield self._close_page()
        else:
            self._page.begin_at(None)

    def _walk(self, data: Bytes, table: Int64s) -> Iterator[pa.RecordBatch]:
        cursor, wanted = self._cursor, self._wanted
        cursor[walk.CURSOR_BATCH] = cursor[walk.CURSOR_RECORD] = 0
        while True:
            page = self._page
            status = walk.walk(
                data, table, self.end, self.include_headers, cursor, page.count, page.outputs, wanted
            )
            if status > scan.NO_ROOM:
                offset = int(table[cursor[walk.CURSOR_BATCH], scan.BATCH_OFFSET])
                raise self._corrupt(offset, _PROBLEMS[status])
            if page.is_full or (status == scan.NO_ROOM and page.is_too_large_for(wanted)):
                yield self._close_page()
            elif status == scan.NO_ROOM:
                page.grow(wanted)
            if status == scan.DONE:
                return

    def _close_page(self) -> pa.RecordBatch:
        page = self._page
        if self._ground is not None:
            self._ground = self._ground[page.value_size :]
        batch = page.close()
        self._page = self._pages.open(self._ground)
        return batch

    def _corrupt(self, offset: int, problem: str) -> CorruptRecords:
        return CorruptRecords(
            f"topic {self.topic}, partition {self.partition}, the batch at offset {offset}: {problem}"
        )


class AbortedTransactions:
    """The producers inside an aborted transaction, at the present position in a partition.

    A fetch lists the transactions that overlap it, by producer and first offset; each ends at that producer's
    abort marker. Several fetches may list the same transaction.
    """

    def __init__(self) -> None:
        self.offset = 0  # of the last batch checked
        self._expected: list[tuple[int, int]] = []  # first offset and producer, the next one last
        self._begun: dict[int, int] = {}  # producer to the first offset of its latest transaction reached
        self._open: set[int] = set()

    def expect(self, aborted: Sequence[tuple[int, int]]) -> None:
        new = [(first, producer) for producer, first in aborted if first > self._begun.get(producer, -1)]
        self._expected = sorted(new, reverse=True)

    def find(self, data: memoryview, table: Int64s) -> NDArray[np.bool_]:
        """The batches of the table that belong to an aborted transaction."""
        found = np.zeros(len(table), np.bool_)
        if not self._expected and not self._open:
            return found
        marked = table[:, scan.BATCH_ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0
        for index in np.flatnonzero(marked & (table[:, scan.BATCH_PRODUCER_ID] >= 0)).tolist():
            found[index] = self._pass(data, table[index])
        return found

    def _pass(self, data: memoryview, batch: Int64s) -> bool:
        """Go past a batch, with the transactions that begin or end by it; whether it is of an aborted one."""
        self.offset = int(batch[scan.BATCH_OFFSET])
        producer = int(batch[scan.BATCH_PRODUCER_ID])
        while self._expected and self._expected[-1][0] <= self.offset + int(batch[scan.BATCH_LAST_DELTA]):
            first, begun = self._expected.pop()
            self._begun[begun] = first
            self._open.add(begun)
        if producer not in self._open:
            return False
        if int(batch[scan.BATCH_ATTRIBUTES]) & CONTROL_BIT:
            marker = read_marker(data[int(batch[scan.BATCH_START]) : int(batch[scan.BATCH_END])])
            if marker is not None and marker[0] == Marker.ABORT:
                self._open.remove(producer)
        return True


def _span(table: Int64s) -> int:
    return int(table[-1, scan.BATCH_END]) - int(table[0, scan.BATCH_START]) if len(table) else 0


def _readable(data: memoryview | bytes) -> Bytes:
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view
