"""The messages of consumers inside JoinGroup and SyncGroup: subscriptions and assignments.

| version of a subscription | adds                                         |
|---------------------------|----------------------------------------------|
| 0                         | topics, user data                            |
| 1                         | the partitions that the member owns          |
| 2                         | the generation in which it owned them        |
| 3                         | its rack                                     |

A newer version is read as the newest of these, as clients do.

**Invariant:** malformed bytes raise `MalformedRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.wire import (
    INT16,
    INT32,
    read_array_length,
    read_bytes,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    write_string,
)

SUBSCRIPTION_VERSION_MAX = 3  # of the fields that are known; later ones follow them


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: dict[str, tuple[int, ...]]
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    version, position = read_int16(data, 0, "the version of a subscription")
    if version < 0:
        raise MalformedRequest(f"a subscription of version {version}")
    count, position = read_array_length(data, position, False, "topics")
    topics = []
    for _ in range(count):
        name, position = read_string(data, position, "a topic's name")
        topics.append(name)
    position = _skip_user_data(data, position)
    owned: dict[str, tuple[int, ...]] = {}
    if version >= 1:
        owned, position = _read_partitions(data, position)
    if version >= 2:
        _, position = read_int32(data, position, "a generation")
    rack_id = None
    if version >= SUBSCRIPTION_VERSION_MAX:
        rack_id, position = read_nullable_string(data, position, "a rack")
    return Subscription(min(version, SUBSCRIPTION_VERSION_MAX), tuple(topics), owned, rack_id)


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """The partitions by topic; none for the empty assignment of a member that the leader left out."""
    if not data:
        return {}
    version, position = read_int16(data, 0, "the version of an assignment")
    if version < 0:
        raise MalformedRequest(f"an assignment of version {version}")
    return _read_partitions(data, position)[0]


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    out = bytearray(INT16.pack(version))
    out += INT32.pack(len(partitions))
    for topic, indexes in partitions.items():
        write_string(out, topic)
        numbers = list(indexes)
        out += INT32.pack(len(numbers))
        for number in numbers:
            out += INT32.pack(number)
    return bytes(out + INT32.pack(-1))  # no user data


def _skip_user_data(data: bytes, position: int) -> int:
    size, position = read_int32(data, position, "user data")
    return read_bytes(data, position, max(size, 0), "user data")[1]


def _read_partitions(data: bytes, position: int) -> tuple[dict[str, tuple[int, ...]], int]:
    topic_count, position = read_array_length(data, position, False, "partitions by topic")
    found: dict[str, list[int]] = {}
    for _ in range(topic_count):
        topic, position = read_string(data, position, "a topic's name")
        count, position = read_array_length(data, position, False, "partitions")
        indexes = found.setdefault(topic, [])
        for _ in range(count):
            index, position = read_int32(data, position, "a partition")
            indexes.append(index)
    return {topic: tuple(indexes) for topic, indexes in found.items()}, position
