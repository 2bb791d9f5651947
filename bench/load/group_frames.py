"""Requests of group members as whole frames, and the few fields of the answers that a member acts on.

Written by hand, because a member must answer at once: what it takes to build a frame is part of what is
measured. All are flexible versions: JoinGroup 9, SyncGroup 5, Heartbeat 4, LeaveGroup 5,
ConsumerGroupHeartbeat 1, OffsetCommit 9, OffsetFetch 9.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from bench.load.batches import uvarint
from bench.load.frames import ResponseLayout, compact_string, whole_frame

NO_ERROR = 0
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"
SESSION_TIMEOUT_MS = 1_800_000
REBALANCE_TIMEOUT_MS = 300_000
# size, correlation id, tags, throttle time
ERROR_POSITION = 4 + 4 + 1 + 4
NULL = b"\x00"
NO_TAGS = b"\x00"
EMPTY = b"\x01"
INT32 = struct.Struct(">i")
# No instance, no rack, no rebalance timeout, no topics, no pattern and no assignor.
NOTHING_NEW = NULL + NULL + INT32.pack(-1) + NULL + NULL + NULL
HEARTBEAT_LAYOUT = ResponseLayout(ERROR_POSITION + 2 + 1, ERROR_POSITION)


def join_frame(
    group: str,
    member_id: str,
    topic: str,
    session_ms: int = SESSION_TIMEOUT_MS,
    rebalance_ms: int = REBALANCE_TIMEOUT_MS,
) -> bytes:
    subscription = struct.pack(">hih", 1, 1, len(topic)) + topic.encode() + struct.pack(">ii", -1, 0)
    protocol = compact_string(ASSIGNOR) + _bytes(subscription) + NO_TAGS
    body = compact_string(group) + struct.pack(">ii", session_ms, rebalance_ms)
    body += compact_string(member_id) + NULL + compact_string(PROTOCOL_TYPE)
    return whole_frame(11, 9, 0, body + b"\x02" + protocol + NULL + NO_TAGS)


def sync_frame(group: str, generation: int, member_id: str, assignments: bytes = EMPTY) -> bytes:
    body = compact_string(group) + struct.pack(">i", generation) + compact_string(member_id) + NULL
    body += compact_string(PROTOCOL_TYPE) + compact_string(ASSIGNOR) + assignments + NO_TAGS
    return whole_frame(14, 5, 0, body)


def assigned(member_id: str, topic: str, partitions: Sequence[int]) -> bytes:
    """What a leader assigns to one member; `assignments` puts them together."""
    return compact_string(member_id) + assignment_of(topic, partitions) + NO_TAGS


def assignment_of(topic: str, partitions: Sequence[int]) -> bytes:
    assignment = struct.pack(">hih", 1, 1, len(topic)) + topic.encode()
    return _bytes(assignment + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1))


def assignments(parts: Sequence[bytes]) -> bytes:
    return uvarint(len(parts) + 1) + b"".join(parts)


def heartbeat_frame(group: str, generation: int, member_id: str) -> bytes:
    body = compact_string(group) + struct.pack(">i", generation) + compact_string(member_id)
    return whole_frame(12, 4, 0, body + NULL + NO_TAGS)


def leave_frame(group: str, member_ids: Sequence[str]) -> bytes:
    members = [compact_string(member_id) + NULL + NULL + NO_TAGS for member_id in member_ids]
    return whole_frame(13, 5, 0, compact_string(group) + assignments(members) + NO_TAGS)


def consumer_join_frame(group: str, member_id: str, topic: str) -> bytes:
    """The first ConsumerGroupHeartbeat of a member, with all its fields."""
    body = compact_string(group) + compact_string(member_id) + struct.pack(">i", 0) + NULL + NULL
    body += struct.pack(">i", REBALANCE_TIMEOUT_MS) + b"\x02" + compact_string(topic) + NULL
    return whole_frame(68, 1, 0, body + compact_string("uniform") + EMPTY + NO_TAGS)


def consumer_heartbeat_frame(group: str, member_id: str, epoch: int, owned: bytes = NULL) -> bytes:
    """A later one: nothing changed, or these partitions are owned now (as they were assigned)."""
    body = _names(group, member_id) + INT32.pack(epoch) + NOTHING_NEW + owned + NO_TAGS
    return whole_frame(68, 1, 0, body)


@lru_cache(maxsize=4_096)
def _names(group: str, member_id: str) -> bytes:
    return compact_string(group) + compact_string(member_id)


def commit_frame(
    group: str, generation: int, member_id: str, topic: str, partitions: Sequence[int], offset: int
) -> bytes:
    each = [struct.pack(">iqi", index, offset, -1) + EMPTY + NO_TAGS for index in partitions]
    body = compact_string(group) + struct.pack(">i", generation) + compact_string(member_id) + NULL
    body += b"\x02" + compact_string(topic) + assignments(each) + NO_TAGS + NO_TAGS
    return whole_frame(8, 9, 0, body)


def commit_layout(topic: str, partition_count: int) -> ResponseLayout:
    """The error looked at is that of the first partition; the others are checked by what was kept."""
    first = 4 + 4 + 1 + 4 + 1 + len(compact_string(topic)) + len(uvarint(partition_count + 1)) + 4
    return ResponseLayout(first + 2 + 1 + 7 * (partition_count - 1) + 1 + 1, first)


def offset_fetch_frame(groups: Sequence[str], topic: str, partition_count: int) -> bytes:
    """Ask for the commits of groups to partitions 0, 1, … of `topic`."""
    indexes = struct.pack(f">{partition_count}i", *range(partition_count))
    asked = b"\x02" + compact_string(topic) + uvarint(partition_count + 1) + indexes + NO_TAGS
    each = [compact_string(group) + NULL + struct.pack(">i", -1) + asked + NO_TAGS for group in groups]
    return whole_frame(9, 9, 0, assignments(each) + b"\x00" + NO_TAGS)


class Joined(NamedTuple):
    """What a JoinGroup answer says."""

    generation: int
    leader: str
    member_id: str
    member_count: int


def read_joined(answer: bytes) -> Joined:
    position = ERROR_POSITION + 2
    (generation,) = struct.unpack_from(">i", answer, position)
    position = _skip_string(answer, _skip_string(answer, position + 4))
    leader, position = _read_string(answer, position)
    member_id, position = _read_string(answer, position + 1)
    return Joined(generation, leader, member_id, _read_uvarint(answer, position)[0] - 1)


class Told(NamedTuple):
    """What a ConsumerGroupHeartbeat answer says; `owned` is the assignment's bytes, if it has one."""

    epoch: int
    owned: bytes | None
    partition_count: int


