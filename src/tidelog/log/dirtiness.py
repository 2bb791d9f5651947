"""What of a log a round of compaction would read, and how much of that is dirty: not cleaned before.

Only whole sealed segments are cleaned, those that were cleaned before too. Dirty begins at the cleaner's
checkpoint, else at the log start. As Kafka's `LogToClean` counts it: a segment that is dirty in part is dirty
whole, and its bytes are among the clean ones as well.

**Invariant:** nothing at or above the bound is read by a round.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tidelog.base.config import Compaction
from tidelog.log.compaction.request import CleaningRequest, LiveProducer, Source
from tidelog.log.log import Log
from tidelog.log.producers import NO_OFFSET


class Dirtiness(NamedTuple):
    segment_count: int  # that a round would read
    dirty_offset: int
    end_offset: int
    clean_size: int
    dirty_size: int
    delay_ms: int  # how long the oldest dirty record has waited beyond max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        size = self.clean_size + self.dirty_size
        return self.dirty_size / size if size else 0.0


def assess(log: Log, bound_offset: int, compaction: Compaction, now_ms: int) -> Dirtiness:
    """Of the segments that end at or below the bound, the high watermark or what else limits a round."""
    dirty_offset = max(log.cleaned_offset, log.start_offset)
    place = max(bisect_right(log.bases, dirty_offset) - 1, 0)
    count = min(bisect_right(log.bases, bound_offset), len(log.bases)) - 1
    if compaction.min_lag_ms > 0:
        young = (
            number
            for number in range(place, count)
            if log.segments[number].largest_timestamp.timestamp > now_ms - compaction.min_lag_ms
        )
        count = next(young, count)
    count = max(count, 0)
    end_offset = log.bases[count]
    is_dirty = end_offset > dirty_offset
    dirty = log.segments[place:count] if is_dirty else []
    clean_size = sum(segment.size for segment in log.segments[:count] if segment.base_offset < dirty_offset)
    delay_ms = max((_delay_ms(log, number, compaction, now_ms) for number in range(place, count)), default=0)
    dirty_size = sum(segment.size for segment in dirty)
    return Dirtiness(count, min(dirty_offset, end_offset), end_offset, clean_size, dirty_size, delay_ms)


def _delay_ms(log: Log, place: int, compaction: Compaction, now_ms: int) -> int:
    if compaction.max_lag_ms >= now_ms:
        return 0
    first = log.segments[place].first_timestamp()
    return max(now_ms - compaction.max_lag_ms - first, 0) if first is not None and first > 0 else 0


def is_idle(log: Log, compaction: Compaction, now_ms: int) -> bool:
    """Whether the active segment has records that must be compacted by now: it is to be rolled. History
    that is written today has waited no longer than its segment is there."""
    active, oldest_ms = log.active, now_ms - compaction.max_lag_ms
    if not active.size or active.created_ms >= oldest_ms:
        return False
    first = active.first_timestamp()
    return first is not None and 0 <= first < oldest_ms


def request_round(
    log: Log,
    found: Dirtiness,
    compaction: Compaction,
    now_ms: int,
    memory_max: int,
    bytes_per_second: float,
    hash_seed: int,
) -> CleaningRequest:
    settings = log.settings
    return CleaningRequest(
        tuple(
            Source(segment.base_offset, segment.size, segment.file.modified_ms())
            for segment in log.segments[: found.segment_count]
        ),
        found.dirty_offset,
        found.end_offset,
        tuple(
            LiveProducer(
                each.producer_id, each.epoch, each.recent[-1].last_offset if each.recent else NO_OFFSET
            )
            for each in log.producers
        ),
        tuple(entry for base in log.bases if base in log.aborted for entry in log.aborted[base].entries),
        now_ms,
        compaction.delete_retention_ms,
        settings.segment_bytes,
        settings.segment_index_bytes,
        settings.index_interval_bytes,
        memory_max,
        bytes_per_second,
        hash_seed,
    )
