"""Fetch for clients and followers: requests by partition, and responses with the positions of the records.

**Versions:** 4–18, as in `tidelog.protocol.fetch`, the broker's end.
**Invariant:** records are not copied; a malformed response raises `MalformedRequest`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.protocol import wire
from tidelog.protocol.apis import FETCH
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.fetch import NO_TAGS_THRICE, OF_REPLICA, ONE, FetchPartition, FetchRequest

_SESSIONS = 7
_FLEXIBLE = FETCH.flexible_version
_TOPIC_IDS = 13
_REPLICA_STATE = 15
_ENDPOINTS = 16

_WAIT = Struct(">iiib")
_SESSION = Struct(">ii")
_REPLICA = Struct(">iqx")
_RESPONSE_SESSION = Struct(">hi")
_PARTITION_HEAD = Struct(">ihqq")
_EPOCH_END = Struct(">iq")
_ONE_RECEIVED = Struct(">ihiB16sBihqqqBi")  # a response about it, up to the records
_ABORTED = Struct(">qq")


class ReceivedPartition:
    """One partition of a fetch response; its records are `data[start:end]` of the decoded data."""

    __slots__ = (
        "aborted",
        "diverging_epoch",
        "end",
        "error_code",
        "high_watermark",
        "index",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_start_offset",
        "preferred_read_replica",
        "start",
    )

    def __init__(self, index: int, error_code: int, high_watermark: int, last_stable_offset: int) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = -1
        self.aborted: list[tuple[int, int]] | None = None
        self.preferred_read_replica = -1
        self.start = self.end = 0
        self.diverging_epoch: tuple[int, int] | None = None
        self.leader_id = -1
        self.leader_epoch = -1


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[str | bytes, list[ReceivedPartition]]]
    endpoints: list[wire.Endpoint]


def encode_fetch_request(
    version: int, correlation_id: int, client_id: str | None, request: FetchRequest
) -> bytes | bytearray:
    """The whole request frame, from its size prefix on."""
    if version >= _REPLICA_STATE and client_id is not None and _is_of_one_partition(request):
        return _encode_one_partition(version, correlation_id, client_id.encode(), request)
    flexible = version >= _FLEXIBLE
    out = bytearray()
    wire.write_request_head(out, FETCH.key, version, correlation_id, client_id, flexible)
    if version < _REPLICA_STATE:
        out += wire.INT32.pack(request.replica_id)
    out += _WAIT.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _SESSIONS:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    wire.write_array_length(out, len(request.topics), flexible)
    for topic, partitions in request.topics:
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, len(partitions), flexible)
        for partition in partitions:
            _write_partition(out, partition, version)
        if flexible:
            out.append(0)
    if version >= _SESSIONS:
        _write_forgotten(out, request, flexible)
    if flexible:
        wire.write_compact_string(out, request.rack_id)
        _write_tagged_fields(out, request, version)
    elif version >= 11:
        wire.write_string(out, request.rack_id)
    wire.INT32.pack_into(out, 0, len(out) - 4)
    return out


def _is_of_one_partition(request: FetchRequest) -> bool:
    """Whether a replica's request has one partition and nothing else."""
    is_plain = not (request.forgotten or request.rack_id or request.cluster_id is not None)
    is_one = len(request.topics) == 1 and len(request.topics[0][1]) == 1
    return is_plain and is_one and request.replica_id >= 0


@lru_cache(maxsize=16)
def _one_partition_form(client_id_size: int) -> Struct:
    """The whole frame of a request for one partition."""
    return Struct(f">ihhih{client_id_size}sxiiibiiB16sBiiqiqiH5siqx")


def _encode_one_partition(
    version: int, correlation_id: int, client_id: bytes, request: FetchRequest
) -> bytes:
    ((topic, (partition,)),) = request.topics
    form = _one_partition_form(len(client_id))
    return form.pack(
        form.size - wire.INT32.size,
        FETCH.key,
        version,
        correlation_id,
        len(client_id),
        client_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        ONE,
        topic,
        ONE,
        *partition,
        0,
        OF_REPLICA,
        request.replica_id,
        request.replica_epoch,
    )


def _write_partition(out: bytearray, partition: FetchPartition, version: int) -> None:
    out += wire.INT32.pack(partition.index)
    if version >= 9:
        out += wire.INT32.pack(partition.current_leader_epoch)
    out += wire.INT64.pack(partition.fetch_offset)
    if version >= _FLEXIBLE:
        out += wire.INT32.pack(partition.last_fetched_epoch)
    if version >= 5:
        out += wire.INT64.pack(partition.log_start_offset)
    out += wire.INT32.pack(partition.max_bytes)
    if version >= _FLEXIBLE:
        out.append(0)


def _write_forgotten(out: bytearray, request: FetchRequest, flexible: bool) -> None:
    wire.write_array_length(out, len(request.forgotten), flexible)
    for topic, indexes in request.forgotten:
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, len(indexes), flexible)
        for index in indexes:
            out += wire.INT32.pack(index)
        if flexible:
            out.append(0)


def _write_tagged_fields(out: bytearray, request: FetchRequest, version: int) -> None:
    has_replica = version >= _REPLICA_STATE and (request.replica_id, request.replica_epoch) != (-1, -1)
    out.append((request.cluster_id is not None) + has_replica)
    if request.cluster_id is not None:
        field = bytearray()
        wire.write_compact_string(field, request.cluster_id)
        out.append(0)
        wire.write_unsigned_varint(out, len(field))
        out += field
    if has_replica:
        out += bytes((1, _REPLICA.size))
        out += _REPLICA.pack(request.replica_id, request.replica_epoch)


