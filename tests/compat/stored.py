"""The batches of a partition as the broker stores them, by a Fetch (version 4) spoken by hand.

Clients hide what became of a batch: this shows whether the codec that a producer asked for is the codec on
disk, since a client that believes the broker cannot do it silently sends plain bytes.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from tests.compat.client import CODECS

FETCH, FETCH_VERSION = 1, 4
FETCH_SIZE_MAX = 8 << 20
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = 12
"""Bytes before the part that a batch's length field counts."""


@dataclass(frozen=True)
class StoredBatch:
    base_offset: int
    size: int
    codec: str
    producer_id: int
    record_count: int


def stored_batches(bootstrap: str, topic: str, offset: int = 0) -> list[StoredBatch]:
    error, records = _fetch(bootstrap, topic, offset)
    assert error == 0, f"fetch answered with error {error}"
    return _batches(records)


def fetch_error(bootstrap: str, topic: str, offset: int) -> int:
    """What a fetch at this offset is refused with: clients hide it, or go elsewhere on their own."""
    return _fetch(bootstrap, topic, offset)[0]


def _fetch(bootstrap: str, topic: str, offset: int) -> tuple[int, bytes]:
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(_request(topic, offset))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return _records(stream.read(size))


def _request(topic: str, offset: int) -> bytes:
    name = topic.encode()
    client = b"stored-batches"
    body = struct.pack(f">hhih{len(client)}s", FETCH, FETCH_VERSION, 1, len(client), client)
    body += struct.pack(">iiiib", -1, 0, 0, FETCH_SIZE_MAX, 0)
    body += struct.pack(f">ih{len(name)}s", 1, len(name), name)
    body += struct.pack(">iiqi", 1, 0, offset, FETCH_SIZE_MAX)
    return struct.pack(">i", len(body)) + body


def _records(response: bytes) -> tuple[int, bytes]:
    """The error and the records of the one partition in the response."""
    (name_size,) = struct.unpack_from(">h", response, 12)
    position = 14 + name_size + 4
    _, error, _, _, aborted_count = struct.unpack_from(">ihqqi", response, position)
    position += 26 + max(aborted_count, 0) * 16
    (size,) = struct.unpack_from(">i", response, position)
    return error, response[position + 4 : position + 4 + max(size, 0)]


def _batches(records: bytes) -> list[StoredBatch]:
    batches, position = [], 0
    while position + BATCH_HEADER.size <= len(records):
        base_offset, length, _, _, _, attributes, _, _, _, producer_id, _, _, record_count = (
            BATCH_HEADER.unpack_from(records, position)
        )
        size = BATCH_OVERHEAD + length
        batches.append(StoredBatch(base_offset, size, CODECS[attributes & 7], producer_id, record_count))
        position += size
    return batches
