"""Targets without a broker: bytes to frames, frames to requests, batches to headers and records.

Where there are two ways to read the same bytes (cut up or whole, by hand or by kio, before and after
recompression), both are tried and must agree.

**Invariant:** a target raises nothing but what it has found; what a codec may raise by its word is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from struct import Struct
from typing import Any

from tests.log.making import NOW_MS, make_settings
from tests.wire.batches import LENGTH, with_crc
from tests.wire.harness import FETCH, PRODUCE, encode
from tidelog.base.limits import BATCH_HEADER_SIZE, OTLP_LABELS_MAX, OTLP_NAME_LENGTH_MAX
from tidelog.log.admission import admit
from tidelog.protocol.apis import APIS
from tidelog.protocol.batch import ATTRIBUTES_POSITION, CODEC_MASK, LENGTH_OVERHEAD, check_whole
from tidelog.protocol.compression import ZSTD, compress
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import CorruptBatch, MalformedRequest, RefusedBatch
from tidelog.protocol.fetch import decode_fetch
from tidelog.protocol.messages import decode_request
from tidelog.protocol.otlp import decode_metrics
from tidelog.protocol.produce import decode_produce
from tidelog.protocol.records import find_timestamp, read_marker, read_records, recompress

STREAM_FRAME_SIZE_MAX = 1_000
UNFOLDED_SIZE_MAX = 256 * 1024  # smaller than in earnest, so that the bound itself is tried
FITS_CRC, FITS_LENGTH, IS_PACKED = 0x80, 0x40, 0x20  # in the first byte of a batch: what is made to fit
BODY_POSITION = 3  # bodies do not begin where their buffer does

_HEADER = Struct(">hhih")
_LENGTH = Struct(">i")
_BY_KEY = {api.key: api for api in APIS}


def fuzz_connection(data: bytes) -> None:
    """One byte that says how to cut up the rest, which is a client's stream."""
    if not data:
        return
    whole = _frames_of(data[1:], len(data))
    assert _frames_of(data[1:], data[0] % 16 + 1) == whole


def _frames_of(stream: bytes, piece_size: int) -> list[bytes | None]:
    """The frames in a stream that arrives in such pieces; None at the end if it was refused."""
    connection = Connection(STREAM_FRAME_SIZE_MAX)
    frames: list[bytes | None] = []
    position = 0
    try:
        while position < len(stream):
            target = connection.receive_target()
            if target is None:
                piece = stream[position : position + piece_size]
                frames += map(bytes, connection.receive(memoryview(piece)))
                position += len(piece)
            else:
                piece = stream[position : position + min(piece_size, len(target))]
                target[: len(piece)] = piece
                frame = connection.received_in_target(len(piece))
                frames += [] if frame is None else [bytes(frame)]
                position += len(piece)
            assert connection.buffered_size <= STREAM_FRAME_SIZE_MAX + 4
    except MalformedRequest:
        frames = _before_refusal(stream)
    return frames


def _before_refusal(stream: bytes) -> list[bytes | None]:
    """A stream that is refused in the end may have given up to all frames before it, by how it was cut."""
    frames: list[bytes | None] = []
    position = 0
    while 8 <= (size := int.from_bytes(stream[position : position + 4], "big")) <= STREAM_FRAME_SIZE_MAX:
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return [*frames, None]


def fuzz_decode(data: bytes) -> None:
    """A frame as in `request`, of any API and version: what is decoded can be written and read again."""
    if len(data) < _HEADER.size:
        return
    key, version, _, client_id_size = _HEADER.unpack_from(data)
    api = _BY_KEY.get(key) or APIS[key % len(APIS)]
    version_count = api.newest_version - api.oldest_version + 1
    version = api.oldest_version + (version - api.oldest_version) % version_count
    position = _HEADER.size + max(client_id_size, 0) + (version >= api.flexible_version)
    try:
        decoded = decode_request(api.key, version, data, min(position, len(data)))
    except MalformedRequest:
        return
    assert decode_request(api.key, version, encode(decoded), 0) == decoded


def fuzz_produce(data: bytes) -> None:
    """One byte that picks the version, then a body: where it is taken, kio must say the same of it."""
    if not data:
        return
    version = 3 + data[0] % 11
    body = memoryview(bytes(BODY_POSITION) + data[1:])
    try:
        request = decode_produce(body, BODY_POSITION, version)
    except MalformedRequest:
        return
    reference = _second_opinion(PRODUCE, version, body)
    if reference is None:
        return
    head = (reference.transactional_id, reference.acks, _milliseconds(reference.timeout))
    assert (request.transactional_id, request.acks, request.timeout_ms) == head
    assert [
        (topic, [(index, bytes(body[start:end]) if start >= 0 else None) for index, start, end in partitions])
        for topic, partitions in request.topics
    ] == [
        (_topic_of(topic, "name"), [(part.index, part.records) for part in topic.partition_data])
        for topic in reference.topic_data
    ]


