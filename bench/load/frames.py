"""Produce and Fetch requests as whole frames, and where to look in the answers.

Both use versions that name topics (Produce 11, Fetch 12), so a frame can be built before the topic exists.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.batches import Batch, uvarint

PRODUCE_VERSION = 11
FETCH_VERSION = 12
FETCH_BYTES_MAX = 50 * 1024 * 1024
WAIT_MS = 500
ACKS_ALL = -1
TIMEOUT_MS = 30_000
CLIENT_ID = "bench"


@dataclass(frozen=True)
class ResponseLayout:
    """A good answer's size and the position of its error code; a bad answer differs in one of them."""

    size: int
    error_position: int


def produce_frame(
    topic: str, partition: int, batch: Batch, correlation_id: int = 0, client_id: str = CLIENT_ID
) -> bytes:
    return produce_many_frame(topic, (partition,), batch, correlation_id, client_id)


def produce_many_frame(
    topic: str,
    partitions: Sequence[int],
    batch: Batch,
    correlation_id: int = 0,
    client_id: str = CLIENT_ID,
) -> bytes:
    """The same batch to each of `partitions`, in one request."""
    records = uvarint(batch.size + 1) + batch.content
    data = b"".join(struct.pack(">i", partition) + records + b"\x00" for partition in partitions)
    body = b"\x00" + struct.pack(">hi", ACKS_ALL, TIMEOUT_MS)
    body += b"\x02" + compact_string(topic) + uvarint(len(partitions) + 1) + data + b"\x00\x00"
    return whole_frame(0, PRODUCE_VERSION, correlation_id, body, client_id)


def fetch_frame(
    topic: str,
    offsets: Sequence[int],
    partition_bytes_max: int,
    correlation_id: int = 0,
    wait_ms: int = WAIT_MS,
) -> bytes:
    """A fetch of partitions 0, 1, … of `topic`, each from its offset, outside of any session."""
    partitions = b"".join(
        struct.pack(">iiqiqib", index, -1, offset, -1, -1, partition_bytes_max, 0)
        for index, offset in enumerate(offsets)
    )
    body = struct.pack(">iiiibii", -1, wait_ms, 1, FETCH_BYTES_MAX, 0, 0, -1)
    body += b"\x02" + compact_string(topic) + uvarint(len(offsets) + 1) + partitions + b"\x00"
    return whole_frame(1, FETCH_VERSION, correlation_id, body + b"\x01\x01\x00")


def produce_layout(topic: str) -> ResponseLayout:
    """size, correlation, tags | one topic, its name, one partition: index, error, three int64 … | throttle"""
    error_position = 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4
    return ResponseLayout(error_position + 2 + 24 + 1 + 1 + 1 + 1 + 4 + 1, error_position)


def fetch_layout(size: int) -> ResponseLayout:
    """`size` as seen in a checked answer; an error of a partition shows in the size (no records)."""
    return ResponseLayout(size, 4 + 4 + 1 + 4)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def whole_frame(
    api_key: int, version: int, correlation_id: int, body: bytes, client_id: str = CLIENT_ID
) -> bytes:
    name = client_id.encode()
    header = struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body
