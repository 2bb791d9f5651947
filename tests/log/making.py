"""Settings, batches and logs for the tests of the log engine, each in one line."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.base.files import Directory, DiskDirectory
from tidelog.log.format.names import LOG_SUFFIX, file_name
from tidelog.log.log import Appended, Log
from tidelog.log.markers import End, Marked, append_markers
from tidelog.log.pages import Unready
from tidelog.log.recovery import Recovery, open_log
from tidelog.log.replica import end_below, truncate
from tidelog.log.segment import TimestampOffset
from tidelog.log.time_search import TimeSearch
from tidelog.protocol.batch import BatchHeader, read_header
from tidelog.protocol.errors import ErrorCode, RefusedBatch
from tidelog.protocol.records import Marker, build_batch

NOW_MS = 1_700_000_000_000
OLD_PROTOCOL = 1  # of transactions: their markers look alike

_LENGTH = Struct(">i")


def make_settings(**overrides: int | str) -> TopicSettings:
    """A topic's settings: `segment_bytes=2000` is `segment.bytes=2000`; `was_compacted` is none."""
    was_compacted = bool(overrides.pop("was_compacted", False))
    named = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return TopicSettings(BrokerSettings({}), named, was_compacted)


def make_batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value: bytes = b"v" * 30,
    key: bytes | None = b"k",
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A producer's batch; with a producer id it is idempotent, from that sequence on."""
    return build_batch(
        [(key, value, (), timestamp + place) for place in range(count)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=max(sequence, 0) if producer_id >= 0 else -1,
        transactional=transactional,
    )


def append(log: Log, batch: bytearray, epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    return log.append(memoryview(batch), 0, len(batch), epoch, now_ms)


def append_marker(
    log: Log,
    marker: Marker,
    producer_id: int,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    version: int = OLD_PROTOCOL,
) -> Marked:
    end = End(producer_id, producer_epoch, marker, coordinator_epoch, version)
    (marked,) = append_markers(log, [end], epoch, timestamp)
    return marked


def refusal(log: Log, batch: bytearray, now_ms: int = NOW_MS) -> ErrorCode:
    """The error code with which the log refuses the batch; fails if it takes it or changes by it."""
    before = (log.end_offset, log.size)
    try:
        append(log, batch, now_ms=now_ms)
    except RefusedBatch as refused:
        assert (log.end_offset, log.size) == before
        return ErrorCode(refused.code)
    raise AssertionError("the batch was not refused")


def open_new(folder: Path, **overrides: int | str) -> Log:
    log, _ = reopen(folder, 0, 0, False, 0, **overrides)
    return log


def reopen(
    folder: Path,
    recovery_point: int = 0,
    start_offset: int = 0,
    is_clean: bool = False,
    high_watermark: int = 0,
    **overrides: int | str,
) -> tuple[Log, Recovery]:
    return open_log(
        DiskDirectory(str(folder)),
        make_settings(**overrides),
        NOW_MS,
        recovery_point,
        start_offset,
        is_clean,
        high_watermark=high_watermark,
    )


def flush(log: Log) -> None:
    """All that the shell does for one fsync."""
    job = log.begin_flush()
    job.run()
    job.release()
    log.end_flush(job, NOW_MS)


def cut(log: Log, offset: int) -> list[str]:
    """Cut a log as a follower does, durably; the renamed files."""
    names: list[str] = []
    while end_below(log, offset) < log.end_offset:
        names += truncate(log, offset, NOW_MS)
        flush(log)
    return names


def read_bytes(log: Log, offset: int, bound_offset: int | None = None, max_bytes: int = 1 << 30) -> bytes:
    """What one read yields, as bytes; none if there is nothing."""
    found = log.read(offset, log.end_offset if bound_offset is None else bound_offset, max_bytes)
    if found is None:
        return b""
    try:
        return found.read()
    finally:
        found.release()


def find_timestamp(log: Log, timestamp: int | None, bound_offset: int) -> TimestampOffset | None:
    """What a search by time ends with."""
    search = TimeSearch(log, timestamp, bound_offset)
    is_done = False
    while not is_done:
        try:
            is_done = search.step()
        except Unready as lookup:
            lookup.step()
    return search.found


def read_log(log: Log) -> bytes:
    """The whole log, read as a consumer reads it: on from the last batch that came."""
    data = b""
    offset = log.start_offset
    while offset < log.end_offset:
        piece = read_bytes(log, offset)
        assert piece, f"nothing at {offset} below {log.end_offset}"
        data += piece
        offset = split(piece)[-1][0].last_offset + 1
    return data


def split(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches in `data`, by the lengths they announce."""
    found = []
    position = 0
    while position + 61 <= len(data):
        size = _LENGTH.unpack_from(data, position + 8)[0] + 12
        if position + size > len(data):
            break
        found.append((read_header(data, position), data[position : position + size]))
        position += size
    return found


def stored(directory: Directory, log: Log) -> list[tuple[BatchHeader, bytes]]:
    """The batches in the log's files, read without the log's help."""
    return [
        batch
        for base in log.bases
        for batch in split(directory.read_whole(file_name(base, LOG_SUFFIX)) or b"")
    ]
