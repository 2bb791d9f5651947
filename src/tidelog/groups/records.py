"""The records of `__consumer_offsets`, in Kafka's own formats: Kafka's tools read Tidelog's, and vice versa.

A key begins with its kind, a value with its version. The last value of each key is the state of the group:
the order of records with different keys does not matter.

| kind | key                        | value                                                  |
|------|----------------------------|--------------------------------------------------------|
| 0, 1 | group, topic, partition    | a committed offset                                     |
| 2    | group                      | a classic group: its generation and assignments        |
| 3    | group                      | a consumer group: its epoch                            |
| 4    | group                      | its topics (Kafka before 4.1; ignored)                 |
| 5    | group, member              | the member's subscription and client data              |
| 6    | group                      | the epoch of the target assignment                     |
| 7    | group, member              | the member's target                                    |
| 8    | group, member              | the member's epoch, state and assignment               |
| 16   | group, pattern             | the topics that the pattern matched                    |
| 30000 | nothing else               | this partition is closed to groups of another one      |

Kind 30000 is Tidelog's own; Kafka logs that it is unknown, and continues. A committed offset also has a
tagged field of ours, which Kafka skips: the cluster that allocated the topic id.

**Invariant:** written records are readable here and by Kafka 4.3; other bytes raise `CorruptBatch`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

from tidelog.base.limits import OFFSET_KEYS_KEPT
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.fields import INT16, INT32, INT64, FieldReader
from tidelog.protocol.wire import write_compact_string, write_string, write_unsigned_varint

OFFSET_0, OFFSET, CLASSIC, CONSUMER, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT = range(9)
PATTERN = 16
CLOSED = 30_000
_KINDS = (*range(CURRENT + 1), PATTERN)
NO_ID = bytes(16)
CLOSED_KEY, CLOSED_VALUE = pack(">h", CLOSED), pack(">h", 0)
_STATES = range(3)  # of a member: `reconcile.MemberState`

_KIND_AND_SIZE = Struct(">hh")
_CURRENT_HEAD = Struct(">hiib")  # version, epoch, previous epoch, state
_OFFSET_HEAD = Struct(">hqi")  # version, offset, leader epoch
_PLAIN_OFFSET = Struct(">hqiBq3s16s2s4s")  # with empty metadata, the time, the topic id and its origin
_ORIGIN = 127
ORIGIN_SIZE = 4
_ID_TAG = b"\x01\x00\x10"  # one tagged field, number 0, of 16 bytes
_FIRST_OF_TWO = b"\x02\x00\x10"
_ORIGIN_TAG = bytes((_ORIGIN, ORIGIN_SIZE))
_VALUE_0 = INT16.pack(0)
_CLASSIC_VERSION = 3
_ABSENT, _PRESENT = b"\x00", b"\x01"  # the byte before an optional structure

# Partitions by topic id, each with the epoch in which it was given.
Owned = Mapping[bytes, Mapping[int, int]]
# Partitions by topic id.
Target = Mapping[bytes, tuple[int, ...]]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # -1: by the broker's retention
    topic_id: bytes
    origin: bytes = b""  # the cluster that allocated the topic id; empty if unknown


class ClassicMemberValue(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ClassicValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_ms: int
    members: tuple[ClassicMemberValue, ...]


class ConsumerValue(NamedTuple):
    epoch: int
    metadata_hash: int


class ClassicProtocols(NamedTuple):
    """The classic-protocol data of a member in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicProtocols | None


class TargetValue(NamedTuple):
    epoch: int
    assigned_ms: int


class CurrentValue(NamedTuple):
    epoch: int
    previous_epoch: int
    state: int
    assigned: Owned
    revoking: Owned


class PatternValue(NamedTuple):
    topics: tuple[str, ...]
    version: int
    resolved_ms: int


# Keys.


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _offset_key_start(group_id, topic) + INT32.pack(partition)


@lru_cache(maxsize=OFFSET_KEYS_KEPT)
def _offset_key_start(group_id: str, topic: str) -> bytes:
    return member_key(OFFSET, group_id, topic)


def group_key(kind: int, group_id: str) -> bytes:
    out = bytearray(INT16.pack(kind))
    write_string(out, group_id)
    return bytes(out)


def member_key(kind: int, group_id: str, name: str) -> bytes:
    """A key of a kind with many records per group: of a member or pattern, or the prefix of an
    offset's key."""
    group, own = group_id.encode(), name.encode()
    return b"".join((_KIND_AND_SIZE.pack(kind, len(group)), group, INT16.pack(len(own)), own))


class Key(NamedTuple):
    kind: int
    group_id: str
    name: str  # of the topic, member or pattern; empty if there is none
    partition: int


def read_key(key: bytes) -> Key:
    reader = FieldReader(key)
    kind = reader.int16()
    if kind not in _KINDS:  # of a newer Kafka, or of a kind of group that is not served
        return Key(kind, "", "", -1)
    group_id = reader.string()
    if kind in (OFFSET_0, OFFSET):
        return Key(kind, group_id, reader.string(), reader.int32())
    if kind in (MEMBER, TARGET_MEMBER, CURRENT, PATTERN):
        return Key(kind, group_id, reader.string(), -1)
    return Key(kind, group_id, "", -1)