def read_told(answer: bytes) -> Told:
    """**Invariant:** members subscribe to one topic, so an assignment has at most one."""
    position = _skip_string(answer, _skip_string(answer, ERROR_POSITION + 2))
    epoch, _, presence = struct.unpack_from(">iib", answer, position)
    if presence < 0:
        return Told(epoch, None, 0)
    start = position + 9
    owned = answer[start : len(answer) - 2]  # without the tags of the assignment and of the answer
    count = 0 if owned == EMPTY else _read_uvarint(answer, start + 1 + 16)[0] - 1
    return Told(epoch, owned, count)


def partitions_of(owned: bytes) -> list[int]:
    """The partitions in an assignment as it came."""
    if owned == EMPTY:
        return []
    count, position = _read_uvarint(owned, 1 + 16)
    return list(struct.unpack_from(f">{count - 1}i", owned, position))


def error_of(answer: bytes) -> int:
    return int.from_bytes(answer[ERROR_POSITION : ERROR_POSITION + 2], "big", signed=True)


def _bytes(content: bytes) -> bytes:
    return uvarint(len(content) + 1) + content


def _read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while data[position] & 0x80:
        value |= (data[position] & 0x7F) << shift
        shift += 7
        position += 1
    return value | data[position] << shift, position + 1


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = _read_uvarint(data, position)
    end = position + max(size - 1, 0)
    return data[position:end].decode(), end


def _skip_string(data: bytes, position: int) -> int:
    size, position = _read_uvarint(data, position)
    return position + max(size - 1, 0)
