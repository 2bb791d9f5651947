"""The bodies of Produce, by hand, because every incoming record passes here.

`decode_produce` returns the position of each partition's records in the frame; it copies only names.
The commonest shape (one topic, one partition, no transaction) is decoded by two `unpack`s; any other request
is decoded from the start by the general function, which checks every read.

**Versions:** 3–13. 5 adds log start offset to the response, 8 record errors, 9 is flexible,
10 adds the leader hints of KIP-951, 13 names topics by id.
**Invariant:** only `MalformedRequest` is raised; the returned positions are inside the frame.
"""

from __future__ import annotations

from struct import Struct, error

from tidelog.base.files import Buffer
from tidelog.base.limits import ARRAY_LENGTH_MAX, PRODUCE_FRAMES_CACHED_MAX
from tidelog.protocol import wire
from tidelog.protocol.apis import PRODUCE
from tidelog.protocol.errors import MalformedRequest

_FLEXIBLE = PRODUCE.flexible_version
_LEADER_HINTS = 10
_TOPIC_IDS = 13

# Transactional id, acks, timeout, topics, then the topic up to its first byte (by id: the whole id).
_unpack_legacy = Struct(">hhiih").unpack_from
_unpack_flexible = Struct(">BhiBB").unpack_from
_unpack_by_id = Struct(">BhiB16s").unpack_from
# Partitions, index, size of the records (flexible: its first three bytes, or two and the record's first).
_unpack_legacy_partition = Struct(">iii").unpack_from
_unpack_flexible_partition = Struct(">BiBBB").unpack_from
_unpack_acks = Struct(">hi").unpack_from


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[str | bytes, list[tuple[int, int, int]]]],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics  # name or id, then (index, start, end) of the records; start -1: null


