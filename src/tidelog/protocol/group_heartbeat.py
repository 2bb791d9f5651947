"""ConsumerGroupHeartbeat, by hand: members send it continuously, some with hundreds of partitions.

| version | what changes                                                     |
|---------|------------------------------------------------------------------|
| 0       |                                                                  |
| 1       | a pattern; the client chooses the member id                      |

**Invariant:** malformed bytes raise `MalformedRequest`; the decoded objects are bounded by the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, pack, unpack_from
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.wire import (
    INT32,
    read_array_length,
    read_bytes,
    read_compact_nullable_string,
    read_compact_string,
    read_int32,
    read_topic_name,
    skip,
    skip_tagged_fields,
    write_array_length,
    write_compact_string,
)

_PATTERN_VERSION = 1
_HEAD = Struct(">iibih")  # frame size, correlation id, tags; throttle time, error code
_EPOCH_AND_INTERVAL = Struct(">ii")
# Epoch, instance, rack, rebalance timeout, topics, pattern, assignor, number of owned topics plus one.
_USUAL = Struct(">iBBiBBBB")
_SHORT = 0x7F  # the largest varint of one byte
_ONE = 2
_ID_SIZE = 16
_NULL, _PRESENT = b"\xff", b"\x01"  # of an optional structure

Partitions = dict[bytes, tuple[int, ...]]


class GroupHeartbeatRequest(NamedTuple):
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    partitions: Partitions | None


def decode_group_heartbeat(version: int, data: memoryview, position: int) -> GroupHeartbeatRequest:
    return decode_usual(version, bytes(data), position) or decode_any(version, data, position)


def decode_usual(version: int, data: bytes, position: int) -> GroupHeartbeatRequest | None:
    """The usual heartbeat of a member: its identity, no changes and, at times, its partitions of one topic;
    four times as fast as `decode_any`. None for other requests."""
    try:
        member = position + data[position]
        rest = member + data[member]
        if version < _PATTERN_VERSION or not position < member < rest:
            return None
        epoch, instance, rack, timeout_ms, topics, pattern, assignor, owned = _USUAL.unpack_from(data, rest)
        is_usual = not (instance or rack or topics or pattern or assignor)
        if not is_usual or data[position] > _SHORT or data[member] > _SHORT:
            return None
        partitions, end = None, rest + _USUAL.size
        if owned:
            topic_id, size = data[end : end + _ID_SIZE], data[end + _ID_SIZE]
            start = end + _ID_SIZE + 1
            end = start + 4 * (size - 1)
            if owned != _ONE or not 0 < size <= _SHORT or data[end] != 0:
                return None
            partitions, end = {topic_id: unpack_from(f">{size - 1}i", data, start)}, end + 1
        if data[end] != 0:
            return None
        group_id, member_id = data[position + 1 : member].decode(), data[member + 1 : rest].decode()
    except (IndexError, StructError, UnicodeDecodeError):
        return None
    return GroupHeartbeatRequest(
        group_id, member_id, epoch, None, None, timeout_ms, None, None, None, partitions
    )


def decode_any(version: int, data: memoryview, position: int) -> GroupHeartbeatRequest:
    group_id, position = read_compact_string(data, position, "group id")
    member_id, position = read_compact_string(data, position, "member id")
    epoch, position = read_int32(data, position, "member epoch")
    instance_id, position = read_compact_nullable_string(data, position, "instance id")
    rack_id, position = read_compact_nullable_string(data, position, "rack")
    rebalance_timeout_ms, position = read_int32(data, position, "rebalance timeout")
    topics, position = _read_topics(data, position)
    pattern = None
    if version >= _PATTERN_VERSION:
        pattern, position = read_compact_nullable_string(data, position, "pattern")
    assignor, position = read_compact_nullable_string(data, position, "assignor")
    partitions, position = _read_partitions(data, position)
    skip_tagged_fields(data, position)
    return GroupHeartbeatRequest(
        group_id,
        member_id,
        epoch,
        instance_id,
        rack_id,
        rebalance_timeout_ms,
        topics,
        pattern,
        assignor,
        partitions,
    )


def _is_null(data: memoryview, position: int) -> bool:
    return position < len(data) and data[position] == 0


def _read_topics(data: memoryview, position: int) -> tuple[tuple[str, ...] | None, int]:
    if _is_null(data, position):
        return None, position + 1
    count, position = read_array_length(data, position, True, "topics")
    names = []
    for _ in range(count):
        name, position = read_topic_name(data, position, True)
        names.append(name)
    return tuple(names), position


def _read_partitions(data: memoryview, position: int) -> tuple[Partitions | None, int]:
    if _is_null(data, position):
        return None, position + 1
    topic_count, position = read_array_length(data, position, True, "topics with partitions")
    found: dict[bytes, list[int]] = {}
    left = ARRAY_LENGTH_MAX - topic_count
    for _ in range(topic_count):
        topic_id, position = read_bytes(data, position, 16, "topic id")
        count, position = read_array_length(data, position, True, "partitions")
        left -= count
        if left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} entries in one request")
        end = skip(data, position, 4 * count, "partitions")
        found.setdefault(topic_id, []).extend(unpack_from(f">{count}i", data, position))
        position = skip_tagged_fields(data, end)
    return {topic_id: tuple(indexes) for topic_id, indexes in found.items()}, position


def encode_group_heartbeat(
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    message: str | None,
    member_id: str | None,
    epoch: int,
    interval_ms: int,
    assigned: Mapping[bytes, Iterable[int]] | None,
) -> bytes:
    """The whole frame of the answer."""
    out = bytearray(_HEAD.pack(0, correlation_id, 0, throttle_time_ms, error_code))
    write_compact_string(out, message)
    write_compact_string(out, member_id)
    out += _EPOCH_AND_INTERVAL.pack(epoch, interval_ms)
    if assigned is None:
        out += _NULL
    else:
        out += _PRESENT
        write_array_length(out, len(assigned), True)
        for topic_id, partitions in assigned.items():
            indexes = sorted(partitions)
            out += topic_id
            write_array_length(out, len(indexes), True)
            out += pack(f">{len(indexes)}i", *indexes)
            out.append(0)
        out.append(0)
    out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)
