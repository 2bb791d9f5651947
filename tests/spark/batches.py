"""Record batches of every kind for the tests of the walk, and the rows that they must give.

Batches are made by `build_batch`, and by a second encoder where it cannot: with gaps, as compaction leaves
them. What is expected is what `read_records`, the reader without compiled code, finds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from tidelog.base.files import Buffer
from tidelog.protocol import batch as batches
from tidelog.protocol import compression, wire
from tidelog.protocol.batch import read_header
from tidelog.protocol.records import Headers, Marker, Record, build_batch, build_control_batch, read_records
from tidelog.spark.columns import Columns

Plain = tuple[bytes | None, bytes | None, Headers, int]
Row = tuple[bytes | None, bytes | None, str, int, int, int, int, list[dict[str, Any]] | None]

BYTES = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=100, max_size=300))
HEADER_KEYS = st.one_of(st.sampled_from(["", "trace", "größe"]), st.just("\udcff\udc80a"))
HEADERS = st.lists(st.tuples(HEADER_KEYS, BYTES), max_size=3)
TIMESTAMPS = st.one_of(st.integers(-1, 2**42), st.integers(-(2**52), 2**52))
RECORD_LISTS = st.lists(st.tuples(BYTES, BYTES, HEADERS, TIMESTAMPS), min_size=1, max_size=9)


def sealed(batch: bytes | bytearray) -> bytearray:
    """The batch with the length and the checksum that its bytes need."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - batches.LENGTH_OVERHEAD)
    struct.pack_into(">I", out, batches.CRC_POSITION, crc32c(out[batches.ATTRIBUTES_POSITION :]))
    return out


def rebodied(batch: bytes | bytearray, body: bytes | bytearray) -> bytearray:
    """The batch with another body, compressed as the first was."""
    codec = read_header(batch).codec
    return sealed(bytes(batch[:61]) + (compression.compress(codec, bytes(body)) if body else b""))


def thinned(batch: bytearray, kept: Iterable[int]) -> bytearray:
    """What compaction leaves: only the records with these deltas, the header's offsets as they were."""
    header = read_header(batch)
    left = [record for record in read_records(batch) if record.offset - header.base_offset in set(kept)]
    body = bytearray()
    for record in left:
        encoded = encode_record(record, header)
        wire.write_varint(body, len(encoded))
        body += encoded
    out = bytearray(batch)
    struct.pack_into(">i", out, 57, len(left))
    return rebodied(out, body)


def encode_record(record: Record, header: batches.BatchHeader) -> bytearray:
    out = bytearray(1)
    wire.write_varint(out, 0 if header.uses_append_time else record.timestamp - header.base_timestamp)
    wire.write_varint(out, record.offset - header.base_offset)
    fields: list[bytes | None] = [record.key, record.value]
    for number, field in enumerate(fields + [x for pair in record.headers for x in encoded_pair(pair)]):
        if number == 2:
            wire.write_varint(out, len(record.headers))
        wire.write_varint(out, -1 if field is None else len(field))
        out += field or b""
    if not record.headers:
        out.append(0)
    return out


def encoded_pair(pair: tuple[str, bytes | None]) -> tuple[bytes, bytes | None]:
    return pair[0].encode(errors="surrogateescape"), pair[1]


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Batches of one partition in order: every codec, gaps, bare headers, control batches."""
    offset = draw(st.integers(0, 5))
    log: list[bytearray] = []
    for _ in range(draw(st.integers(1, 6))):
        batch = draw(batches_at(offset))
        log.append(batch)
        offset = read_header(batch).last_offset + 1 + draw(st.sampled_from([0, 0, 0, 4]))
    return log


@st.composite
def batches_at(draw: st.DrawFn, offset: int) -> bytearray:
    kind = draw(st.sampled_from(["plain"] * 4 + ["append", "thinned", "thinned", "bare", "marker"]))
    if kind == "marker":
        return build_control_batch(draw(st.sampled_from(Marker)), 7, 0, 0, 1_000, base_offset=offset)
    records = draw(RECORD_LISTS)
    append_time = draw(st.integers(0, 2**42)) if kind == "append" else None
    codec = draw(st.integers(0, 4))
    batch = build_batch(records, base_offset=offset, codec=codec, append_time_ms=append_time)
    if kind in ("thinned", "bare"):
        everything = st.sets(st.integers(0, len(records) - 1), max_size=0 if kind == "bare" else None)
        batch = thinned(batch, draw(everything))
    return batch


def rows_of(log: Sequence[bytes | bytearray], start: int = 0, end: int = 2**62) -> list[Row]:
    """The rows that consumers must see of the batches, read without compiled code."""
    rows: list[Row] = []
    for batch in log:
        header = read_header(batch)
        if not header.is_control:
            kind = int(header.uses_append_time)
            rows += [row_of(record, kind) for record in read_records(batch) if start <= record.offset < end]
    return rows


def row_of(record: Record, timestamp_type: int) -> Row:
    headers = [
        {"key": key.encode(errors="surrogateescape").decode(errors="replace"), "value": value}
        for key, value in record.headers
    ]
    timestamp = record.timestamp * 1000
    return record.key, record.value, "clicks", 3, record.offset, timestamp, timestamp_type, headers or None


def columns_for(start: int = 0, end: int = 2**62, **options: Any) -> Columns:
    return Columns("clicks", 3, start, end, **{"include_headers": True, **options})


def walked(columns: Columns, data: Buffer) -> list[Row]:
    """All rows that the columns give of one piece of data."""
    got = [*columns.add(memoryview(data), 0, len(data)), *columns.finish()]
    return [row for page in got for row in plain_rows(page)]


def plain_rows(page: Any) -> list[Row]:
    page.validate(full=True)
    names = page.schema.names
    columns = [page.column(name) for name in names]
    columns[5] = columns[5].cast("int64")
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows if "headers" in names else [(*row, None) for row in rows]
