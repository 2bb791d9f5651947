"""The log: appending, rolling, reading across segments, transactions, flushing."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from tests.log.making import (
    NOW_MS,
    append,
    append_marker,
    find_timestamp,
    flush,
    make_batch,
    open_new,
    read_bytes,
    read_log,
    refusal,
    reopen,
    split,
)
from tidelog.log.log import Log
from tidelog.log.replica import truncate
from tidelog.log.segment import Segment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker, build_control_batch, read_records


def test_offsets_are_given_in_order_without_gaps(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    appended = [append(log, make_batch(count)) for count in (1, 3, 2)]
    assert [(a.base_offset, a.end_offset) for a in appended] == [(0, 1), (1, 4), (4, 6)]
    assert log.end_offset == 6


def test_the_bytes_kept_are_the_producer_s_but_for_offset_and_epoch(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch())
    sent = make_batch(2, codec=4)
    original = bytes(sent)
    append(log, sent, epoch=7)
    kept = read_bytes(log, 1)
    assert kept[8:12] == original[8:12] and kept[16:] == original[16:]
    header = split(kept)[0][0]
    assert (header.base_offset, header.leader_epoch) == (1, 7)


def test_log_append_time_stamps_the_header_and_keeps_the_checksum_right(tmp_path: Path) -> None:
    log = open_new(tmp_path, message_timestamp_type="LogAppendTime")
    appended = append(log, make_batch(2, timestamp=5), now_ms=NOW_MS + 9)
    kept = read_bytes(log, 0)
    header = split(kept)[0][0]
    assert appended.append_time_ms == header.max_timestamp == NOW_MS + 9
    assert header.uses_append_time and header.crc == crc32c(kept[21:])
    assert [record.timestamp for record in read_records(kept)] == [NOW_MS + 9] * 2


def test_create_time_leaves_the_timestamps_alone(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    assert append(log, make_batch(2, timestamp=NOW_MS - 50)).append_time_ms == -1
    kept = read_bytes(log, 0)
    assert [record.timestamp for record in read_records(kept)] == [NOW_MS - 50, NOW_MS - 49]


def test_recompression_keeps_records_offsets_and_checksum(tmp_path: Path) -> None:
    log = open_new(tmp_path, compression_type="zstd")
    append(log, make_batch())
    append(log, make_batch(5, value=b"x" * 100, codec=1))
    kept = read_bytes(log, 1)
    header = split(kept)[0][0]
    assert header.codec == 4 and header.crc == crc32c(kept[21:])
    assert [record.offset for record in read_records(kept)] == [1, 2, 3, 4, 5]
    assert {record.value for record in read_records(kept)} == {b"x" * 100}


def test_a_segment_rolls_before_it_would_exceed_its_size(tmp_path: Path) -> None:
    size = len(make_batch())
    log = open_new(tmp_path, segment_bytes=20 * size)
    for _ in range(20):
        append(log, make_batch())
    assert log.bases == [0] and log.active.size == 20 * size
    append(log, make_batch())
    assert log.bases == [0, 20] and log.active.size == size


def test_a_segment_rolls_when_a_record_is_too_much_younger_than_its_first(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_ms=1_000)
    append(log, make_batch(timestamp=NOW_MS))
    append(log, make_batch(timestamp=NOW_MS + 1_000))
    assert log.bases == [0]
    append(log, make_batch(timestamp=NOW_MS + 1_001))
    assert log.bases == [0, 2]


def test_without_timestamps_a_segment_rolls_by_the_clock(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_ms=1_000)
    append(log, make_batch(timestamp=-1))
    append(log, make_batch(timestamp=-1), now_ms=NOW_MS + 1_000)
    assert log.bases == [0]
    append(log, make_batch(timestamp=-1), now_ms=NOW_MS + 1_001)
    assert log.bases == [0, 2]


def test_a_segment_rolls_when_its_offset_index_is_full(tmp_path: Path) -> None:
    log = open_new(tmp_path, index_interval_bytes=0, segment_index_bytes=40)
    for _ in range(13):
        append(log, make_batch(timestamp=NOW_MS))
    assert log.bases == [0, 6, 12], "the first batch has no entry, then five fit"


def test_the_time_index_has_room_for_the_entry_of_the_seal(tmp_path: Path) -> None:
    log = open_new(tmp_path, index_interval_bytes=0, segment_index_bytes=48)
    for number in range(9):
        append(log, make_batch(timestamp=NOW_MS + number))
    assert log.bases == [0, 4, 8]
    assert [(tmp_path / f"{base:020}.timeindex").stat().st_size for base in (0, 4)] == [36, 36]


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_new(tmp_path, index_interval_bytes=0)
    batches = [make_batch(3) for _ in range(10)]
    for batch in batches:
        append(log, batch)
    for offset in range(30):
        assert read_bytes(log, offset, max_bytes=1) == bytes(batches[offset // 3]), offset


def test_reads_cross_from_one_segment_to_the_next(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_bytes=1_024)
    batches = [make_batch(2) for _ in range(40)]
    for batch in batches:
        append(log, batch)
    assert len(log.segments) > 3
    assert read_log(log) == b"".join(batches)


def test_a_read_ends_before_the_first_batch_that_reaches_the_bound(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    batches = [make_batch(3) for _ in range(5)]
    for batch in batches:
        append(log, batch)
    assert read_bytes(log, 0, bound_offset=6) == b"".join(batches[:2])
    assert read_bytes(log, 0, bound_offset=8) == b"".join(batches[:2]), "a batch is seen whole or not"
    assert read_bytes(log, 7, bound_offset=8) == b""
    assert read_bytes(log, 7, bound_offset=9) == bytes(batches[2])
    assert read_bytes(log, 15) == b"" and read_bytes(log, 99) == b""


def test_a_bound_in_the_middle_of_the_second_segment_cuts_there(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_bytes=1_024)
    batches = [make_batch() for _ in range(30)]
    for batch in batches:
        append(log, batch)
    second = log.bases[1]
    assert read_bytes(log, second, bound_offset=second + 4) == b"".join(batches[second : second + 4])
    assert read_bytes(log, 0, bound_offset=second + 4) == b"".join(batches[:second])


def test_the_first_batch_comes_whole_even_if_it_is_too_large(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    batch = make_batch(value=b"x" * 500)
    append(log, batch)
    assert read_bytes(log, 0, max_bytes=10) == bytes(batch)
    assert log.read(0, 1, 10, at_least_one=False) is None


def test_the_last_batch_of_a_read_may_be_cut(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    batches = [make_batch(), make_batch()]
    for batch in batches:
        append(log, batch)
    assert read_bytes(log, 0, max_bytes=len(batches[0]) + 10) == bytes(batches[0] + batches[1][:10])


def test_a_timestamp_is_found_at_the_first_record_that_has_it_or_more(tmp_path: Path) -> None:
    log = open_new(tmp_path, index_interval_bytes=0, segment_bytes=1_024)
    for number in range(60):
        append(log, make_batch(timestamp=NOW_MS + 10 * number))
    assert len(log.segments) > 2
    for number in range(60):
        assert find_timestamp(log, NOW_MS + 10 * number - 1, 60) == (NOW_MS + 10 * number, number)
    assert find_timestamp(log, NOW_MS + 591, 60) is None
    assert find_timestamp(log, NOW_MS + 590, 59) is None, "it lies at the bound"


def test_a_timestamp_inside_a_compressed_batch_is_found(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(10, timestamp=NOW_MS, codec=2))
    assert find_timestamp(log, NOW_MS + 4, 10) == (NOW_MS + 4, 4)


def test_a_timestamp_below_the_log_start_does_not_hide_later_ones(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    records = make_batch(2, timestamp=NOW_MS + 100)
    append(log, records)
    append(log, make_batch(2, timestamp=NOW_MS + 101))
    log.advance_start(2)
    assert find_timestamp(log, NOW_MS + 100, 4) == (NOW_MS + 101, 2)
    log.advance_start(3)
    assert find_timestamp(log, NOW_MS + 100, 4) == (NOW_MS + 102, 3)


def test_the_largest_timestamp_is_found_at_its_first_record(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_bytes=1_024)
    for number in (3, 9, 4, 9, 1):
        append(log, make_batch(timestamp=NOW_MS + number, value=b"x" * 400))
    assert len(log.segments) > 1
    assert find_timestamp(log, None, log.end_offset) == (NOW_MS + 9, 1)
    assert find_timestamp(open_new(tmp_path / "empty"), None, 0) is None


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(2))
    append(log, make_batch(producer_id=1, transactional=True))
    append(log, make_batch(producer_id=2, transactional=True))
    assert log.last_stable_offset(log.end_offset) == 2
    append_marker(log, Marker.COMMIT, 1)
    assert log.last_stable_offset(log.end_offset) == 3
    append_marker(log, Marker.ABORT, 2)
    assert log.last_stable_offset(log.end_offset) == log.end_offset == 6


def test_a_marker_above_the_high_watermark_decides_nothing_yet(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=1, transactional=True))
    append_marker(log, Marker.COMMIT, 1)
    assert log.last_stable_offset(1) == 0
    assert log.last_stable_offset(2) == 2


def test_aborted_transactions_are_told_to_readers_of_their_range(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=1, transactional=True))  # 0
    append(log, make_batch(producer_id=2, transactional=True))  # 1
    append_marker(log, Marker.ABORT, 2)  # 2
    append_marker(log, Marker.ABORT, 1)  # 3
    append(log, make_batch())  # 4
    told = log.aborted_between(0, 5)
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in told] == [(1, 0, 3), (2, 1, 2)]
    assert [a.last_stable_offset for a in told] == [4, 0]
    assert [a.producer_id for a in log.aborted_between(3, 5)] == [1]
    assert log.aborted_between(4, 5) == [] and [a.producer_id for a in log.aborted_between(0, 1)] == [1]


def test_an_abort_in_a_later_segment_is_told_to_readers_of_the_first(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=1, transactional=True))
    log.roll(NOW_MS)
    append_marker(log, Marker.ABORT, 1)
    assert [a.first_offset for a in log.aborted_between(0, 1)] == [0]
    assert (tmp_path / f"{1:020}.txnindex").stat().st_size == 34
    assert not (tmp_path / f"{0:020}.txnindex").exists()


def test_clients_may_not_send_markers(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    assert refusal(log, build_control_batch(Marker.COMMIT, 1, 0, 0, NOW_MS)) == ErrorCode.invalid_record


def test_a_marker_of_a_replaced_producer_or_coordinator_is_refused(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=1, producer_epoch=3, transactional=True))
    append_marker(log, Marker.COMMIT, 1, producer_epoch=3, coordinator_epoch=5)
    for producer_epoch, coordinator_epoch, code in (
        (2, 5, ErrorCode.invalid_producer_epoch),
        (3, 4, ErrorCode.transaction_coordinator_fenced),
    ):
        marked = append_marker(
            log, Marker.COMMIT, 1, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
        )
        assert marked.code == code


def test_a_flush_moves_the_recovery_point_to_where_it_began(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch())
    job = log.begin_flush()
    append(log, make_batch())
    job.run()
    job.release()
    assert log.recovery_point == 0
    log.end_flush(job, NOW_MS)
    assert log.recovery_point == 1


def test_room_kept_for_a_segment_is_given_back_when_that_is_sealed_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(Segment, "trim", lambda segment: trimmed.append(segment.base_offset))
    log = open_new(tmp_path)
    for _ in range(2):
        append(log, make_batch())
        log.roll(NOW_MS)
    append(log, make_batch())
    job = log.begin_flush()
    for _ in range(2):
        log.roll(NOW_MS)
        append(log, make_batch())
    assert trimmed == []
    job.run()
    job.release()
    log.end_flush(job, NOW_MS)
    assert trimmed == [0, 1, 2], "what the job did not have is not durable"


def test_a_slice_outlives_the_removal_of_its_segment(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    batch = make_batch()
    append(log, batch)
    log.roll(NOW_MS)
    held = log.read(0, 1, 1_000)
    assert held is not None
    for name in log.remove_segments(1):
        (tmp_path / name).unlink()
    assert held.read() == bytes(batch)
    held.release()


def test_the_epoch_of_each_leadership_is_noted_where_it_began(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for epoch in (2, 2, 5):
        append(log, make_batch(), epoch=epoch)
    assert log.epochs.entries() == [(2, 0), (5, 2)]
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 2\n"


def test_closed_cleanly_and_opened_the_log_goes_on(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(2))
    flush(log)
    log.close(clean=True)
    log, _ = reopen(tmp_path, recovery_point=2, is_clean=True)
    assert append(log, make_batch()).base_offset == 2


def test_a_new_log_begins_at_the_offset_it_is_given(tmp_path: Path) -> None:
    log, _ = reopen(tmp_path, start_offset=100)
    assert append(log, make_batch()).base_offset == 100
    assert log.start_offset == 100


def searched(log: Log, offset: int) -> bytes:
    """All from that offset to the end of the last segment, found by its index."""
    place = log.active.locate(offset)
    assert place is not None
    return log.active.file.read(place.position, log.active.size - place.position)


def test_whoever_reads_on_from_the_end_gets_what_a_search_would_find(tmp_path: Path) -> None:
    log = open_new(tmp_path, segment_bytes=1_024)
    for number in range(40):
        start = log.end_offset
        append(log, make_batch(1, value=b"%d" % number))
        assert read_bytes(log, start) == read_bytes(log, start) == searched(log, start)


def test_whoever_reads_on_where_the_log_was_cut_gets_what_is_there_now(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(1))
    append(log, make_batch(1))
    read_bytes(log, 0)
    truncate(log, 1, NOW_MS)
    append(log, make_batch(1, value=b"longer than what was there" * 2))
    append(log, make_batch(1, value=b"the last one"))
    assert read_bytes(log, 2) == searched(log, 2)


def test_a_tail_that_is_longer_than_asked_for_is_given_in_parts(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(1))
    read_bytes(log, 0)
    for _ in range(3):
        append(log, make_batch(1))
    whole = searched(log, 1)
    size = len(whole) // 3
    assert read_bytes(log, 1, max_bytes=size) == whole[:size]
    assert log.read(1, log.end_offset, 10, at_least_one=False) is None