# Values.


def offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, origin = committed
    if expire_ms >= 0:  # requested by an old client; only version 1 has the field
        out = bytearray(INT16.pack(1) + INT64.pack(offset))
        write_string(out, metadata)
        return bytes(out + INT64.pack(commit_ms) + INT64.pack(expire_ms))
    has_id = topic_id != NO_ID
    if has_id and origin and not metadata:
        tags = (_FIRST_OF_TWO, topic_id, _ORIGIN_TAG, origin)
        return _PLAIN_OFFSET.pack(4, offset, leader_epoch, 1, commit_ms, *tags)
    out = bytearray(_OFFSET_HEAD.pack(4 if has_id else 3, offset, leader_epoch))
    (write_compact_string if has_id else write_string)(out, metadata)
    out += INT64.pack(commit_ms)
    if has_id:
        out += (_FIRST_OF_TWO if origin else _ID_TAG) + topic_id
        out += _ORIGIN_TAG + origin if origin else b""
    return bytes(out)


def read_offset_value(value: bytes) -> CommittedOffset:
    reader = FieldReader(value)
    version = reader.version(0, 4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    tags = reader.tags() if version >= 4 else {}
    topic_id, origin = tags.get(0, NO_ID), tags.get(_ORIGIN, b"")
    if len(topic_id) != len(NO_ID):
        raise CorruptBatch(f"a tagged field of {len(topic_id)} bytes, not of 16 bytes")
    known = origin if len(origin) == ORIGIN_SIZE and topic_id != NO_ID else b""
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, known)


def classic_value(group: ClassicValue) -> bytes:
    out = bytearray(INT16.pack(_CLASSIC_VERSION))
    write_string(out, group.protocol_type)
    out += INT32.pack(group.generation)
    write_string(out, group.protocol_name)
    write_string(out, group.leader_id)
    out += INT64.pack(group.state_ms)
    out += INT32.pack(len(group.members))
    for member in group.members:
        write_string(out, member.member_id)
        write_string(out, member.instance_id)
        write_string(out, member.client_id)
        write_string(out, member.client_host)
        out += INT32.pack(member.rebalance_timeout_ms)
        out += INT32.pack(member.session_timeout_ms)
        for content in (member.subscription, member.assignment):
            out += INT32.pack(len(content))
            out += content
    return bytes(out)


