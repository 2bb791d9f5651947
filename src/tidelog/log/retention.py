"""Which of the oldest segments may go: by age, by size, or because the log now starts behind them (L7).

**Invariant:** a record at or above the high watermark is never removed.
"""

from __future__ import annotations

from tidelog.log.log import Log
from tidelog.log.segment import Segment


def expired_count(log: Log, high_watermark: int, now_ms: int, is_bound: bool = False) -> int:
    """How many of the oldest segments may go. Where a leader or a state machine decides what is needed, only
    those below the log start."""
    has_limits = log.settings.is_deleted and not is_bound
    count = max(
        _count_below_start(log),
        _count_by_age(log, now_ms) if has_limits else 0,
        _count_by_size(log) if has_limits else 0,
    )
    while count and _end_of(log, count - 1) > high_watermark:
        count -= 1
    return count


def _end_of(log: Log, place: int) -> int:
    return log.bases[place + 1] if place + 1 < len(log.bases) else log.end_offset


def _count_below_start(log: Log) -> int:
    count = 0
    while count + 1 < len(log.segments) and log.bases[count + 1] <= log.start_offset:
        count += 1
    return count


def _count_by_age(log: Log, now_ms: int) -> int:
    retention_ms = log.settings.retention_ms
    if retention_ms < 0:
        return 0
    count = 0
    for segment in log.segments:
        if segment.size == 0 or now_ms - _newest_ms(segment) <= retention_ms:
            break
        count += 1
    return count


def _newest_ms(segment: Segment) -> int:
    largest = segment.largest_timestamp.timestamp
    return largest if largest >= 0 else segment.file.modified_ms()


def _count_by_size(log: Log) -> int:
    limit = log.settings.retention_bytes
    if limit < 0:
        return 0
    excess = log.size - limit
    count = 0
    for segment in log.segments:
        if segment.size == 0 or excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count
