"""The bodies of Fetch, by hand, because every record that goes out passes here.

`encode_fetch` answers with a list of buffers and `FileSlice`s, so that records go from the file to the
socket and never through this process.

**Versions:** 4–18. 5 adds log start offset, 7 sessions, 9 the leader epoch, 11 racks and preferred
replicas, 12 is flexible, 13 names topics by id, 15 moves the replica to a tagged field, 16 adds the
endpoints of KIP-951, 17 and 18 add tagged fields of the controllers' quorum that are skipped here.
**Invariant:** only `MalformedRequest` is raised; records are never copied.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from tidelog.base.files import Buffer, FileSlice
from tidelog.base.limits import ARRAY_LENGTH_MAX, REPLICA_COPIED_SIZE_MAX
from tidelog.protocol import wire
from tidelog.protocol.apis import FETCH
from tidelog.protocol.errors import MalformedRequest

_SESSIONS = 7
_FLEXIBLE = FETCH.flexible_version
_TOPIC_IDS = 13
_REPLICA_STATE = 15
_ENDPOINTS = 16

_TAG_CLUSTER_ID = 0
_TAG_REPLICA_STATE = 1

Piece = bytes | bytearray | FileSlice
Records = FileSlice | bytes | bytearray | list[FileSlice] | None


class FetchPartition(NamedTuple):
    index: int  # type: ignore[assignment]  # Kafka's word; nobody searches this tuple
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


Topic = tuple[str | bytes, list[FetchPartition]]


class FetchRequest:
    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        session_id: int = 0,
        session_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = -1
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[Topic] = []
        self.forgotten: list[tuple[str | bytes, list[int]]] = []
        self.rack_id = ""
        self.cluster_id: str | None = None


class FetchedPartition:
    """The answer for one partition of a fetch."""

    __slots__ = (
        "aborted",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "index",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_start_offset",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: list[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        records: Records = None,
        diverging_epoch: tuple[int, int] | None = None,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted  # (producer id, first offset); None for a reader without read_committed
        self.preferred_read_replica = preferred_read_replica
        self.records = records
        self.diverging_epoch = diverging_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


_unpack_head_v4 = Struct(">iiiib").unpack_from
_unpack_head_v7 = Struct(">iiiibii").unpack_from
_unpack_head_v15 = Struct(">iiibii").unpack_from
_unpack_replica_state = Struct(">iq").unpack_from

_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_unpack_partition = _PARTITION_V12.unpack_from
_make_partition = FetchPartition._make


# From version 15 on, a request for one partition: everything before the forgotten topics.
_ONE_PARTITION = Struct(">iiibiiB16sBiiqiqiH")
ONE = 2  # the length of an array, and one
_NO_MORE = b"\1\1\0"  # no forgotten topics, no rack and no tags: the usual end of a request
OF_REPLICA = b"\1\1\1\1\x0d"  # the same with the replica's state and no more
_OF_REPLICA_SIZE = len(OF_REPLICA) + 13


def decode_fetch(data: Buffer, position: int, version: int) -> FetchRequest:
    """Decode the body that begins at `position` and ends where `data` ends."""
    try:
        if version >= _REPLICA_STATE and len(data) >= position + _ONE_PARTITION.size:
            request = _decode_one_partition(data, position)
            if request is not None:
                return request
        return _decode(data, position, version)
    except (error, IndexError):
        raise wire.ends_early("fetch request") from None


def _decode_one_partition(data: Buffer, position: int) -> FetchRequest | None:
    """A request for one partition, of a follower or of a consumer without a rack; None for other requests."""
    fields = _ONE_PARTITION.unpack_from(data, position)
    if fields[6] != ONE or fields[8] != ONE or fields[15]:
        return None
    rest = position + _ONE_PARTITION.size
    end = data[rest:]
    is_of_replica = len(end) == _OF_REPLICA_SIZE and end[:5] == OF_REPLICA and not end[-1]
    if not is_of_replica and end != _NO_MORE:
        return None
    request = FetchRequest(-1, *fields[:6])
    if is_of_replica:
        request.replica_id, request.replica_epoch = _unpack_replica_state(data, rest + len(OF_REPLICA))
    request.topics = [(fields[7], [_make_partition(fields[9:15])])]
    return request


def _decode(data: Buffer, position: int, version: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE
    if version >= _REPLICA_STATE:
        request = FetchRequest(-1, *_unpack_head_v15(data, position))
        position += 21
    elif version >= _SESSIONS:
        request = FetchRequest(*_unpack_head_v7(data, position))
        position += 25
    else:
        request = FetchRequest(*_unpack_head_v4(data, position))
        position += 17
    if flexible and data[position] == 1:  # an incremental fetch without changes
        position += 1
    else:
        request.topics, position = _decode_topics(data, position, version, flexible)
    if flexible and data[position:] == _NO_MORE:
        return request
    if version >= _SESSIONS:
        request.forgotten, position = _decode_forgotten(data, position, version, flexible)
    if flexible:
        request.rack_id, position = wire.read_compact_string(data, position, "rack id")
        position = _decode_tagged_fields(data, position, version, request)
    elif version >= 11:
        request.rack_id, position = wire.read_string(data, position, "rack id")
    if position != len(data):
        raise MalformedRequest(f"fetch request: {len(data) - position} bytes too many")
    return request


def _decode_topics(data: Buffer, position: int, version: int, flexible: bool) -> tuple[list[Topic], int]:
    count, position = wire.read_array_length(data, position, flexible, "topics")
    topics: list[Topic] = []
    partitions_left = ARRAY_LENGTH_MAX
    for _ in range(count):
        topic: str | bytes
        if version < _TOPIC_IDS:
            topic, position = wire.read_topic_name(data, position, flexible)
        else:
            topic, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
        partition_count, position = wire.read_array_length(data, position, flexible, "partitions")
        partitions_left -= partition_count
        if partitions_left < 0:
            raise MalformedRequest(f"partitions: more than {ARRAY_LENGTH_MAX} in one request")
        if flexible:
            partitions, position = _decode_flexible_partitions(data, position, partition_count)
        else:
            partitions, position = _decode_legacy_partitions(data, position, partition_count, version)
        topics.append((topic, partitions))
    return topics, position


def _decode_flexible_partitions(data: Buffer, position: int, count: int) -> tuple[list[FetchPartition], int]:
    partitions = []
    for _ in range(count):
        partitions.append(_make_partition(_unpack_partition(data, position)))
        position += 32
        if data[position]:
            position = wire.skip_tagged_fields(data, position)
        else:
            position += 1
    return partitions, wire.skip_tagged_fields(data, position)


def _decode_legacy_partitions(
    data: Buffer, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    partitions = []
    epoch = log_start_offset = -1
    for _ in range(count):
        if version >= 9:
            index, epoch, offset, log_start_offset, max_bytes = _PARTITION_V9.unpack_from(data, position)
            position += 28
        elif version >= 5:
            index, offset, log_start_offset, max_bytes = _PARTITION_V5.unpack_from(data, position)
            position += 24
        else:
            index, offset, max_bytes = _PARTITION_V4.unpack_from(data, position)
            position += 16
        partitions.append(FetchPartition(index, epoch, offset, -1, log_start_offset, max_bytes))
    return partitions, position


def _decode_forgotten(
    data: Buffer, position: int, version: int, flexible: bool
) -> tuple[list[tuple[str | bytes, list[int]]], int]:
    count, position = wire.read_array_length(data, position, flexible, "forgotten topics")
    forgotten: list[tuple[str | bytes, list[int]]] = []
    partitions_left = ARRAY_LENGTH_MAX
    for _ in range(count):
        topic: str | bytes
        if version < _TOPIC_IDS:
            topic, position = wire.read_topic_name(data, position, flexible)
        else:
            topic, position = wire.read_bytes(data, position, wire.TOPIC_ID_SIZE, "topic id")
        partition_count, position = wire.read_array_length(data, position, flexible, "forgotten partitions")
        partitions_left -= partition_count
        if partitions_left < 0:
            raise MalformedRequest(f"forgotten partitions: more than {ARRAY_LENGTH_MAX} in one request")
        end = wire.skip(data, position, 4 * partition_count, "forgotten partitions")
        forgotten.append((topic, list(Struct(f">{partition_count}i").unpack_from(data, position))))
        position = wire.skip_tagged_fields(data, end) if flexible else end
    return forgotten, position


def _decode_tagged_fields(data: Buffer, position: int, version: int, request: FetchRequest) -> int:
    fields, position = wire.read_tagged_fields(data, position)
    for tag, start, end in fields:
        if tag == _TAG_CLUSTER_ID:
            request.cluster_id, start = wire.read_compact_nullable_string(data, start, "cluster id")
        elif tag == _TAG_REPLICA_STATE and version >= _REPLICA_STATE:
            request.replica_id, request.replica_epoch = _unpack_replica_state(data, start)
            start = wire.skip_tagged_fields(data, start + 12)
        else:
            continue
        if start != end:
            raise MalformedRequest(f"tagged field {tag}: {end - start} bytes too many")
    return position


_FRAME_HEAD_V4 = Struct(">iii")
_FRAME_HEAD_V7 = Struct(">iiihi")
_FRAME_HEAD_V12 = Struct(">iixihi")

_PARTITION_V4_HEAD = Struct(">ihqq")
_PARTITION_V12_HEAD = Struct(">ihqqqxi")  # the pad byte is the null array of aborted transactions
_ABORTED = Struct(">qq")
_DIVERGING_EPOCH = Struct(">BBiqx")
_CURRENT_LEADER = Struct(">BBiix")


def encode_fetch(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topics: list[tuple[str | bytes, list[FetchedPartition]]],
    endpoints: wire.Endpoints = (),
) -> list[Piece]:
    """The whole response frame, from its size prefix on, in pieces to be sent one after the other."""
    if version >= _TOPIC_IDS and len(topics) == 1 and len(topics[0][1]) == 1 and not endpoints:
        one = _encode_one_partition(correlation_id, throttle_time_ms, error_code, session_id, *topics[0])
        if one is not None:
            return [one]
    flexible = version >= _FLEXIBLE
    if flexible:
        head = _FRAME_HEAD_V12.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
    elif version >= _SESSIONS:
        head = _FRAME_HEAD_V7.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
    else:
        head = _FRAME_HEAD_V4.pack(0, correlation_id, throttle_time_ms)
    no_tags = b"\0" if flexible else b""
    first = out = bytearray(head)
    pieces: list[Piece] = [out]
    wire.write_array_length(out, len(topics), flexible)
    for topic, partitions in topics:
        wire.write_topic(out, topic, flexible)
        wire.write_array_length(out, len(partitions), flexible)
        for partition in partitions:
            _write_partition(out, partition, version, flexible)
            if partition.records is not None:
                out = _add_records(pieces, partition.records)
            if partition.leader_epoch < 0 and partition.diverging_epoch is None:
                out += no_tags
            elif flexible:
                _write_tagged_fields(out, partition)
        out += no_tags
    if flexible:
        wire.write_endpoints(out, endpoints if version >= _ENDPOINTS else ())
    elif not out:
        pieces.pop()
    wire.INT32.pack_into(first, 0, sum(map(_size_of, pieces)) - 4)
    return pieces


_ONE_FETCHED = Struct(">iixihiB16sBihqqqxi")  # everything before the records; the last pad is a null array
NO_TAGS_THRICE = b"\0\0\0"


def _encode_one_partition(
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topic: str | bytes,
    partitions: list[FetchedPartition],
) -> bytes | None:
    """One partition with a few records in memory, the usual answer to a follower; None for other answers."""
    (fetched,) = partitions
    records = fetched.records
    if not isinstance(records, bytes | bytearray) or not isinstance(topic, bytes):
        return None
    if len(records) > REPLICA_COPIED_SIZE_MAX:
        return None
    if fetched.aborted is not None or fetched.leader_epoch >= 0 or fetched.diverging_epoch is not None:
        return None
    length = bytearray()
    wire.write_unsigned_varint(length, len(records) + 1)
    size = _ONE_FETCHED.size + len(length) + len(records) + len(NO_TAGS_THRICE)
    head = _ONE_FETCHED.pack(
        size - 4,
        correlation_id,
        throttle_time_ms,
        error_code,
        session_id,
        ONE,
        topic,
        ONE,
        fetched.index,
        fetched.error_code,
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        fetched.preferred_read_replica,
    )
    return b"".join((head, length, records, NO_TAGS_THRICE))


def _size_of(piece: Piece) -> int:
    return piece.size if isinstance(piece, FileSlice) else len(piece)


def _write_partition(out: bytearray, partition: FetchedPartition, version: int, flexible: bool) -> None:
    """Write the fields of a partition before its records."""
    records = partition.records
    if records is None:
        size = 0
    elif isinstance(records, list):
        size = sum(map(_size_of, records))
    else:
        size = _size_of(records)
    if flexible and partition.aborted is None:
        out += _PARTITION_V12_HEAD.pack(
            partition.index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
            partition.preferred_read_replica,
        )
    else:
        _write_partition_head(out, partition, version, flexible)
    if flexible:
        wire.write_unsigned_varint(out, size + 1)
    else:
        out += wire.INT32.pack(size)


def _write_partition_head(out: bytearray, partition: FetchedPartition, version: int, flexible: bool) -> None:
    out += _PARTITION_V4_HEAD.pack(
        partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset
    )
    if version >= 5:
        out += wire.INT64.pack(partition.log_start_offset)
    aborted = partition.aborted
    wire.write_array_length(out, -1 if aborted is None else len(aborted), flexible)
    for producer_id, first_offset in aborted or ():
        out += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            out.append(0)
    if version >= 11:
        out += wire.INT32.pack(partition.preferred_read_replica)


def _write_tagged_fields(out: bytearray, partition: FetchedPartition) -> None:
    diverging_epoch = partition.diverging_epoch
    out.append((diverging_epoch is not None) + (partition.leader_epoch >= 0))
    if diverging_epoch is not None:
        out += _DIVERGING_EPOCH.pack(0, 13, *diverging_epoch)
    if partition.leader_epoch >= 0:
        out += _CURRENT_LEADER.pack(1, 9, partition.leader_id, partition.leader_epoch)


def _add_records(pieces: list[Piece], records: FileSlice | bytes | bytearray | list[FileSlice]) -> bytearray:
    """Add records behind the written bytes, and open a buffer for the bytes after them.

    Empty slices are added as well: the sender releases their pins.
    """
    if isinstance(records, list):
        pieces.extend(records)
    else:
        pieces.append(records)
    out = bytearray()
    pieces.append(out)
    return out
