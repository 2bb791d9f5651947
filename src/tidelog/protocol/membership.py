"""JoinGroup, SyncGroup and Heartbeat, by hand: a rebalance is a burst of them, and members wait for it.

| API       | version | what changes                                                              |
|-----------|---------|---------------------------------------------------------------------------|
| JoinGroup | 1       | the rebalance timeout                                                     |
|           | 2       | the answer has a throttle time (SyncGroup and Heartbeat: 1)               |
|           | 5       | static members (SyncGroup and Heartbeat: 3)                               |
|           | 6       | compact lengths and tagged fields (SyncGroup and Heartbeat: 4)            |
|           | 7       | the answer names the protocol's type (SyncGroup: 5, which also asks)      |
|           | 8       | a reason                                                                  |
|           | 9       | the answer may tell the leader to skip the assignment                     |

**Invariant:** malformed bytes raise `MalformedRequest`; the decoded objects are bounded by the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.wire import (
    INT32,
    read_array_length,
    read_bytes,
    read_compact_nullable_string,
    read_compact_string,
    read_int32,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
    write_array_length,
    write_compact_string,
    write_string,
)

_FRAME_HEAD = Struct(">ii")
_ERROR = Struct(">h")
_ERROR_AND_GENERATION = Struct(">hi")

Text = Callable[[memoryview, int, str], tuple[str, int]]
NullableText = Callable[[memoryview, int, str], tuple[str | None, int]]


class JoinRequest(NamedTuple):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class SyncRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


def decode_join(version: int, data: memoryview, position: int) -> JoinRequest:
    is_flexible = version >= 6
    text, nullable = _texts(is_flexible)
    group_id, position = text(data, position, "group id")
    session_timeout_ms, position = read_int32(data, position, "session timeout")
    rebalance_timeout_ms = session_timeout_ms
    if version >= 1:
        rebalance_timeout_ms, position = read_int32(data, position, "rebalance timeout")
    member_id, position = text(data, position, "member id")
    instance_id = None
    if version >= 5:
        instance_id, position = nullable(data, position, "instance id")
    protocol_type, position = text(data, position, "protocol type")
    protocols, position = _read_blobs(data, position, is_flexible)
    if version >= 8:
        _, position = nullable(data, position, "reason")
    if is_flexible:
        skip_tagged_fields(data, position)
    return JoinRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        instance_id,
        protocol_type,
        tuple(protocols),
    )


def decode_sync(version: int, data: memoryview, position: int) -> SyncRequest:
    is_flexible = version >= 4
    text, nullable = _texts(is_flexible)
    group_id, position = text(data, position, "group id")
    generation, position = read_int32(data, position, "generation")
    member_id, position = text(data, position, "member id")
    instance_id = protocol_type = protocol_name = None
    if version >= 3:
        instance_id, position = nullable(data, position, "instance id")
    if version >= 5:
        protocol_type, position = nullable(data, position, "protocol type")
        protocol_name, position = nullable(data, position, "protocol")
    assignments, position = _read_blobs(data, position, is_flexible)
    if is_flexible:
        skip_tagged_fields(data, position)
    return SyncRequest(
        group_id, generation, member_id, instance_id, protocol_type, protocol_name, dict(assignments)
    )


def decode_heartbeat(version: int, data: memoryview, position: int) -> HeartbeatRequest:
    is_flexible = version >= 4
    text, nullable = _texts(is_flexible)
    group_id, position = text(data, position, "group id")
    generation, position = read_int32(data, position, "generation")
    member_id, position = text(data, position, "member id")
    instance_id = None
    if version >= 3:
        instance_id, position = nullable(data, position, "instance id")
    if is_flexible:
        skip_tagged_fields(data, position)
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def _texts(is_flexible: bool) -> tuple[Text, NullableText]:
    if is_flexible:
        return read_compact_string, read_compact_nullable_string
    return read_string, read_nullable_string


def _read_blobs(data: memoryview, position: int, is_flexible: bool) -> tuple[list[tuple[str, bytes]], int]:
    """An array of names with bytes: protocols, or members' assignments."""
    text, _ = _texts(is_flexible)
    count, position = read_array_length(data, position, is_flexible, "entries")
    found = []
    for _ in range(count):
        name, position = text(data, position, "name")
        if is_flexible:
            size, position = read_unsigned_varint(data, position, "bytes")
            size -= 1
        else:
            size, position = read_int32(data, position, "bytes")
        if size < 0:
            raise MalformedRequest("bytes may not be null")
        content, position = read_bytes(data, position, size, "bytes")
        if is_flexible:
            position = skip_tagged_fields(data, position)
        found.append((name, content))
    return found, position


class JoinResponse(NamedTuple):
    error_code: int
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str
    skips_assignment: bool
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...]


def encode_join(version: int, correlation_id: int, throttle_time_ms: int, answer: JoinResponse) -> bytes:
    """The whole frame of the answer."""
    is_flexible = version >= 6
    write = write_compact_string if is_flexible else write_string
    out = _head(correlation_id, is_flexible, throttle_time_ms if version >= 2 else None)
    out += _ERROR_AND_GENERATION.pack(answer.error_code, answer.generation)
    if version >= 7:
        write(out, answer.protocol_type)
        write(out, answer.protocol_name)
    else:
        write(out, answer.protocol_name or "")
    write(out, answer.leader_id)
    if version >= 9:
        out.append(answer.skips_assignment)
    write(out, answer.member_id)
    write_array_length(out, len(answer.members), is_flexible)
    for member_id, instance_id, metadata in answer.members:
        write(out, member_id)
        if version >= 5:
            write(out, instance_id)
        _write_bytes(out, metadata, is_flexible)
        if is_flexible:
            out.append(0)
    return _framed(out, is_flexible)


def encode_sync(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    protocol_type: str | None,
    protocol_name: str | None,
    assignment: bytes,
) -> bytes:
    is_flexible = version >= 4
    out = _head(correlation_id, is_flexible, throttle_time_ms if version >= 1 else None)
    out += _ERROR.pack(error_code)
    if version >= 5:
        write_compact_string(out, protocol_type)
        write_compact_string(out, protocol_name)
    _write_bytes(out, assignment, is_flexible)
    return _framed(out, is_flexible)


def encode_heartbeat(version: int, correlation_id: int, throttle_time_ms: int, error_code: int) -> bytes:
    is_flexible = version >= 4
    out = _head(correlation_id, is_flexible, throttle_time_ms if version >= 1 else None)
    out += _ERROR.pack(error_code)
    return _framed(out, is_flexible)


def _head(correlation_id: int, is_flexible: bool, throttle_time_ms: int | None) -> bytearray:
    out = bytearray(_FRAME_HEAD.pack(0, correlation_id))
    if is_flexible:
        out.append(0)
    if throttle_time_ms is not None:
        out += INT32.pack(throttle_time_ms)
    return out


def _framed(out: bytearray, is_flexible: bool) -> bytes:
    if is_flexible:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _write_bytes(out: bytearray, content: bytes, is_flexible: bool) -> None:
    write_array_length(out, len(content), is_flexible)
    out += content
