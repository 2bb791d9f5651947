"""Records inside a batch: for compaction, recompression, the tools and the tests.

A header's key is text that may be invalid UTF-8; `surrogateescape` preserves its bytes.

**Invariant:** `read_records` returns all that the batch declares, to the byte, or raises `CorruptBatch`;
`read_records` reads every batch of `build_batch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.base.files import Buffer
from tidelog.base.limits import BATCH_HEADER_SIZE, DECOMPRESSED_SIZE_MAX
from tidelog.protocol import batch as batches
from tidelog.protocol import compression, wire
from tidelog.protocol.errors import CorruptBatch, MalformedRequest

Headers = Sequence[tuple[str, bytes | None]]

_CRC = Struct(">I")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_INT64_MAX = 2**63 - 1  # of eight bytes


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Marker(IntEnum):
    """The end of a transaction, from its control record."""

    ABORT = 0
    COMMIT = 1


def read_records(batch: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> list[Record]:
    """The records of one whole batch, decompressed to at most `size_max` bytes."""
    view = memoryview(batch)
    header = batches.check_whole(view, 0, len(view))
    body = view[BATCH_HEADER_SIZE:]
    # Compaction leaves the bare header of a batch without records.
    data = compression.decompress(header.codec, body, size_max) if len(body) else b""
    try:
        return _walk(data, header)
    except MalformedRequest as problem:
        raise CorruptBatch(str(problem)) from None


def find_timestamp(batch: Buffer, timestamp: int, offset_min: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from `offset_min` on that is not older than `timestamp`.

    Reads two numbers of each record and skips the rest: a search by time runs on the broker's loop.
    """
    view = memoryview(batch)
    header = batches.check_whole(view, 0, len(view))
    return find_timestamp_in(view, header, timestamp, offset_min, DECOMPRESSED_SIZE_MAX)


def find_timestamp_in(
    view: memoryview, header: batches.BatchHeader, timestamp: int, offset_min: int, size_max: int
) -> tuple[int, int] | None:
    """`find_timestamp` in a valid batch whose records have at most `size_max` bytes."""
    if header.record_count == 0:
        return None
    if header.uses_append_time:
        first = max(header.base_offset, offset_min)
        is_found = header.max_timestamp >= timestamp and first <= header.last_offset
        return (header.max_timestamp, first) if is_found else None
    body = compression.decompress(header.codec, view[BATCH_HEADER_SIZE:], size_max)
    position, last_delta = 0, -1
    try:
        for _ in range(header.record_count):
            size, position = wire.read_varint(body, position, "record length")
            end = wire.skip(body, position, size, "record")
            delta, inside = wire.read_varlong(body, position + 1, "timestamp delta")
            offset_delta = wire.read_varint(body, inside, "offset delta")[0]
            # Also because identical records would decompress from kilobytes to tens of millions.
            if not last_delta < offset_delta <= header.last_offset_delta:
                raise _bad_delta(offset_delta, last_delta, header)
            last_delta = offset_delta
            if header.base_timestamp + delta >= timestamp and header.base_offset + offset_delta >= offset_min:
                return _checked_timestamp(header.base_timestamp + delta), header.base_offset + offset_delta
            position = end
    except MalformedRequest as problem:
        raise CorruptBatch(str(problem)) from None
    return None


def _walk(data: bytes, header: batches.BatchHeader) -> list[Record]:
    records: list[Record] = []
    position = 0
    last_delta = -1
    if not 0 <= header.record_count <= len(data):
        raise CorruptBatch(f"{len(data)} bytes cannot hold {header.record_count} records")
    for _ in range(header.record_count):
        size, start = wire.read_varint(data, position, "record length")
        position = wire.skip(data, start, size, "record")
        record, delta = _read_record(data[start:position], header)
        if not last_delta < delta <= header.last_offset_delta:
            raise _bad_delta(delta, last_delta, header)
        last_delta = delta
        records.append(record)
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the last record")
    return records


# Where a record begins and ends, its timestamp delta, where its key begins, the sizes of key and value: -1
# if it is null.
Outline = tuple[int, int, int, int, int, int]


