"""What a producer's batch must be before it is appended (L3): the header checked in full.

The body stays opaque, but for two kinds of topic: a compacted one needs a key in every record, of which the
length is read, and one with a codec of its own gets its batches recompressed.

**Invariant:** a batch that is refused here has touched nothing; every refusal has Kafka's error code.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from crc32c import crc32c

from tidelog.base.config import TopicSettings
from tidelog.base.limits import BATCH_HEADER_SIZE, RECORD_ERRORS_MAX, RECORDS_READ_MAX
from tidelog.protocol.batch import (
    APPEND_TIME_BIT,
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    KNOWN_ATTRIBUTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    read_header,
)
from tidelog.protocol.compression import CODECS, ZSTD
from tidelog.protocol.errors import CorruptBatch, ErrorCode, RefusedBatch
from tidelog.protocol.records import Record, find_keyless, read_records, recompress

Admitted = tuple[BatchHeader, memoryview, int, int]

RECORD_SIZE_MIN = 7  # seven fields of at least a byte
LENGTH_LEGACY_MIN = 14  # of the smallest message of any magic

_CORRUPT = ErrorCode.corrupt_message
_INVALID = ErrorCode.invalid_record


class RefusedRecords(RefusedBatch):
    """A batch that is refused for some of its records: their places in it, each with the reason."""

    def __init__(self, code: int, reason: str, places: Iterable[int]) -> None:
        super().__init__(code, reason)
        self.record_errors: list[tuple[int, str | None]] = [
            (place, reason) for place in islice(places, RECORD_ERRORS_MAX)
        ]


def admit(view: memoryview, start: int, end: int, settings: TopicSettings, now_ms: int) -> Admitted:
    """The checked header of the batch and where its bytes are: as they came, or recompressed."""
    size = end - start
    if size < BATCH_HEADER_SIZE:
        raise RefusedBatch(_INVALID, f"a batch of {size} bytes is shorter than its header")
    header = read_header(view, start)
    if header.magic != 2 or header.length + LENGTH_OVERHEAD != size:
        _refuse_shape(header, size)
    if size > settings.max_message_bytes:
        raise RefusedBatch(
            ErrorCode.message_too_large,
            f"the batch of {size} bytes is larger than max.message.bytes={settings.max_message_bytes}",
        )
    if crc32c(view[start + ATTRIBUTES_POSITION : end]) != header.crc:
        raise RefusedBatch(_CORRUPT, "the batch's checksum does not match its content")
    _check_header(header)
    if not settings.uses_append_time and not _times_are_right(header, settings, now_ms):
        _refuse_times(view[start:end], settings, now_ms)
    if settings.is_compacted:
        _check_keys(view[start:end])
    if settings.codec_name != "producer" and CODECS[settings.codec_name] != header.codec:
        return _recompressed(view[start:end], CODECS[settings.codec_name], settings)
    return header, view, start, end


def _refuse_shape(header: BatchHeader, size: int) -> None:
    """Bytes that no batch could begin with are corrupt; what could be one is not what was asked for."""
    if header.length < LENGTH_LEGACY_MIN:
        raise RefusedBatch(_CORRUPT, f"batch length {header.length} is out of range")
    if not 0 <= header.magic <= 2:
        raise RefusedBatch(_CORRUPT, f"magic {header.magic} is unknown")
    left = size - header.length - LENGTH_OVERHEAD
    if left < 0:
        raise RefusedBatch(_INVALID, f"the batch says it has {size - left} bytes, not {size}")
    if header.magic != 2:
        raise RefusedBatch(_INVALID, f"magic {header.magic} is not accepted, only 2")
    if left >= LENGTH_OVERHEAD:
        raise RefusedBatch(_INVALID, "a produce request holds exactly one batch for a partition")
    raise RefusedBatch(_CORRUPT, f"{left} bytes follow the batch")


def _check_header(header: BatchHeader) -> None:
    count = header.record_count
    attributes = header.attributes
    if header.base_offset != 0:
        raise RefusedBatch(_INVALID, f"the base offset must be 0, not {header.base_offset}")
    if count <= 0 or header.last_offset_delta != count - 1:
        raise RefusedBatch(
            _INVALID, f"{count} records do not match a last offset delta of {header.last_offset_delta}"
        )
    if not attributes & CODEC_MASK and count * RECORD_SIZE_MIN > header.size - BATCH_HEADER_SIZE:
        raise RefusedBatch(_INVALID, f"{count} records do not fit in {header.size} bytes")
    if attributes & APPEND_TIME_BIT:
        reason = "timestamp type LogAppendTime is set by the broker alone"
        raise RefusedRecords(ErrorCode.invalid_timestamp, reason, range(count))
    if attributes & CONTROL_BIT:
        raise RefusedBatch(_INVALID, "clients may not write control records")
    if attributes & (~KNOWN_ATTRIBUTES | DELETE_HORIZON_BIT) or attributes & CODEC_MASK > ZSTD:
        raise RefusedBatch(_INVALID, f"attributes {attributes:#06x} are reserved for the broker")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise RefusedBatch(
            _INVALID, f"producer {header.producer_id} sent no epoch or no sequence with its batch"
        )


def _times_are_right(header: BatchHeader, settings: TopicSettings, now_ms: int) -> bool:
    oldest = header.base_timestamp
    return header.max_timestamp - now_ms <= settings.timestamp_after_max_ms and (
        oldest < 0 or now_ms - oldest <= settings.timestamp_before_max_ms
    )


def _refuse_times(batch: memoryview, settings: TopicSettings, now_ms: int) -> None:
    after, before = settings.timestamp_after_max_ms, settings.timestamp_before_max_ms
    times = [record.timestamp for record in _read(batch)]
    wrong = (place for place, time in enumerate(times) if time >= 0 and not -after <= now_ms - time <= before)
    reason = f"a timestamp is more than {after} ms ahead of {now_ms} or {before} ms behind it"
    raise RefusedRecords(ErrorCode.invalid_timestamp, reason, wrong)


def _check_keys(batch: memoryview) -> None:
    """By the lengths in the records. Compaction reads no more of them: what passes here cannot stop it."""
    header = _countable(batch)
    try:
        without = find_keyless(batch, header)
    except CorruptBatch as error:
        raise RefusedBatch(_CORRUPT, str(error)) from None
    if without:
        raise RefusedRecords(_INVALID, "a compacted topic needs a key in every record", without)


def _countable(batch: memoryview) -> BatchHeader:
    """A kilobyte can unfold to a million records, and each takes its time on the loop."""
    header = read_header(batch, 0)
    if header.record_count > RECORDS_READ_MAX:
        limit = f"the limit of {RECORDS_READ_MAX} where each is validated"
        reason = f"a batch of {header.record_count} records exceeds {limit}"
        raise RefusedBatch(ErrorCode.message_too_large, reason)
    return header


def _read(batch: memoryview) -> list[Record]:
    _countable(batch)
    try:
        return read_records(batch)
    except CorruptBatch as error:
        raise RefusedBatch(_CORRUPT, str(error)) from None


def _recompressed(batch: memoryview, codec: int, settings: TopicSettings) -> Admitted:
    try:
        rewritten = recompress(batch, codec, level=settings.codec_level)
    except CorruptBatch as error:
        raise RefusedBatch(_CORRUPT, str(error)) from None
    if len(rewritten) > settings.max_message_bytes:
        raise RefusedBatch(
            ErrorCode.message_too_large,
            f"recompressed, the batch of {len(rewritten)} bytes is larger than "
            f"max.message.bytes={settings.max_message_bytes}",
        )
    view = memoryview(rewritten)
    return read_header(view), view, 0, len(rewritten)
