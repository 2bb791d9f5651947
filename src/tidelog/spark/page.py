"""One Arrow record batch while it is filled: its buffers, their fill levels, and the finished batch.

The initial size of the variable-length buffers is that of the previous page, and they grow when a record
does not fit; columns with constant values are created once. Values may also stay in the memory into which
they were fetched.

**Invariant:** a buffer that Arrow owns is never written again.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.base.compiled import Bytes, Int32s, Int64s
from tidelog.base.limits import MIB, SPARK_ROOM_MAX
from tidelog.spark import walk
from tidelog.spark.walk import Outputs

Number = TypeVar("Number", np.uint8, np.int32)

_FIRST_ROOM = 1 * MIB
_FIRST_HEADERS = 4_096
_GROWTH = 4
# For the keys, values or headers of one record batch, unless one row has more. A worker fills a page while
# the JVM takes the rows of the one before: with ten thousand rows of 1,000 B both waited for each other, and
# pages of 10 MB were new memory each time, here and in Spark. With less than this, what Python and Spark do
# for each page is more than a tenth of the work.
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_COLUMNS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]


def schema(include_headers: bool) -> pa.Schema:
    """The columns of Spark's Kafka connector, in its order; every one may be null."""
    return pa.schema([*_COLUMNS, pa.field("headers", _HEADERS)] if include_headers else _COLUMNS)


class Pages:
    """The shared state of all pages of one partition."""

    def __init__(self, topic: str, partition: int, include_headers: bool, rows: int) -> None:
        self.rows = rows
        self.include_headers = include_headers
        self.schema = schema(include_headers)
        self.topics = pa.repeat(pa.scalar(topic, pa.string()), rows)
        self.partitions = pa.repeat(pa.scalar(partition, pa.int32()), rows)
        self.room = np.full(walk.ROOMS, _FIRST_ROOM, np.int64)
        self.room[walk.HEADERS] = _FIRST_HEADERS

    def open(self, ground: Bytes | None = None) -> Page:
        """An empty page, with its values at the beginning of `ground` if given."""
        return Page(self, ground)


