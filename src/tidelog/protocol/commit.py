"""OffsetCommit, by hand: every consumer sends it continuously.

| version | what changes                                         |
|---------|------------------------------------------------------|
| 2 to 4  | the retention time of the offsets                    |
| 3       | the answer has a throttle time                       |
| 6       | each offset has the leader epoch of its record       |
| 7       | static members                                       |
| 8       | compact lengths and tagged fields                    |
| 10      | topics by id                                         |

**Invariant:** malformed bytes raise `MalformedRequest`; the decoded objects are bounded by the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol.apis import OFFSET_COMMIT
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.wire import (
    INT32,
    ends_early,
    read_array_length,
    read_bytes,
    read_compact_nullable_string,
    read_compact_string,
    read_int32,
    read_int64,
    read_nullable_string,
    read_string,
    read_topic_name,
    skip_tagged_fields,
    topic_name,
    write_array_length,
    write_topic,
)

_FLEXIBLE = OFFSET_COMMIT.flexible_version
_IDS, _EPOCHS, _INSTANCES, _THROTTLE = 10, 6, 7, 3
_RETENTIONS = range(2, 5)
_WITH_EPOCH = Struct(">iqi")
_WITHOUT_EPOCH = Struct(">iq")
_ERROR = Struct(">ih")
_TAGGED_ERROR = Struct(">ihx")
_EPOCH = Struct(">i")
_ID_SIZE = 16
_SHORT = 0x7F  # the largest varint of one byte
_USUAL_PART = Struct(">iqixx")  # followed by no metadata and no tagged fields
_METADATA_AT, _TAGS_AT = 16, 17
_NO_METADATA = b"\x00\x01"  # null or empty
_NO_TAGS = b"\x00\x00"  # neither of the topic nor of the request
_FRAME_HEAD = Struct(">ii")
_API_SIZE, _HEAD_AT = 4, 8  # in a request, whose correlation id is between the two
_NO_EPOCH = -1


class OffsetCommitPart(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetCommitRequest(NamedTuple):
    group_id: str
    epoch: int  # generation or member epoch
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[tuple[str | bytes, list[OffsetCommitPart]]]


class CommitForm(NamedTuple):
    """The common part of one client's commits: all but correlation ids, partitions, offsets and leader
    epochs. With it, only these are decoded from the next request, and only these are encoded in its answer.
    """

    size: int  # of the whole frame
    api: bytes  # its key and version
    head: bytes  # behind the correlation id, up to the number of partitions
    group_id: str
    epoch: int
    member_id: str
    topic: str | bytes
    answer_head: bytes  # behind the correlation id, up to the number of partitions

    def parts_in(self, frame: memoryview) -> list[tuple[int, int, int]] | None:
        """Partitions, offsets and leader epochs of a request of this form; None for another form."""
        if len(frame) != self.size:
            return None
        raw, head = bytes(frame), self.head
        if not raw.startswith(head, _HEAD_AT) or not raw.startswith(self.api) or not raw.endswith(_NO_TAGS):
            return None
        return _usual_parts(raw[_HEAD_AT + len(head) : -len(_NO_TAGS)])

    def well(self, partitions: Sequence[int]) -> bytes:
        """What the answer that all of these are committed has behind its correlation id, unthrottled."""
        told = b"".join([_TAGGED_ERROR.pack(partition, 0) for partition in partitions])
        return self.answer_head + told + _NO_TAGS


def decode_offset_commit(
    version: int, data: memoryview, position: int
) -> tuple[OffsetCommitRequest, CommitForm | None]:
    """The request behind the header of a frame and, for a usual request about one topic, its form."""
    frame = bytes(data)
    usual = _decode_usual(version, frame, position) if version >= _FLEXIBLE else None
    if usual is None:
        return decode_any(version, data, position), None
    request, end = usual
    if len(request.topics) != 1 or end != len(frame):
        return request, None
    ((topic, parts),) = request.topics
    head = frame[_HEAD_AT : end - len(_NO_TAGS) - len(parts) * _USUAL_PART.size]
    answer = encode_offset_commit(version, 0, 0, [(topic, ())])
    answer_head = answer[_FRAME_HEAD.size : -len(_NO_TAGS) - 1] + head[-1:]
    member = request.group_id, request.epoch, request.member_id
    return request, CommitForm(end, frame[:_API_SIZE], head, *member, topic, answer_head)


def frame_of(correlation_id: int, rest: bytes) -> bytes:
    """The whole frame of an answer, from the bytes behind its correlation id."""
    return _FRAME_HEAD.pack(len(rest) + _API_SIZE, correlation_id) + rest


def decode_usual(version: int, data: bytes, position: int) -> OffsetCommitRequest | None:
    """The request that nearly all clients send: short names, dynamic members, no metadata, no tags; five
    times as fast as `decode_any`. None for other requests."""
    usual = _decode_usual(version, data, position)
    return usual[0] if usual is not None else None


def _decode_usual(version: int, data: bytes, position: int) -> tuple[OffsetCommitRequest, int] | None:
    """`decode_usual`, with the position of the end."""
    try:
        member = position + data[position] + _EPOCH.size
        instance = member + data[member]
        if not 1 <= data[position] <= _SHORT or not 1 <= data[member] <= _SHORT:
            return None
        if data[instance] != 0 or not 1 <= data[instance + 1] <= _SHORT:
            return None
        (epoch,) = _EPOCH.unpack_from(data, member - _EPOCH.size)
        topics: list[tuple[str | bytes, list[OffsetCommitPart]]] = []
        at = instance + 2
        for _ in range(data[instance + 1] - 1):
            topic: str | bytes
            if version >= _IDS:
                topic, at = data[at : at + _ID_SIZE], at + _ID_SIZE
            elif 1 <= data[at] <= _SHORT:
                topic, at = topic_name(data[at + 1 : at + data[at]]), at + data[at]
            else:
                return None
            end = at + 1 + (data[at] - 1) * _USUAL_PART.size
            parts = _usual_parts(data[at + 1 : end])
            if not 1 <= data[at] <= _SHORT or data[end] != 0 or parts is None:
                return None
            topics.append((topic, [OffsetCommitPart(*part, "") for part in parts]))
            at = end + 1
        if data[at] != 0:
            return None
        group_id = data[position + 1 : position + data[position]].decode()
        member_id = data[member + 1 : instance].decode()
        return OffsetCommitRequest(group_id, epoch, member_id, None, -1, topics), at + 1
    except (IndexError, StructError, UnicodeDecodeError, MalformedRequest):
        return None


def _usual_parts(data: bytes) -> list[tuple[int, int, int]] | None:
    if data[_METADATA_AT :: _USUAL_PART.size].strip(_NO_METADATA) or any(data[_TAGS_AT :: _USUAL_PART.size]):
        return None
    return list(_USUAL_PART.iter_unpack(data))


def decode_any(version: int, data: memoryview, position: int) -> OffsetCommitRequest:
    is_flexible = version >= _FLEXIBLE
    text = read_compact_string if is_flexible else read_string
    nullable = read_compact_nullable_string if is_flexible else read_nullable_string
    group_id, position = text(data, position, "group id")
    epoch, position = read_int32(data, position, "generation")
    member_id, position = text(data, position, "member id")
    instance_id = None
    if version >= _INSTANCES:
        instance_id, position = nullable(data, position, "instance id")
    retention_ms = -1
    if version in _RETENTIONS:
        retention_ms, position = read_int64(data, position, "retention time")
    count, position = read_array_length(data, position, is_flexible, "topics")
    topics: list[tuple[str | bytes, list[OffsetCommitPart]]] = []
    left = ARRAY_LENGTH_MAX - count
    for _ in range(count):
        topic: str | bytes
        if version >= _IDS:
            topic, position = read_bytes(data, position, 16, "topic id")
        else:
            topic, position = read_topic_name(data, position, is_flexible)
        parts, position = _decode_parts(version, data, position, left)
        left -= len(parts)
        topics.append((topic, parts))
        if is_flexible:
            position = skip_tagged_fields(data, position)
    if is_flexible:
        skip_tagged_fields(data, position)
    return OffsetCommitRequest(group_id, epoch, member_id, instance_id, retention_ms, topics)


def _decode_parts(
    version: int, data: memoryview, position: int, count_max: int
) -> tuple[list[OffsetCommitPart], int]:
    is_flexible = version >= _FLEXIBLE
    nullable = read_compact_nullable_string if is_flexible else read_nullable_string
    form = _WITH_EPOCH if version >= _EPOCHS else _WITHOUT_EPOCH
    count, position = read_array_length(data, position, is_flexible, "partitions")
    if count > count_max:
        raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} entries in one request")
    parts = []
    for _ in range(count):
        if position + form.size > len(data):
            raise ends_early("partition")
        numbers = form.unpack_from(data, position)
        metadata, position = nullable(data, position + form.size, "metadata")
        leader_epoch = numbers[2] if version >= _EPOCHS else _NO_EPOCH
        parts.append(OffsetCommitPart(numbers[0], numbers[1], leader_epoch, metadata or ""))
        if is_flexible:
            position = skip_tagged_fields(data, position)
    return parts, position


def encode_offset_commit(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: Sequence[tuple[str | bytes, Sequence[tuple[int, int]]]],
) -> bytes:
    """The whole frame of the answer: for each partition its index and error code."""
    is_flexible = version >= _FLEXIBLE
    out = bytearray(_FRAME_HEAD.pack(0, correlation_id))
    if is_flexible:
        out.append(0)
    if version >= _THROTTLE:
        out += INT32.pack(throttle_time_ms)
    write_array_length(out, len(topics), is_flexible)
    for topic, parts in topics:
        write_topic(out, topic, is_flexible)
        write_array_length(out, len(parts), is_flexible)
        form = _TAGGED_ERROR if is_flexible else _ERROR
        for index, code in parts:
            out += form.pack(index, code)
        if is_flexible:
            out.append(0)
    if is_flexible:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)