def walk_outlines(data: Buffer, header: batches.BatchHeader) -> Iterator[Outline]:
    """Each record of a batch, whose decompressed body `data` is, without its values and headers; CorruptBatch
    where the bytes are not what the header says."""
    count, last_delta, end = header.record_count, header.last_offset_delta, len(data)
    if not 0 <= count <= end:
        raise CorruptBatch(f"{end} bytes cannot hold {count} records")
    start, previous_delta = 0, -1
    try:
        for _ in range(count):
            if (byte := data[start]) < 0x80:
                size, position = byte >> 1 ^ -(byte & 1), start + 1
            else:
                size, position = wire.read_varint(data, start, "record length")
            stop = position + size
            if size < 1 or stop > end:
                raise CorruptBatch(f"a record of {size} bytes where {end - position} are left")
            if (byte := data[position + 1]) < 0x80:
                timestamp_delta, position = byte >> 1 ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = wire.read_varlong(data, position + 1, "timestamp delta")
            if (byte := data[position]) < 0x80:
                delta, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                delta, position = wire.read_varint(data, position, "offset delta")
            if not previous_delta < delta <= last_delta:
                raise _bad_delta(delta, previous_delta, header)
            previous_delta = delta
            if (byte := data[position]) < 0x80:
                key_size, key = byte >> 1 ^ -(byte & 1), position + 1
            else:
                key_size, key = wire.read_varint(data, position, "key")
            position = key + key_size if key_size > 0 else key
            if key_size < -1 or position >= stop:
                raise CorruptBatch(f"a key of {key_size} bytes where {stop - key} are left")
            if (byte := data[position]) < 0x80:
                value_size, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                value_size, position = wire.read_varint(data, position, "value")
            # The number of headers is behind the value.
            if value_size < -1 or position + max(value_size, 0) >= stop:
                raise CorruptBatch(f"a value of {value_size} bytes where {stop - position} are left")
            yield start, stop, timestamp_delta, key, key_size, value_size
            start = stop
    except IndexError:
        raise CorruptBatch("a record is longer than it says") from None
    except MalformedRequest as problem:
        raise CorruptBatch(str(problem)) from None
    if start != end:
        raise CorruptBatch(f"{end - start} bytes after the last record")


def find_keyless(batch: memoryview, header: batches.BatchHeader) -> list[int]:
    """The places of the records without a key, in a batch whose header is right."""
    body = compression.decompress(header.codec, batch[BATCH_HEADER_SIZE:], DECOMPRESSED_SIZE_MAX)
    return [place for place, outline in enumerate(walk_outlines(body, header)) if outline[4] < 0]


def _bad_delta(delta: int, last_delta: int, header: batches.BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"offset delta {delta} after {last_delta} of {header.last_offset_delta}")


def _read_record(data: bytes, header: batches.BatchHeader) -> tuple[Record, int]:
    """The record that must fill `data` exactly, and its offset delta."""
    position = wire.skip(data, 0, 1, "record attributes")
    timestamp_delta, position = wire.read_varlong(data, position, "timestamp delta")
    offset_delta, position = wire.read_varint(data, position, "offset delta")
    key, position = _read_nullable(data, position, "key")
    value, position = _read_nullable(data, position, "value")
    headers, position = _read_headers(data, position)
    if position != len(data):
        raise CorruptBatch(f"a record's length is {len(data) - position} bytes more than its content")
    timestamp = header.max_timestamp if header.uses_append_time else header.base_timestamp + timestamp_delta
    record = Record(header.base_offset + offset_delta, _checked_timestamp(timestamp), key, value, headers)
    return record, offset_delta


