"""Retention: by age, by size, by log start; never a record that is not committed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.log.making import NOW_MS, append, flush, make_batch, open_new, read_log, reopen
from tidelog.log.log import Log
from tidelog.log.retention import expired_count


def filled(folder: Path, **overrides: int | str) -> Log:
    """Four segments of one batch each, a second apart; the last one is active."""
    log = open_new(folder, **overrides)
    for number in range(4):
        if number:
            log.roll(NOW_MS)
        append(log, make_batch(2, timestamp=NOW_MS + 1_000 * number))
    return log


def remove_expired(log: Log, high_watermark: int, now_ms: int) -> list[str]:
    """All that the broker does for one log, with the flush that it may need."""
    count = expired_count(log, high_watermark, now_ms)
    if not count:
        return []
    if count == len(log.segments):
        log.roll(now_ms)
    if not log.may_remove(count):
        flush(log)
        assert log.may_remove(count)
    return log.remove_segments(count)


def test_segments_whose_newest_record_is_too_old_go(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=5_000)
    assert remove_expired(log, 8, NOW_MS + 5_001) == []
    removed = remove_expired(log, 8, NOW_MS + 5_002)
    assert log.start_offset == 2 and log.bases == [2, 4, 6]
    assert all(name.endswith(".deleted") and (tmp_path / name).exists() for name in removed)
    assert f"{0:020}.log.deleted" in removed


def test_the_active_segment_goes_too_once_it_is_too_old(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=5_000)
    remove_expired(log, 8, NOW_MS + 60_000)
    assert (log.bases, log.start_offset, log.end_offset, log.size) == ([8], 8, 8, 0)
    assert append(log, make_batch(timestamp=NOW_MS)).base_offset == 8


def test_a_young_segment_protects_the_older_ones_behind_it(tmp_path: Path) -> None:
    log = open_new(tmp_path, retention_ms=1_000)
    for timestamp in (NOW_MS + 9_000, NOW_MS):
        append(log, make_batch(timestamp=timestamp))
        log.roll(NOW_MS)
    assert remove_expired(log, 2, NOW_MS + 9_500) == []


def test_without_timestamps_the_age_of_the_file_counts(tmp_path: Path) -> None:
    log = open_new(tmp_path, retention_ms=1_000)
    append(log, make_batch(timestamp=-1))
    log.roll(NOW_MS)
    path = tmp_path / f"{0:020}.log"
    os.utime(path, ns=(NOW_MS * 10**6, NOW_MS * 10**6))
    assert remove_expired(log, 1, NOW_MS + 1_000) == []
    assert remove_expired(log, 1, NOW_MS + 1_001) != []


def test_retention_of_minus_one_keeps_everything(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1)
    assert remove_expired(log, 8, NOW_MS + 10**12) == []


def test_the_oldest_segments_go_while_the_rest_is_large_enough(tmp_path: Path) -> None:
    size = len(make_batch(2))
    for limit, left in ((4 * size, 4), (3 * size + 1, 4), (3 * size, 3), (2 * size, 2), (size, 1)):
        log = filled(tmp_path / str(limit), retention_ms=-1, retention_bytes=limit)
        remove_expired(log, 8, NOW_MS)
        assert len(log.segments) == left, limit


def test_segments_below_the_log_start_go_whatever_the_policy(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=-1, cleanup_policy="compact")
    log.advance_start(3)
    remove_expired(log, 8, NOW_MS)
    assert log.bases == [2, 4, 6] and log.start_offset == 3
    log.advance_start(4)
    remove_expired(log, 8, NOW_MS)
    assert log.bases == [4, 6]


def test_a_compacted_topic_forgets_nothing_by_age_or_size(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1, retention_bytes=1, cleanup_policy="compact")
    assert remove_expired(log, 8, NOW_MS + 10**9) == []


def test_compact_and_delete_together_do_both(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=1, cleanup_policy="compact,delete")
    remove_expired(log, 8, NOW_MS + 10**9)
    assert log.start_offset == 8


def test_what_is_at_or_above_the_high_watermark_stays(tmp_path: Path) -> None:
    for high_watermark, start in ((0, 0), (1, 0), (2, 2), (5, 4), (7, 6), (8, 8)):
        log = filled(tmp_path / str(high_watermark), retention_ms=1)
        remove_expired(log, high_watermark, NOW_MS + 10**9)
        assert log.start_offset == start, high_watermark


def test_what_is_left_reads_on(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=5_000)
    whole = read_log(log)
    remove_expired(log, 8, NOW_MS + 5_500)
    assert whole.endswith(read_log(log)) and read_log(log)
    assert log.epochs.entries() == [(0, 2)]


def test_a_crash_after_everything_has_expired_does_not_give_offsets_twice(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=5_000)
    remove_expired(log, 8, NOW_MS + 60_000)
    del log  # the process dies before the next append; nothing is closed
    log, _ = reopen(tmp_path, retention_ms=5_000)
    assert (log.start_offset, log.end_offset) == (8, 8)
    assert append(log, make_batch()).base_offset == 8