def fuzz_fetch(data: bytes) -> None:
    """The same for Fetch."""
    if not data:
        return
    version = 4 + data[0] % 15
    body = memoryview(bytes(BODY_POSITION) + data[1:])
    try:
        request = decode_fetch(body, BODY_POSITION, version)
    except MalformedRequest:
        return
    reference = _second_opinion(FETCH, version, body)
    if reference is None:
        return
    assert request.max_wait_ms == _milliseconds(reference.max_wait)
    for name in ("min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch", "rack_id"):
        assert getattr(request, name) == getattr(reference, name, getattr(request, name)), name
    assert [
        (topic, [(part.index, part.fetch_offset, part.max_bytes) for part in partitions])
        for topic, partitions in request.topics
    ] == [
        (
            _topic_of(topic, "topic"),
            [(part.partition, part.fetch_offset, part.partition_max_bytes) for part in topic.partitions],
        )
        for topic in reference.topics
    ]
    assert request.forgotten == [
        (_topic_of(topic, "topic"), list(topic.partitions))
        for topic in getattr(reference, "forgotten_topics_data", ())
    ]


# Where kio is stricter than Kafka: tagged fields out of order, and ones that say null.
_STRICTER = ("tagged field", "Unexpectedly read null")


def _second_opinion(api_key: int, version: int, body: memoryview) -> Any:
    """What kio makes of a body that the hand-written codec has taken; None if it is only stricter."""
    try:
        return decode_request(api_key, version, body, BODY_POSITION)
    except MalformedRequest as problem:
        if any(reason in str(problem) for reason in _STRICTER):
            return None
        raise


def _milliseconds(time: timedelta) -> int:
    return round(time.total_seconds() * 1_000)


def _topic_of(topic: Any, name_field: str) -> str | bytes:
    """The topic's name, or its id, of which kio reads zeros as None."""
    if hasattr(topic, name_field):
        name: str = getattr(topic, name_field)
        return name
    return topic.topic_id.bytes if topic.topic_id is not None else bytes(16)


def fitted_batch(data: bytes) -> bytearray:
    """The batch behind a first byte that says what of it is made to fit: length, checksum, compression."""
    batch = bytearray(data[1:])
    if len(batch) < BATCH_HEADER_SIZE:
        return batch
    flags = data[0]
    codec = batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK
    if flags & IS_PACKED and codec <= ZSTD:
        batch[BATCH_HEADER_SIZE:] = compress(codec, batch[BATCH_HEADER_SIZE:])
    if flags & FITS_LENGTH:
        _LENGTH.pack_into(batch, LENGTH, len(batch) - LENGTH_OVERHEAD)
    return with_crc(batch) if flags & FITS_CRC else batch


_SETTINGS = (
    make_settings(),
    make_settings(max_message_bytes=100),
    make_settings(message_timestamp_type="LogAppendTime"),
    make_settings(message_timestamp_before_max_ms=1, message_timestamp_after_max_ms=1),
)


def fuzz_header(data: bytes) -> None:
    """A batch: what recovery and what a topic asks of its header; whatever is admitted, recovery takes."""
    if not data:
        return
    batch = fitted_batch(data)
    view = memoryview(batch)
    try:
        found = check_whole(view, 0, len(view))
    except CorruptBatch:
        found = None
    try:
        header, *_ = admit(view, 0, len(view), _SETTINGS[data[0] % len(_SETTINGS)], NOW_MS)
    except RefusedBatch:
        return
    assert header == found
    assert header.size == len(batch) and header.record_count == header.last_offset_delta + 1 > 0
    assert not header.is_control and -1 <= header.last_sequence < 2**31


def _find(batch: bytearray) -> None:
    found = find_timestamp(batch, NOW_MS, 0)
    assert found is None or (NOW_MS <= found[0] < 2**63 and 0 <= found[1] < 2**63)


_READERS: tuple[Callable[[bytearray], object], ...] = (
    _find,
    read_marker,
    lambda batch: recompress(batch, ZSTD, UNFOLDED_SIZE_MAX),
)


def fuzz_records(data: bytes) -> None:
    """A batch: everything that looks inside one; another codec changes nothing of what is inside."""
    if not data:
        return
    batch = fitted_batch(data)
    for read in _READERS:
        try:
            read(batch)
        except CorruptBatch:
            pass
    try:
        records = read_records(batch, UNFOLDED_SIZE_MAX)
    except CorruptBatch:
        return
    if len(batch) > BATCH_HEADER_SIZE:
        assert read_records(recompress(batch, data[0] % (ZSTD + 1))) == records


def fuzz_telemetry(data: bytes) -> None:
    """Metrics that a client pushes."""
    try:
        points = decode_metrics(data)
    except CorruptBatch:
        return
    for point in points:
        assert len(point.labels) <= OTLP_LABELS_MAX and len(point.name) <= OTLP_NAME_LENGTH_MAX + len(
            ".count"
        )