def _checked_timestamp(timestamp: int) -> int:
    if abs(timestamp) > _INT64_MAX:
        raise CorruptBatch("a timestamp does not fit 64 bits")
    return timestamp


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = wire.read_varint(data, position, "header count")
    if not 0 <= count <= len(data) - position:
        raise CorruptBatch(f"{len(data) - position} bytes cannot hold {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = wire.read_varint(data, position, "header key")
        key, position = wire.read_bytes(data, position, size, "header key")
        value, position = _read_nullable(data, position, "header value")
        headers.append((key.decode(errors="surrogateescape"), value))
    return headers, position


def _read_nullable(data: bytes, position: int, what: str) -> tuple[bytes | None, int]:
    size, position = wire.read_varint(data, position, what)
    return (None, position) if size == -1 else wire.read_bytes(data, position, size, what)


def read_pairs(data: bytes, position: int, end: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each of `count` uncompressed records that must fill `data[position:end]`.

    For a journal, which has one record in most batches and is read completely at every start: other fields
    are skipped.
    """
    pairs: list[tuple[bytes | None, bytes | None]] = []
    try:
        for _ in range(count):
            size, position = wire.read_varint(data, position, "record length")
            stop = wire.skip(data, position, size, "record")
            position += 1  # attributes
            while data[position] & 0x80:
                position += 1
            position += 1  # timestamp delta
            while data[position] & 0x80:
                position += 1
            key, position = _read_nullable(data, position + 1, "key")
            value, position = _read_nullable(data, position, "value")
            if position >= stop:
                raise CorruptBatch("a record is longer than it says")
            pairs.append((key, value))
            position = stop
    except (MalformedRequest, IndexError) as problem:
        raise CorruptBatch(str(problem)) from None
    if position != end:
        raise CorruptBatch(f"{end - position} bytes after the last record")
    return pairs


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None, Headers, int]],
    *,
    base_offset: int = 0,
    codec: int = compression.NONE,
    producer_id: int = batches.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = batches.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    append_time_ms: int | None = None,
) -> bytearray:
    """One batch of `(key, value, headers, timestamp)`, at least one; with a time, LogAppendTime."""
    body = bytearray()
    base_timestamp = records[0][3]
    for delta, (key, value, headers, timestamp) in enumerate(records):
        record = _write_record(key, value, headers, timestamp - base_timestamp, delta)
        wire.write_varint(body, len(record))
        body += record
    attributes = codec
    attributes |= batches.TRANSACTIONAL_BIT if transactional else 0
    attributes |= batches.CONTROL_BIT if control else 0
    attributes |= batches.APPEND_TIME_BIT if append_time_ms is not None else 0
    header = batches.BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record[3] for record in records) if append_time_ms is None else append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _assemble(header, compression.compress(codec, body))


def build_pairs(
    pairs: Sequence[tuple[bytes, bytes | None, object]],
    timestamp: int,
    producer: tuple[int, int] = (batches.NO_PRODUCER_ID, -1),
) -> bytearray:
    """One uncompressed batch of records with a key and an optional value, for a journal. With a producer's id
    and epoch it is of its transaction; its sequence says nothing, as in Kafka's coordinators."""
    pieces = [bytes(BATCH_HEADER_SIZE)]
    for delta, (key, value, _) in enumerate(pairs):
        place, key_size = _varint(delta), _varint(len(key))
        value_size = _varint(len(value)) if value is not None else b"\x01"
        # Attributes and timestamp delta are 0, and there are no headers.
        body = b"".join((b"\x00\x00", place, key_size, key, value_size, value or b"", b"\x00"))
        pieces += (_varint(len(body)), body)
    batch = bytearray().join(pieces)
    length, last = len(batch) - batches.LENGTH_OVERHEAD, len(pairs) - 1
    attributes, sequence = (batches.TRANSACTIONAL_BIT, 0) if producer[0] >= 0 else (0, batches.NO_SEQUENCE)
    head = (0, length, -1, 2, 0, attributes, last, timestamp, timestamp, *producer, sequence, last + 1)
    batches.HEADER.pack_into(batch, 0, *head)
    crc = crc32c(memoryview(batch)[batches.ATTRIBUTES_POSITION :])
    _CRC.pack_into(batch, batches.CRC_POSITION, crc)
    return batch


def _varint(value: int) -> bytes:
    return _SMALL_VARINTS[value] if value < len(_SMALL_VARINTS) else _write_varint(value)


def _write_varint(value: int) -> bytes:
    out = bytearray()
    wire.write_varint(out, value)
    return bytes(out)


_SMALL_VARINTS = tuple(map(_write_varint, range(8_192)))


def _assemble(header: batches.BatchHeader, body: bytes | bytearray) -> bytearray:
    """Header and body as one batch, with length and checksum."""
    length = BATCH_HEADER_SIZE - batches.LENGTH_OVERHEAD + len(body)
    batch = bytearray(batches.HEADER.pack(*header._replace(length=length)))
    batch += body
    crc = crc32c(memoryview(batch)[batches.ATTRIBUTES_POSITION :])
    _CRC.pack_into(batch, batches.CRC_POSITION, crc)
    return batch


def _write_record(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp_delta: int, offset_delta: int
) -> bytearray:
    out = bytearray(1)
    wire.write_varint(out, timestamp_delta)
    wire.write_varint(out, offset_delta)
    _write_nullable(out, key)
    _write_nullable(out, value)
    wire.write_varint(out, len(headers))
    for name, content in headers:
        _write_nullable(out, name.encode(errors="surrogateescape"))
        _write_nullable(out, content)
    return out


def _write_nullable(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)
    else:
        wire.write_varint(out, len(content))
        out += content


def build_control_batch(
    marker: Marker,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction in a partition."""
    record = (_MARKER_KEY.pack(0, marker), _MARKER_VALUE.pack(0, coordinator_epoch), (), timestamp_ms)
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_marker(batch: Buffer) -> tuple[Marker, int] | None:
    """The end of the transaction and the coordinator's epoch; None for other control records."""
    records = read_records(batch)
    if not records:
        return None  # compaction keeps the bare header of a producer's last batch
    if len(records) != 1 or records[0].key is None or len(records[0].key) < _MARKER_KEY.size:
        raise CorruptBatch("a control batch without its one control record")
    _, kind = _MARKER_KEY.unpack_from(records[0].key)
    if kind not in (Marker.ABORT, Marker.COMMIT):
        return None
    value = records[0].value
    if value is None or len(value) < _MARKER_VALUE.size:
        raise CorruptBatch("the end of a transaction without the coordinator's epoch")
    return Marker(kind), _MARKER_VALUE.unpack_from(value)[1]


def recompress(
    batch: Buffer, codec: int, size_max: int = DECOMPRESSED_SIZE_MAX, level: int | None = None
) -> bytearray:
    """The batch with another codec: only its length, attributes, checksum and body change."""
    view = memoryview(batch)
    header = batches.check_whole(view, 0, len(view))
    body = compression.decompress(header.codec, view[BATCH_HEADER_SIZE:], size_max)
    attributes = header.attributes & ~batches.CODEC_MASK | codec
    return _assemble(header._replace(attributes=attributes), compression.compress(codec, body, level))
