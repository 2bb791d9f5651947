"""Produce for clients: requests of ready-made batches, responses by partition.

**Versions:** 3–13, as in `tidelog.protocol.produce`, the broker's end.
**Invariant:** batches are not copied; a malformed response raises `MalformedRequest`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.protocol import wire
from tidelog.protocol.apis import PRODUCE
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.produce import ProducedPartition

_FLEXIBLE = PRODUCE.flexible_version
_LEADER_HINTS = 10
_TOPIC_IDS = 13

_ACKS_AND_TIMEOUT = Struct(">hi")
_PARTITION_HEAD = Struct(">ihqq")


class ProduceResponse(NamedTuple):
    topics: list[tuple[str | bytes, list[ProducedPartition]]]
    throttle_time_ms: int
    endpoints: list[wire.Endpoint]


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[str | bytes, list[tuple[int, Buffer]]]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The whole request frame, from its size prefix on, in pieces to send one after the other."""
    flexible = version >= _FLEXIBLE
    first = out = bytearray()
    wire.write_request_head(out, PRODUCE.key, version, correlation_id, client_id, flexible)
    wire.write_compact_string(out, transactional_id) if flexible else wire.write_string(out, transactional_id)
    out += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    pieces: list[Buffer] = [out]
    wire.write_array_length(out, len(topics), flexible)
    for topic, partitions in topics:
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, len(partitions), flexible)
        for index, records in partitions:
            out += wire.INT32.pack(index)
            wire.write_array_length(out, len(records), flexible)
            out = bytearray(1 if flexible else 0)
            pieces += (records, out)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    elif not out:
        pieces.pop()
    wire.INT32.pack_into(first, 0, sum(map(len, pieces)) - 4)
    return pieces


def decode_produce_response(data: Buffer, position: int, version: int) -> ProduceResponse:
    """The decoded body, from `position` behind the header to the end of `data`."""
    flexible = version >= _FLEXIBLE
    topic_count, position = wire.read_array_length(data, position, flexible, "topics")
    topics: list[tuple[str | bytes, list[ProducedPartition]]] = []
    for _ in range(topic_count):
        topic: str | bytes
        if version < _TOPIC_IDS:
            topic, position = wire.read_topic_name(data, position, flexible)
        else:
            topic, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
        partition_count, position = wire.read_array_length(data, position, flexible, "partitions")
        partitions = []
        for _ in range(partition_count):
            partition, position = _decode_partition(data, position, version)
            partitions.append(partition)
        if flexible:
            position = wire.skip_tagged_fields(data, position)
        topics.append((topic, partitions))
    throttle_time_ms, position = wire.read_int32(data, position, "throttle time")
    endpoints: list[wire.Endpoint] = []
    if flexible:
        fields, position = wire.read_tagged_fields(data, position)
        for tag, start, _ in fields:
            if tag == 0 and version >= _LEADER_HINTS:
                endpoints, _ = wire.read_endpoints(data, start)
    if position != len(data):
        raise MalformedRequest(f"produce response: {len(data) - position} bytes too many")
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_partition(data: Buffer, position: int, version: int) -> tuple[ProducedPartition, int]:
    end = wire.skip(data, position, _PARTITION_HEAD.size, "partition")
    partition = ProducedPartition(*_PARTITION_HEAD.unpack_from(data, position))
    position = end
    if version >= 5:
        partition.log_start_offset, position = wire.read_int64(data, position, "log start offset")
    if version >= 8:
        position = _decode_errors(data, position, partition, version >= _FLEXIBLE)
    if version >= _FLEXIBLE:
        fields, position = wire.read_tagged_fields(data, position)
        for tag, start, _ in fields:
            if tag == 0 and version >= _LEADER_HINTS:
                partition.leader_id, start = wire.read_int32(data, start, "leader id")
                partition.leader_epoch, _ = wire.read_int32(data, start, "leader epoch")
    return partition, position


def _decode_errors(data: Buffer, position: int, partition: ProducedPartition, flexible: bool) -> int:
    read_string = wire.read_compact_nullable_string if flexible else wire.read_nullable_string
    count, position = wire.read_array_length(data, position, flexible, "record errors")
    record_errors: list[tuple[int, str | None]] = []
    for _ in range(count):
        batch_index, position = wire.read_int32(data, position, "batch index")
        message, position = read_string(data, position, "record error")
        if flexible:
            position = wire.skip_tagged_fields(data, position)
        record_errors.append((batch_index, message))
    partition.record_errors = record_errors or None
    partition.error_message, position = read_string(data, position, "error message")
    return position
