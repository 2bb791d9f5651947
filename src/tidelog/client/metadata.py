"""Metadata for clients: which broker leads which partition, decoded by hand.

A cluster may have tens of thousands of partitions, and only the index and the leader of each are needed: the
lists of replicas are skipped, not decoded.

**Versions:** 4–13; 4 is the first that does not create topics. `protocol.metadata`, the broker's end, has the
table of what each version adds.
**Invariant:** a malformed answer raises `MalformedRequest`.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

from tidelog.client.exchange import METADATA, KioExchange
from tidelog.protocol import wire
from tidelog.protocol.messages import make

_FLEXIBLE = METADATA.flexible_version
_NO_ID = bytes(wire.TOPIC_ID_SIZE)
_PARTITION = Struct(">hii")  # error code, index, leader


class DescribedTopic(NamedTuple):
    error_code: int
    name: str
    id: bytes
    leaders: dict[int, int]  # partition to node id, -1 without a leader


class Metadata(NamedTuple):
    nodes: dict[int, tuple[str, int]]
    topics: list[DescribedTopic]
    error_code: int


class MetadataExchange(KioExchange):
    """Metadata of these topics, or of all; a broker creates missing topics only if asked and
    configured to."""

    def __init__(self, topics: Collection[str] | None, *, may_create: bool = False) -> None:
        super().__init__(METADATA, lambda types: _build(types, topics, may_create))

    def decode(self, data: memoryview, position: int, version: int) -> Metadata:
        return decode_metadata(bytes(data), position, version)


def _build(types: ModuleType, topics: Collection[str] | None, may_create: bool) -> Any:
    wanted = None
    if topics is not None:
        wanted = tuple(make(types.MetadataRequestTopic, name=name, topic_id=None) for name in topics)
    return make(
        types.MetadataRequest,
        topics=wanted,
        allow_auto_topic_creation=may_create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def decode_metadata(data: bytes, position: int, version: int) -> Metadata:
    flexible = version >= _FLEXIBLE
    _, position = wire.read_int32(data, position, "throttle time")
    count, position = wire.read_array_length(data, position, flexible, "brokers")
    nodes = {}
    for _ in range(count):
        node_id, address, position = _decode_node(data, position, flexible)
        nodes[node_id] = address
    _, position = _read_nullable_text(data, position, flexible, "cluster id")
    _, position = wire.read_int32(data, position, "controller id")
    count, position = wire.read_array_length(data, position, flexible, "topics")
    topics = []
    for _ in range(count):
        topic, position = _decode_topic(data, position, version)
        topics.append(topic)
    if 8 <= version <= 10:
        position = wire.skip(data, position, 4, "authorized operations")
    error_code = 0
    if version >= 13:
        error_code, position = wire.read_int16(data, position, "error code")
    if flexible:
        wire.skip_tagged_fields(data, position)
    return Metadata(nodes, topics, error_code)


def _decode_node(data: bytes, position: int, flexible: bool) -> tuple[int, tuple[str, int], int]:
    node_id, position = wire.read_int32(data, position, "node id")
    host, position = (wire.read_compact_string if flexible else wire.read_string)(data, position, "host")
    port, position = wire.read_int32(data, position, "port")
    _, position = _read_nullable_text(data, position, flexible, "rack")
    return node_id, (host, port), wire.skip_tagged_fields(data, position) if flexible else position


def _decode_topic(data: bytes, position: int, version: int) -> tuple[DescribedTopic, int]:
    flexible = version >= _FLEXIBLE
    error_code, position = wire.read_int16(data, position, "topic error")
    name, position = _read_nullable_text(data, position, flexible, "topic name")
    topic_id = _NO_ID
    if version >= 10:
        topic_id, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
    position = wire.skip(data, position, 1, "is internal")
    count, position = wire.read_array_length(data, position, flexible, "partitions")
    leaders: dict[int, int] = {}
    for _ in range(count):
        position = _decode_partition(data, position, version, leaders)
    if version >= 8:
        position = wire.skip(data, position, 4, "authorized operations")
    if flexible:
        position = wire.skip_tagged_fields(data, position)
    return DescribedTopic(error_code, name or "", topic_id, leaders), position


def _decode_partition(data: bytes, position: int, version: int, leaders: dict[int, int]) -> int:
    flexible = version >= _FLEXIBLE
    end = wire.skip(data, position, _PARTITION.size, "partition")
    _, index, leader = _PARTITION.unpack_from(data, position)
    leaders[index] = leader
    position = wire.skip(data, end, 4, "leader epoch") if version >= 7 else end
    for what in ("replicas", "in-sync replicas", "offline replicas")[: 3 if version >= 5 else 2]:
        count, position = wire.read_array_length(data, position, flexible, what)
        position = wire.skip(data, position, 4 * count, what)
    return wire.skip_tagged_fields(data, position) if flexible else position


def _read_nullable_text(data: bytes, position: int, flexible: bool, what: str) -> tuple[str | None, int]:
    if flexible:
        return wire.read_compact_nullable_string(data, position, what)
    return wire.read_nullable_string(data, position, what)