class ProducedPartition:
    """The result for one partition of a produce request."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[tuple[int, str | None]] | None = None,
        error_message: str | None = None,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


def decode_produce(data: Buffer, position: int, version: int) -> ProduceRequest:
    """Decode the body that begins at `position` and ends where `data` ends."""
    try:
        if version < _FLEXIBLE:
            request = _decode_one_legacy(data, position)
        else:
            request = _decode_one_flexible(data, position, version)
    except (error, IndexError):
        request = None
    return request or _decode_any(data, position, version)


def _decode_one_legacy(data: Buffer, position: int) -> ProduceRequest | None:
    transactional, acks, timeout_ms, topic_count, size = _unpack_legacy(data, position)
    if transactional != -1 or topic_count != 1 or size < 0:
        return None
    position += 14
    end = position + size
    partition_count, index, size = _unpack_legacy_partition(data, end)
    start = end + 12
    if partition_count != 1 or size < 0 or start + size != len(data):
        return None
    name = wire.topic_name(bytes(data[position:end]))
    return ProduceRequest(None, acks, timeout_ms, [(name, [(index, start, start + size)])])


def _decode_one_flexible(data: Buffer, position: int, version: int) -> ProduceRequest | None:
    if version < _TOPIC_IDS:
        transactional, acks, timeout_ms, topic_count, size = _unpack_flexible(data, position)
        if not 0 < size < 0x80:
            return None
        position += 9
        topic_end = position + size - 1
        raw = bytes(data[position:topic_end])
    else:
        transactional, acks, timeout_ms, topic_count, raw = _unpack_by_id(data, position)
        topic_end = position + 24
    partition_count, index, size, second, third = _unpack_flexible_partition(data, topic_end)
    if transactional or topic_count != 2 or partition_count != 2 or size == 0:
        return None
    start = topic_end + 6
    if size > 0x7F:
        if second < 0x80:
            size = size & 0x7F | second << 7
            start += 1
        elif third < 0x80:
            size = size & 0x7F | (second & 0x7F) << 7 | third << 14
            start += 2
        else:
            size, start = wire.read_unsigned_varint(data, topic_end + 5, "records")
    end = start + size - 1
    # Only the three empty sections of tagged fields may follow.
    if end + 3 != len(data) or data[end:] != b"\0\0\0":
        return None
    topic: str | bytes = wire.topic_name(raw) if version < _TOPIC_IDS else raw
    return ProduceRequest(None, acks, timeout_ms, [(topic, [(index, start, end)])])


def _decode_any(data: Buffer, position: int, version: int) -> ProduceRequest:
    flexible = version >= _FLEXIBLE
    if flexible:
        transactional_id, position = wire.read_compact_nullable_string(data, position, "transactional id")
    else:
        transactional_id, position = wire.read_nullable_string(data, position, "transactional id")
    if position + 6 > len(data):
        raise wire.ends_early("acks and timeout")
    acks, timeout_ms = _unpack_acks(data, position)
    topic_count, position = wire.read_array_length(data, position + 6, flexible, "topics")
    topics: list[tuple[str | bytes, list[tuple[int, int, int]]]] = []
    partitions_left = ARRAY_LENGTH_MAX
    for _ in range(topic_count):
        topic: str | bytes
        if version < _TOPIC_IDS:
            topic, position = wire.read_topic_name(data, position, flexible)
        else:
            topic, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
        partition_count, position = wire.read_array_length(data, position, flexible, "partitions")
        partitions_left -= partition_count
        if partitions_left < 0:
            raise MalformedRequest(f"partitions: more than {ARRAY_LENGTH_MAX} in one request")
        partitions, position = _decode_partitions(data, position, partition_count, flexible)
        topics.append((topic, partitions))
    if flexible:
        position = wire.skip_tagged_fields(data, position)
    if position != len(data):
        raise MalformedRequest(f"produce request: {len(data) - position} bytes too many")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_partitions(
    data: Buffer, position: int, count: int, flexible: bool
) -> tuple[list[tuple[int, int, int]], int]:
    partitions = []
    for _ in range(count):
        index, position = wire.read_int32(data, position, "partition index")
        if flexible:
            size, position = wire.read_unsigned_varint(data, position, "records")
            size -= 1
        else:
            size, position = wire.read_int32(data, position, "records")
        if size == -1:
            partitions.append((index, -1, -1))
        else:
            end = wire.skip(data, position, size, "records")
            partitions.append((index, position, end))
            position = end
        if flexible:
            position = wire.skip_tagged_fields(data, position)
    if flexible:
        position = wire.skip_tagged_fields(data, position)
    return partitions, position


class _OneFrame:
    """A complete response for one topic and one partition without an error message, except the values."""

    __slots__ = ("has_log_start", "pack", "size", "tail", "topic")

    def __init__(self, version: int, topic: str | bytes) -> None:
        flexible = version >= _FLEXIBLE
        out = bytearray(1 if flexible else 0)
        wire.write_array_length(out, 1, flexible)
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, 1, flexible)
        self.topic = bytes(out)
        self.has_log_start = version >= 5
        # No record errors and no message; in flexible versions also the end of the partition and the topic.
        self.tail = b"\1\0\0\0" if flexible else b"\0\0\0\0\xff\xff" if version == 8 else b""
        shape = f">ii{len(out)}sihqq{'q' if self.has_log_start else ''}{len(self.tail)}si"
        frame = Struct(shape + "x" if flexible else shape)
        self.pack = frame.pack
        self.size = frame.size - 4


_frames: list[dict[str | bytes, _OneFrame]] = [{} for _ in range(14)]


def forget_topic(name: str, topic_id: bytes) -> None:
    """Drop the cached names of a deleted topic."""
    wire.forget_topic_name(name)
    for frames in _frames:
        frames.pop(name, None)
        frames.pop(topic_id, None)


def encode_produce(
    version: int,
    correlation_id: int,
    topics: list[tuple[str | bytes, list[ProducedPartition]]],
    throttle_time_ms: int = 0,
    endpoints: wire.Endpoints = (),
) -> bytes | bytearray:
    """The whole response frame, from its size prefix on."""
    if len(topics) == 1 and not endpoints:
        topic, partitions = topics[0]
        if len(partitions) == 1:
            one = partitions[0]
            if one.error_message is None and not one.record_errors and one.leader_epoch < 0:
                return _encode_one(version, correlation_id, topic, one, throttle_time_ms)
    return _encode_any(version, correlation_id, topics, throttle_time_ms, endpoints)


def _encode_one(
    version: int, correlation_id: int, topic: str | bytes, one: ProducedPartition, throttle_time_ms: int
) -> bytes:
    frame = _frames[version].get(topic)
    if frame is None:
        frame = _OneFrame(version, topic)
        # Cached only for existing topics: clients could send any number of other names, of 32 KB each.
        if not one.error_code:
            if len(_frames[version]) >= PRODUCE_FRAMES_CACHED_MAX:
                _frames[version].clear()
            _frames[version][topic] = frame
    if frame.has_log_start:
        return frame.pack(
            frame.size,
            correlation_id,
            frame.topic,
            one.index,
            one.error_code,
            one.base_offset,
            one.log_append_time_ms,
            one.log_start_offset,
            frame.tail,
            throttle_time_ms,
        )
    return frame.pack(
        frame.size,
        correlation_id,
        frame.topic,
        one.index,
        one.error_code,
        one.base_offset,
        one.log_append_time_ms,
        frame.tail,
        throttle_time_ms,
    )


_FRAME_HEAD = Struct(">ii")
_PARTITION_HEAD = Struct(">ihqq")
_LEADER_HINT = Struct(">BBBiix")


def _encode_any(
    version: int,
    correlation_id: int,
    topics: list[tuple[str | bytes, list[ProducedPartition]]],
    throttle_time_ms: int,
    endpoints: wire.Endpoints,
) -> bytearray:
    flexible = version >= _FLEXIBLE
    out = bytearray(9 if flexible else 8)
    wire.write_array_length(out, len(topics), flexible)
    for topic, partitions in topics:
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, len(partitions), flexible)
        for partition in partitions:
            _write_partition(out, partition, version)
        if flexible:
            out.append(0)
    out += wire.INT32.pack(throttle_time_ms)
    if flexible:
        wire.write_endpoints(out, endpoints if version >= _LEADER_HINTS else ())
    _FRAME_HEAD.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def _write_partition(out: bytearray, partition: ProducedPartition, version: int) -> None:
    out += _PARTITION_HEAD.pack(
        partition.index, partition.error_code, partition.base_offset, partition.log_append_time_ms
    )
    if version >= 5:
        out += wire.INT64.pack(partition.log_start_offset)
    if version < 8:
        return
    flexible = version >= _FLEXIBLE
    write_string = wire.write_compact_string if flexible else wire.write_string
    record_errors = partition.record_errors or ()
    wire.write_array_length(out, len(record_errors), flexible)
    for batch_index, message in record_errors:
        out += wire.INT32.pack(batch_index)
        write_string(out, message)
        if flexible:
            out.append(0)
    write_string(out, partition.error_message)
    if not flexible:
        return
    if version >= _LEADER_HINTS and partition.leader_epoch >= 0:
        out += _LEADER_HINT.pack(1, 0, 9, partition.leader_id, partition.leader_epoch)
    else:
        out.append(0)