def read_classic_value(value: bytes) -> ClassicValue:
    reader = FieldReader(value)
    version = reader.version(0, 4)
    reader.is_flexible = version >= 4
    protocol_type, generation = reader.text(), reader.int32()
    protocol_name, leader_id = reader.nullable_text(), reader.nullable_text()
    state_ms = reader.int64() if version >= 2 else -1

    def member() -> ClassicMemberValue:
        member_id = reader.text()
        instance_id = reader.nullable_text() if version >= 3 else None
        client_id, client_host = reader.text(), reader.text()
        rebalance_timeout_ms = reader.int32() if version >= 1 else -1
        session_timeout_ms = reader.int32()
        subscription, assignment = reader.blob(), reader.blob()
        reader.end_struct()
        return ClassicMemberValue(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms if version >= 1 else session_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    members = reader.array(member)
    reader.end_struct()
    return ClassicValue(protocol_type, generation, protocol_name, leader_id, state_ms, members)


def consumer_value(epoch: int, metadata_hash: int) -> bytes:
    out = bytearray(_VALUE_0 + INT32.pack(epoch))
    _write_tag(out, INT64.pack(metadata_hash) if metadata_hash else None)
    return bytes(out)


def read_consumer_value(value: bytes) -> ConsumerValue:
    reader = FieldReader(value)
    reader.version(0, 0)
    epoch = reader.int32()
    found = reader.tag(INT64.size)
    return ConsumerValue(epoch, INT64.unpack(found)[0] if found is not None else 0)


def member_value(member: MemberValue) -> bytes:
    out = bytearray(_VALUE_0)
    write_compact_string(out, member.instance_id)
    write_compact_string(out, member.rack_id)
    write_compact_string(out, member.client_id)
    write_compact_string(out, member.client_host)
    _write_texts(out, member.topics)
    write_compact_string(out, member.pattern)
    out += INT32.pack(member.rebalance_timeout_ms)
    write_compact_string(out, member.assignor)
    _write_tag(out, _classic_protocols(member.classic) if member.classic is not None else _ABSENT)
    return bytes(out)


def _classic_protocols(classic: ClassicProtocols) -> bytes:
    out = bytearray(_PRESENT + INT32.pack(classic.session_timeout_ms))
    write_unsigned_varint(out, len(classic.protocols) + 1)
    for name, metadata in classic.protocols:
        write_compact_string(out, name)
        write_unsigned_varint(out, len(metadata) + 1)
        out += metadata
        out.append(0)
    out.append(0)
    return bytes(out)


def read_member_value(value: bytes) -> MemberValue:
    reader = FieldReader(value)
    reader.version(0, 0)
    reader.is_flexible = True
    instance_id, rack_id = reader.nullable_text(), reader.nullable_text()
    client_id, client_host = reader.text(), reader.text()
    topics, pattern = reader.array(reader.text), reader.nullable_text()
    rebalance_timeout_ms, assignor = reader.int32(), reader.nullable_text()
    found = reader.tags().get(0)
    classic = None if found is None or found == _ABSENT else _read_classic_protocols(found)
    return MemberValue(
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        pattern,
        rebalance_timeout_ms,
        assignor,
        classic,
    )


def _read_classic_protocols(data: bytes) -> ClassicProtocols:
    reader = FieldReader(data)
    reader.is_flexible = True
    if reader.take(1) != _PRESENT:
        raise CorruptBatch("what a classic member said is neither there nor left out")
    session_timeout_ms = reader.int32()

    def protocol() -> tuple[str, bytes]:
        name, metadata = reader.text(), reader.blob()
        reader.end_struct()
        return name, metadata

    protocols = reader.array(protocol)
    reader.end_struct()
    return ClassicProtocols(session_timeout_ms, protocols)


def target_value(epoch: int, assigned_ms: int) -> bytes:
    out = bytearray(_VALUE_0 + INT32.pack(epoch))
    _write_tag(out, INT64.pack(assigned_ms) if assigned_ms else None)
    return bytes(out)


def read_target_value(value: bytes) -> TargetValue:
    reader = FieldReader(value)
    reader.version(0, 0)
    epoch = reader.int32()
    found = reader.tag(INT64.size)
    return TargetValue(epoch, INT64.unpack(found)[0] if found is not None else 0)


def target_member_value(target: Target) -> bytes:
    out = bytearray(_VALUE_0)
    write_unsigned_varint(out, len(target) + 1)
    for topic_id, partitions in target.items():
        out += topic_id
        _write_numbers(out, partitions)
        out.append(0)
    out.append(0)
    return bytes(out)


def read_target_member_value(value: bytes) -> Target:
    reader = FieldReader(value)
    reader.version(0, 0)
    reader.is_flexible = True

    def topic() -> tuple[bytes, tuple[int, ...]]:
        topic_id, partitions = reader.take(16), reader.numbers()
        reader.end_struct()
        return topic_id, partitions

    target = dict(reader.array(topic))
    reader.end_struct()
    return target


def current_value(current: CurrentValue) -> bytes:
    epoch, previous_epoch, state, *both = current
    out = bytearray(_CURRENT_HEAD.pack(0, epoch, previous_epoch, state))
    for owned in both:
        write_unsigned_varint(out, len(owned) + 1)
        for topic_id, partitions in owned.items():
            out += topic_id
            _write_numbers(out, partitions)
            epochs = bytearray()
            _write_numbers(epochs, partitions.values())
            _write_tag(out, epochs)
    out.append(0)
    return bytes(out)


def read_current_value(value: bytes) -> CurrentValue:
    reader = FieldReader(value)
    reader.version(0, 0)
    reader.is_flexible = True
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in _STATES:
        raise CorruptBatch(f"a member is in state {state}, which is not known")

    def topic() -> tuple[bytes, dict[int, int]]:
        topic_id, partitions = reader.take(16), reader.numbers()
        found = reader.tags().get(0)
        epochs = _read_numbers(found) if found is not None else (epoch,) * len(partitions)
        if len(epochs) != len(partitions):
            raise CorruptBatch(f"{len(partitions)} partitions with {len(epochs)} epochs")
        return topic_id, dict(zip(partitions, epochs, strict=True))

    assigned, revoking = dict(reader.array(topic)), dict(reader.array(topic))
    reader.end_struct()
    return CurrentValue(epoch, previous_epoch, state, assigned, revoking)


def _read_numbers(data: bytes) -> tuple[int, ...]:
    reader = FieldReader(data)
    reader.is_flexible = True
    return reader.numbers()


def pattern_value(pattern: PatternValue) -> bytes:
    out = bytearray(_VALUE_0)
    _write_texts(out, pattern.topics)
    out += INT64.pack(pattern.version) + INT64.pack(pattern.resolved_ms)
    out.append(0)
    return bytes(out)


def read_pattern_value(value: bytes) -> PatternValue:
    reader = FieldReader(value)
    reader.version(0, 0)
    reader.is_flexible = True
    pattern = PatternValue(reader.array(reader.text), reader.int64(), reader.int64())
    reader.end_struct()
    return pattern


def _write_texts(out: bytearray, texts: Iterable[str]) -> None:
    texts = tuple(texts)
    write_unsigned_varint(out, len(texts) + 1)
    for text in texts:
        write_compact_string(out, text)


def _write_numbers(out: bytearray, numbers: Collection[int]) -> None:
    count = len(numbers)
    write_unsigned_varint(out, count + 1)
    out += pack(f">{count}i", *numbers)


def _write_tag(out: bytearray, content: bytes | bytearray | None) -> None:
    """Write the end of a structure with the optional tagged field number 0."""
    if content is None:
        out.append(0)
    else:
        out += b"\x01\x00"
        write_unsigned_varint(out, len(content))
        out += content