class Page:
    """The buffers of one record batch. `count` is their fill level; the walk writes both."""

    def __init__(self, pages: Pages, ground: Bytes | None) -> None:
        self._pages = pages
        self._is_in_place = ground is not None
        self.count = np.zeros(walk.COUNT_FIELDS, np.int64)
        rows = pages.rows
        room = pages.room.tolist()
        header_rows, headers = (rows, room[walk.HEADERS]) if pages.include_headers else (0, 0)
        self.outputs = Outputs(
            key_ends=_ends(rows),
            key_bits=_bits(rows),
            keys=np.empty(room[walk.KEY_BYTES], np.uint8),
            value_ends=_ends(rows),
            value_bits=_bits(rows),
            values=np.empty(room[walk.VALUE_BYTES], np.uint8) if ground is None else ground[:SPARK_ROOM_MAX],
            offsets=np.empty(rows, np.int64),
            timestamps=np.empty(rows, np.int64),
            timestamp_types=np.empty(rows, np.int32),
            header_ends=_ends(header_rows),
            header_bits=_bits(header_rows),
            header_key_ends=_ends(headers),
            header_keys=np.empty(room[walk.HEADER_KEY_BYTES] if headers else 0, np.uint8),
            header_value_ends=_ends(headers),
            header_value_bits=_bits(headers),
            header_values=np.empty(room[walk.HEADER_VALUE_BYTES] if headers else 0, np.uint8),
        )

    def begin_at(self, ground: Bytes | None) -> None:
        """Put the values into `ground`; only possible for an empty page."""
        values = np.empty(0, np.uint8) if ground is None else ground[:SPARK_ROOM_MAX]
        self.outputs = self.outputs._replace(values=values)
        self._is_in_place = ground is not None

    @property
    def row_count(self) -> int:
        return int(self.count[walk.ROWS])

    @property
    def value_size(self) -> int:
        """The size of all values."""
        return int(self.count[walk.VALUE_BYTES])

    @property
    def is_full(self) -> bool:
        return self.row_count == self._pages.rows

    @property
    def first_offset(self) -> int:
        return int(self.outputs.offsets[0])

    def is_too_large_for(self, wanted: Int64s) -> bool:
        """Whether the next record should start a new page instead of growing this one."""
        return self.row_count > 0 and bool(wanted[walk.KEY_BYTES :].max() > SPARK_ROOM_MAX)

    def grow(self, wanted: Int64s) -> None:
        """Make room for the sizes that the walk requested, and for a multiple of the present size."""
        old = self.outputs
        keys, values, headers, header_keys, header_values = wanted[walk.KEY_BYTES :].tolist()
        new = old._replace(keys=_grown(old.keys, keys), values=_grown(old.values, values))
        if self._pages.include_headers:
            new = new._replace(
                header_key_ends=_grown(old.header_key_ends, headers + 1),
                header_keys=_grown(old.header_keys, header_keys),
                header_value_ends=_grown(old.header_value_ends, headers + 1),
                header_value_bits=_grown(old.header_value_bits, headers // 8 + 1),
                header_values=_grown(old.header_values, header_values),
            )
        self.outputs = new

    def close(self) -> pa.RecordBatch:
        """The rows as Arrow; the page must not be used afterwards."""
        pages, out, rows = self._pages, self.outputs, self.row_count
        pages.room = np.minimum(self.count[: walk.ROOMS] * 9 // 8 + 256, SPARK_ROOM_MAX)
        if self._is_in_place:
            pages.room[walk.VALUE_BYTES] = 0  # probably also true of the next page's values
        nulls = self.count.tolist()
        columns = [
            _binary(pa.binary(), rows, nulls[walk.KEYS_NULL], out.key_bits, out.key_ends, out.keys),
            _binary(pa.binary(), rows, nulls[walk.VALUES_NULL], out.value_bits, out.value_ends, out.values),
            pages.topics.slice(0, rows),
            pages.partitions.slice(0, rows),
            _numbers(4, rows, out.offsets),
            _numbers(5, rows, out.timestamps),
            _numbers(6, rows, out.timestamp_types),
        ]
        if pages.include_headers:
            columns.append(self._headers(rows))
        return pa.RecordBatch.from_arrays(columns, schema=pages.schema)

    def _headers(self, rows: int) -> pa.Array:
        out, nulls = self.outputs, self.count.tolist()
        number = nulls[walk.HEADERS]
        keys = _binary(pa.string(), number, 0, out.header_bits, out.header_key_ends, out.header_keys)
        if nulls[walk.HEADER_KEYS_NOT_ASCII]:
            keys = _as_text(keys)
        values = _binary(
            pa.binary(),
            number,
            nulls[walk.HEADER_VALUES_NULL],
            out.header_value_bits,
            out.header_value_ends,
            out.header_values,
        )
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADERS.value_type))
        without = nulls[walk.ROWS_WITHOUT_HEADERS]
        bits = pa.py_buffer(out.header_bits) if without else None
        ends = pa.py_buffer(out.header_ends[: rows + 1])
        return pa.Array.from_buffers(_HEADERS, rows, [bits, ends], without, children=[pairs])


def _ends(rows: int) -> Int32s:
    ends = np.empty(rows + 1, np.int32)
    ends[0] = 0
    return ends


def _bits(rows: int) -> Bytes:
    return np.zeros(rows // 8 + 1, np.uint8)


def _grown(old: NDArray[Number], size: int) -> NDArray[Number]:
    if size <= len(old):
        return old
    new = np.zeros(max(size, min(_GROWTH * len(old), SPARK_ROOM_MAX)), old.dtype)
    new[: len(old)] = old
    return new


def _numbers(column: int, rows: int, numbers: Int64s | Int32s) -> pa.Array:
    return pa.Array.from_buffers(_COLUMNS[column].type, rows, [None, pa.py_buffer(numbers[:rows])])


def _binary(kind: pa.DataType, rows: int, nulls: int, bits: Bytes, ends: Int32s, data: Bytes) -> pa.Array:
    content = pa.py_buffer(data[: int(ends[rows])])
    return pa.Array.from_buffers(
        kind, rows, [pa.py_buffer(bits) if nulls else None, pa.py_buffer(ends[: rows + 1]), content], nulls
    )


def _as_text(keys: pa.Array) -> pa.Array:
    """Keys that are not UTF-8 as Java decodes them, with replacement characters."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        texts = [key.decode(errors="replace") for key in keys.cast(pa.binary()).to_pylist()]
        return pa.array(texts, pa.string())
    return keys
