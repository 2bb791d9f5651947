"""WriteTxnMarkers by hand, at both ends: the ends of transactions, from coordinators to leaders.

Two tagged fields are ours, and other brokers skip them: with a marker the number of its end (127), with a
topic the leader epochs that its partitions are believed to have (126). By the old protocol all markers of a
producer look alike; a leader tells a repeated one by them.

**Versions:** 1 and 2, both flexible; 2 says by which protocol the transaction was ended (KIP-1228).
**Invariant:** only `MalformedRequest` is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, unpack
from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.protocol.apis import WRITE_TXN_MARKERS
from tidelog.protocol.messages import encode_frame
from tidelog.protocol.wire import (
    read_array_length,
    read_bytes,
    read_int8,
    read_int16,
    read_int32,
    read_tagged_fields,
    read_topic_name,
    skip_tagged_fields,
    write_array_length,
    write_compact_string,
    write_unsigned_varint,
)

NO_NUMBER, NO_EPOCH = -1, -1
VERSION = WRITE_TXN_MARKERS.newest_version
_PROTOCOL_VERSION = 2  # the first with the protocol of the transaction
_LEADER_EPOCHS, _NUMBER = 126, 127
_HEAD = Struct(">hhih")
_PRODUCER = Struct(">qhb")
_COORDINATOR = Struct(">ib")
_INT32, _INT64 = Struct(">i"), Struct(">q")
_ROW = Struct(">ihB")  # of an answer: partition, error, no tagged fields

Topics = Sequence[tuple[str, Sequence[tuple[int, int]]]]  # by name: partitions, with their leader epochs
Rows = Sequence[tuple[str, Sequence[tuple[int, int]]]]  # by name: partitions, with their errors


class WrittenEnd(NamedTuple):
    """One marker for many partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    number: int
    topics: Topics


# The coordinator's end.


def encode_markers(client_id: str, ends: Sequence[WrittenEnd]) -> bytes:
    """A request from its API key on, with correlation id 0."""
    name = client_id.encode()
    out = bytearray(_HEAD.pack(WRITE_TXN_MARKERS.key, VERSION, 0, len(name)))
    out += name
    out.append(0)
    write_array_length(out, len(ends), True)
    for end in ends:
        out += _PRODUCER.pack(end.producer_id, end.producer_epoch, end.is_commit)
        _write_topics(out, end.topics)
        out += _COORDINATOR.pack(end.coordinator_epoch, end.version)
        _write_tag(out, _NUMBER, _INT64.pack(end.number))
    out.append(0)
    return bytes(out)


def _write_topics(out: bytearray, topics: Topics) -> None:
    write_array_length(out, len(topics), True)
    for name, partitions in topics:
        write_compact_string(out, name)
        write_array_length(out, len(partitions), True)
        for index, _ in partitions:
            out += _INT32.pack(index)
        _write_tag(out, _LEADER_EPOCHS, b"".join(_INT32.pack(epoch) for _, epoch in partitions))


def _write_tag(out: bytearray, tag: int, content: bytes) -> None:
    out.append(1)
    write_unsigned_varint(out, tag)
    write_unsigned_varint(out, len(content))
    out += content


def decode_marked(data: Buffer, position: int) -> list[tuple[int, Rows]]:
    """Of each end its producer id, and the errors of its partitions."""
    count, position = read_array_length(data, position, True, "markers")
    found: list[tuple[int, Rows]] = []
    for _ in range(count):
        head, position = read_bytes(data, position, _INT64.size, "producer id")
        topic_count, position = read_array_length(data, position, True, "topics")
        topics = []
        for _ in range(topic_count):
            name, position = read_topic_name(data, position, True)
            rows, position = _read_rows(data, position)
            topics.append((name, rows))
        position = skip_tagged_fields(data, position)
        found.append((_INT64.unpack(head)[0], topics))
    return found


def _read_rows(data: Buffer, position: int) -> tuple[list[tuple[int, int]], int]:
    count, position = read_array_length(data, position, True, "partitions")
    rows = []
    for _ in range(count):
        index, position = read_int32(data, position, "partition index")
        code, position = read_int16(data, position, "error")
        position = skip_tagged_fields(data, position)
        rows.append((index, code))
    return rows, skip_tagged_fields(data, position)


# The leader's end.


def decode_markers(data: Buffer, position: int, version: int) -> list[WrittenEnd]:
    """The request body that begins at `position`."""
    count, position = read_array_length(data, position, True, "markers")
    ends = []
    for _ in range(count):
        head, position = read_bytes(data, position, _PRODUCER.size, "producer")
        producer_id, epoch, is_commit = _PRODUCER.unpack(head)
        topics, position = _read_topics(data, position)
        coordinator_epoch, position = read_int32(data, position, "coordinator epoch")
        protocol = 0
        if version >= _PROTOCOL_VERSION:
            protocol, position = read_int8(data, position, "transaction version")
        tagged, position = _read_tags(data, position)
        number = tagged.get(_NUMBER, b"")
        numbered = _INT64.unpack(number)[0] if len(number) == _INT64.size else NO_NUMBER
        ends.append(
            WrittenEnd(producer_id, epoch, bool(is_commit), coordinator_epoch, protocol, numbered, topics)
        )
    skip_tagged_fields(data, position)
    return ends


def _read_topics(data: Buffer, position: int) -> tuple[Topics, int]:
    count, position = read_array_length(data, position, True, "topics")
    topics = []
    for _ in range(count):
        name, position = read_topic_name(data, position, True)
        index_count, position = read_array_length(data, position, True, "partitions")
        raw, position = read_bytes(data, position, index_count * _INT32.size, "partition indexes")
        tagged, position = _read_tags(data, position)
        known = tagged.get(_LEADER_EPOCHS, b"")
        if len(known) != len(raw):
            known = _INT32.pack(NO_EPOCH) * index_count
        form = f">{index_count}i"
        topics.append((name, list(zip(unpack(form, raw), unpack(form, known), strict=True))))
    return topics, position


def _read_tags(data: Buffer, position: int) -> tuple[dict[int, bytes], int]:
    fields, position = read_tagged_fields(data, position)
    return {tag: bytes(data[start:end]) for tag, start, end in fields}, position


def encode_marked(correlation_id: int, answers: Sequence[tuple[int, Rows]]) -> bytes:
    out = bytearray()
    write_array_length(out, len(answers), True)
    for producer_id, topics in answers:
        out += _INT64.pack(producer_id)
        write_array_length(out, len(topics), True)
        for name, rows in topics:
            write_compact_string(out, name)
            write_array_length(out, len(rows), True)
            for index, code in rows:
                out += _ROW.pack(index, code, 0)
            out.append(0)
        out.append(0)
    out.append(0)
    return encode_frame(correlation_id, True, out)
