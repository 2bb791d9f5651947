"""The columns that Spark's Kafka connector writes, taken from an Arrow record batch as plain arrays.

Each column is checked as the connector does: by its name, the first of that name, and its type. Large strings
and binaries, and columns in which everything is null, are taken too.

**Invariant:** the arrays are Arrow's own memory or copies of it, and are never written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.base.compiled import Bytes, Int32s, Int64s
from tidelog.spark.scatter import Blobs, Inputs

Number = TypeVar("Number", np.uint8, np.int32, np.int64)

_LARGE = (pa.large_binary(), pa.large_string())
_BINARY_OR_STRING = (pa.binary(), pa.string(), *_LARGE)
_STRING = (pa.string(), pa.large_string())


def read_rows(rows: pa.RecordBatch, topic: str | None, find_topics: Callable[[list[str]], Int32s]) -> Inputs:
    """The inputs of the loop; `find_topics` returns the number of each named topic."""
    keys = _find(rows, "key", _BINARY_OR_STRING, "string or binary")
    values = _find(rows, "value", _BINARY_OR_STRING, "string or binary")
    if values is None:
        raise ValueError("Required attribute 'value' not found")
    partitions = _find(rows, "partition", (pa.int32(),), "int")
    topics = _read_topics(rows, topic, find_topics)
    header_ends, header_valid, header_keys, header_values = _read_headers(rows)
    return Inputs(
        _read_blobs(keys, rows.num_rows),
        _read_blobs(values, rows.num_rows),
        header_ends,
        header_valid,
        header_keys,
        header_values,
        topics,
        *_read_partitions(partitions, rows.num_rows),
    )


def _find(rows: pa.RecordBatch, name: str, kinds: tuple[pa.DataType, ...], wanted: str) -> pa.Array | None:
    """The first column of that name, or None."""
    if name not in rows.schema.names:
        return None
    column = rows.column(rows.schema.names.index(name))
    if not pa.types.is_null(column.type) and column.type not in kinds:
        raise _unsupported(name, column.type, wanted)
    return column


def _unsupported(name: str, kind: pa.DataType, wanted: str) -> ValueError:
    return ValueError(f"{name} attribute unsupported type {kind}. {name} must be a(n) {wanted}")


def _read_topics(
    rows: pa.RecordBatch, topic: str | None, find_topics: Callable[[list[str]], Int32s]
) -> Int32s:
    """The number of each row's topic; empty if all rows have the same topic."""
    if topic is not None:
        find_topics([topic])
        return _frozen(np.empty(0, np.int32))
    column = _find(rows, "topic", _STRING, "string")
    if column is None:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    if column.null_count or pa.types.is_null(column.type):
        raise ValueError(
            "null topic present in the data. Use the topic option for setting a topic for all rows, "
            "or leave out the rows without one."
        )
    encoded = column.dictionary_encode()
    numbers = find_topics(encoded.dictionary.to_pylist())
    return _frozen(numbers[encoded.indices.to_numpy()])


def _read_partitions(column: pa.Array | None, rows: int) -> tuple[Int32s, Bytes]:
    if column is None or pa.types.is_null(column.type):
        return _frozen(np.empty(0, np.int32)), _frozen(np.zeros(rows, np.uint8))
    return _numbers(column.buffers()[1], np.dtype(np.int32), column.offset, rows), _read_valid(column)


def _read_blobs(column: pa.Array | None, rows: int) -> Blobs:
    if column is None or pa.types.is_null(column.type):
        ends = _frozen(np.zeros(rows + 1, np.int64))
        return Blobs(ends, _frozen(np.empty(0, np.uint8)), _frozen(np.zeros(rows, np.uint8)))
    _, end_buffer, data_buffer = column.buffers()
    ends = _read_ends(end_buffer, column.type in _LARGE, column.offset, rows)
    data = _numbers(data_buffer, np.dtype(np.uint8), 0, data_buffer.size if data_buffer else 0)
    if ends[-1] > len(data):
        raise ValueError(f"a column of {len(data)} bytes cannot have an entry that ends at {ends[-1]}")
    return Blobs(ends, data, _read_valid(column))


def _read_headers(rows: pa.RecordBatch) -> tuple[Int64s, Bytes, Blobs, Blobs]:
    """The end of each row's headers and which rows have headers, then the keys and values."""
    count = rows.num_rows
    column = rows.column(rows.schema.names.index("headers")) if "headers" in rows.schema.names else None
    if column is None or pa.types.is_null(column.type):
        nothing = _read_blobs(None, 0)
        return _frozen(np.zeros(count + 1, np.int64)), _frozen(np.zeros(count, np.uint8)), nothing, nothing
    _check_headers(column.type)
    ends = _read_ends(column.buffers()[1], pa.types.is_large_list(column.type), column.offset, count)
    pairs = column.values
    keys, values = pairs.field(0), pairs.field(1)
    if pairs.null_count:
        keys = pc.if_else(pairs.is_valid(), keys, pa.scalar(None, keys.type))
    if ends[-1] > len(pairs):
        raise ValueError(f"{len(pairs)} headers cannot have a row that ends at {ends[-1]}")
    return ends, _read_valid(column), _read_blobs(keys, len(pairs)), _read_blobs(values, len(pairs))


def _check_headers(kind: pa.DataType) -> None:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    is_structs = is_list and pa.types.is_struct(kind.value_type)
    fields = [(field.name, field.type) for field in kind.value_type] if is_structs else []
    if (
        [name for name, _ in fields] != ["key", "value"]
        or fields[0][1] not in _STRING
        or (fields[1][1] not in (pa.binary(), pa.large_binary()) and not pa.types.is_null(fields[1][1]))
    ):
        raise _unsupported("headers", kind, "array<struct<key:string,value:binary>>")


def _read_ends(buffer: pa.Buffer | None, is_large: bool, offset: int, rows: int) -> Int64s:
    """Offsets of a column as 64 bits; an empty column may have no buffer."""
    if rows == 0:
        return _frozen(np.zeros(1, np.int64))
    if is_large:
        return _numbers(buffer, np.dtype(np.int64), offset, rows + 1)
    return _frozen(_numbers(buffer, np.dtype(np.int32), offset, rows + 1).astype(np.int64))


def _read_valid(column: pa.Array) -> Bytes:
    """A byte for each entry, 0 if it is null; empty if no entry is null."""
    if not column.null_count:
        return _frozen(np.empty(0, np.uint8))
    buffer, shift = column.buffers()[0], column.offset % 8
    bits = _numbers(buffer, np.dtype(np.uint8), column.offset // 8, (shift + len(column) + 7) // 8)
    return _frozen(np.unpackbits(bits, bitorder="little")[shift : shift + len(column)])


def _numbers(buffer: pa.Buffer | None, kind: np.dtype[Number], offset: int, count: int) -> NDArray[Number]:
    if buffer is None or count == 0:
        return _frozen(np.empty(0, kind))
    return _frozen(np.frombuffer(buffer, kind, count, offset * kind.itemsize))


def _frozen(array: NDArray[Number]) -> NDArray[Number]:
    array.flags.writeable = False
    return array