def decode_fetch_response(data: Buffer, position: int, version: int) -> FetchResponse:
    """The decoded body, from `position` behind the header to the end of `data`."""
    if version >= _TOPIC_IDS and len(data) > position + _ONE_RECEIVED.size:
        response = _decode_one_partition(data, position)
        if response is not None:
            return response
    flexible = version >= _FLEXIBLE
    throttle_time_ms, position = wire.read_int32(data, position, "throttle time")
    error_code = session_id = 0
    if version >= _SESSIONS:
        end = wire.skip(data, position, _RESPONSE_SESSION.size, "session")
        error_code, session_id = _RESPONSE_SESSION.unpack_from(data, position)
        position = end
    topic_count, position = wire.read_array_length(data, position, flexible, "topics")
    topics: list[tuple[str | bytes, list[ReceivedPartition]]] = []
    for _ in range(topic_count):
        topic, partitions, position = _decode_topic(data, position, version)
        topics.append((topic, partitions))
    endpoints: list[wire.Endpoint] = []
    if flexible:
        fields, position = wire.read_tagged_fields(data, position)
        for tag, start, _ in fields:
            if tag == 0 and version >= _ENDPOINTS:
                endpoints, _ = wire.read_endpoints(data, start)
    if position != len(data):
        raise MalformedRequest(f"fetch response: {len(data) - position} bytes too many")
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _decode_one_partition(data: Buffer, position: int) -> FetchResponse | None:
    """A response for one partition, without aborted transactions and tags; None for other responses."""
    (
        throttle_time_ms,
        error_code,
        session_id,
        topic_count,
        topic_id,
        partition_count,
        index,
        partition_error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted_count,
        preferred_read_replica,
    ) = _ONE_RECEIVED.unpack_from(data, position)
    if topic_count != ONE or partition_count != ONE or aborted_count > 1:
        return None
    try:
        size, start = wire.read_unsigned_varint(data, position + _ONE_RECEIVED.size, "records")
    except MalformedRequest:
        return None
    end = start + max(size - 1, 0)
    if data[end:] != NO_TAGS_THRICE:
        return None
    partition = ReceivedPartition(index, partition_error_code, high_watermark, last_stable_offset)
    partition.log_start_offset, partition.preferred_read_replica = log_start_offset, preferred_read_replica
    partition.aborted = [] if aborted_count else None
    partition.start, partition.end = start, end
    return FetchResponse(throttle_time_ms, error_code, session_id, [(topic_id, [partition])], [])


def _decode_topic(
    data: Buffer, position: int, version: int
) -> tuple[str | bytes, list[ReceivedPartition], int]:
    flexible = version >= _FLEXIBLE
    topic: str | bytes
    if version < _TOPIC_IDS:
        topic, position = wire.read_topic_name(data, position, flexible)
    else:
        topic, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
    count, position = wire.read_array_length(data, position, flexible, "partitions")
    partitions = []
    for _ in range(count):
        partition, position = _decode_partition(data, position, version)
        partitions.append(partition)
    if flexible:
        position = wire.skip_tagged_fields(data, position)
    return topic, partitions, position


def _decode_partition(data: Buffer, position: int, version: int) -> tuple[ReceivedPartition, int]:
    flexible = version >= _FLEXIBLE
    end = wire.skip(data, position, _PARTITION_HEAD.size, "partition")
    partition = ReceivedPartition(*_PARTITION_HEAD.unpack_from(data, position))
    position = end
    if version >= 5:
        partition.log_start_offset, position = wire.read_int64(data, position, "log start offset")
    partition.aborted, position = _decode_aborted(data, position, flexible)
    if version >= 11:
        partition.preferred_read_replica, position = wire.read_int32(data, position, "preferred replica")
    size, position = _read_nullable_length(data, position, flexible, "records")
    partition.start = position
    partition.end = position = wire.skip(data, position, max(size, 0), "records")
    if flexible:
        position = _decode_tagged_fields(data, position, partition)
    return partition, position


def _read_nullable_length(data: Buffer, position: int, flexible: bool, what: str) -> tuple[int, int]:
    """-1 for null."""
    if not flexible:
        return wire.read_int32(data, position, what)
    size, position = wire.read_unsigned_varint(data, position, what)
    return size - 1, position


def _decode_aborted(data: Buffer, position: int, flexible: bool) -> tuple[list[tuple[int, int]] | None, int]:
    count, position = _read_nullable_length(data, position, flexible, "aborted transactions")
    if count < 0:
        return None, position
    wire.skip(data, position, count * _ABORTED.size, "aborted transactions")
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        end = wire.skip(data, position, _ABORTED.size, "aborted transaction")
        producer_id, first_offset = _ABORTED.unpack_from(data, position)
        aborted.append((producer_id, first_offset))
        position = wire.skip_tagged_fields(data, end) if flexible else end
    return aborted, position


def _decode_tagged_fields(data: Buffer, position: int, partition: ReceivedPartition) -> int:
    fields, position = wire.read_tagged_fields(data, position)
    for tag, start, _ in fields:
        if tag == 0:
            wire.skip(data, start, _EPOCH_END.size, "diverging epoch")
            epoch, end_offset = _EPOCH_END.unpack_from(data, start)
            partition.diverging_epoch = (epoch, end_offset)
        elif tag == 1:
            partition.leader_id, start = wire.read_int32(data, start, "leader id")
            partition.leader_epoch, _ = wire.read_int32(data, start, "leader epoch")
    return position
