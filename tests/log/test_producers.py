"""Idempotent producers (P8): repeats, gaps, fences, wraps, snapshots, expiry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, append_marker, make_batch, open_new, refusal, reopen
from tidelog.base import limits
from tidelog.log import producers as producers_module
from tidelog.log.format.snapshot import decode_snapshot
from tidelog.log.log import Log
from tidelog.log.producers import Producers
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker

OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
LAST_SEQUENCE = 2**31 - 1


def send(log: Log, sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, bool]:
    appended = append(log, make_batch(count, producer_id=7, producer_epoch=epoch, sequence=sequence))
    return appended.base_offset, appended.is_duplicate


def test_a_repeat_of_the_last_five_batches_gets_the_original_offset(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(10))
    for number in range(6):
        assert send(log, 2 * number, count=2) == (10 + 2 * number, False)
    for number in range(1, 6):
        assert send(log, 2 * number, count=2) == (10 + 2 * number, True)
    assert log.end_offset == 22
    assert refusal(log, make_batch(2, producer_id=7, sequence=0)) == OUT_OF_ORDER


def test_a_gap_is_refused_and_so_is_a_batch_that_only_overlaps(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    send(log, 0, count=3)
    for sequence, count in ((4, 1), (2, 1), (0, 2), (1, 3)):
        assert refusal(log, make_batch(count, producer_id=7, sequence=sequence)) == OUT_OF_ORDER
    assert send(log, 3) == (3, False)


def test_an_unknown_producer_may_begin_anywhere(tmp_path: Path) -> None:
    assert send(open_new(tmp_path), 41) == (0, False)


def test_a_new_epoch_begins_at_sequence_0_and_fences_the_old_one(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    send(log, 0)
    assert refusal(log, make_batch(producer_id=7, producer_epoch=1, sequence=1)) == OUT_OF_ORDER
    assert send(log, 0, epoch=1) == (1, False)
    stale = make_batch(producer_id=7, producer_epoch=0, sequence=1)
    assert refusal(log, stale) == ErrorCode.invalid_producer_epoch


def test_after_a_marker_that_raised_the_epoch_the_first_sequence_is_0(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    append_marker(log, Marker.ABORT, 7, producer_epoch=1)
    assert refusal(log, make_batch(producer_id=7, producer_epoch=1, sequence=4)) == OUT_OF_ORDER
    assert send(log, 0, epoch=1) == (2, False)


def test_sequences_wrap_from_the_largest_to_0(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    assert send(log, LAST_SEQUENCE - 1, count=3) == (0, False)
    assert log.producers.get(7) is not None
    assert refusal(log, make_batch(producer_id=7, sequence=0)) == OUT_OF_ORDER
    assert send(log, 1) == (3, False)
    assert send(log, LAST_SEQUENCE - 1, count=3) == (0, True)


def test_a_batch_that_ends_at_the_largest_sequence_is_followed_by_0(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    send(log, LAST_SEQUENCE)
    assert send(log, 0) == (1, False)


def test_a_batch_outside_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=7, transactional=True))
    assert refusal(log, make_batch(producer_id=7, sequence=1)) == ErrorCode.invalid_txn_state


def test_a_repeat_tells_the_time_of_the_first_append(tmp_path: Path) -> None:
    log = open_new(tmp_path, message_timestamp_type="LogAppendTime")
    append(log, make_batch(producer_id=7), now_ms=NOW_MS + 1)
    repeated = append(log, make_batch(producer_id=7), now_ms=NOW_MS + 5)
    assert (repeated.is_duplicate, repeated.append_time_ms) == (True, NOW_MS + 1)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_rolled", [True, False])
def test_all_five_are_known_again_after_a_restart(tmp_path: Path, is_clean: bool, is_rolled: bool) -> None:
    log = open_new(tmp_path)
    for sequence in range(8):
        send(log, sequence)
    if is_rolled:
        log.roll(NOW_MS)
    log.close(clean=is_clean)
    log, _ = reopen(tmp_path, recovery_point=8 if is_clean else 0, is_clean=is_clean)
    assert [send(log, sequence) for sequence in range(3, 8)] == [(n, True) for n in range(3, 8)]
    assert send(log, 8) == (8, False)
    assert refusal(log, make_batch(producer_id=7, sequence=20)) == OUT_OF_ORDER


def test_state_is_the_snapshot_plus_the_log_behind_it(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    send(log, 0)
    append(log, make_batch(producer_id=8, transactional=True))
    log.roll(NOW_MS)
    send(log, 1)
    append_marker(log, Marker.COMMIT, 8, coordinator_epoch=3)
    append(log, make_batch(producer_id=9, transactional=True))
    log.close(clean=False)
    log, _ = reopen(tmp_path, recovery_point=3)
    assert send(log, 2) == (5, False)
    committed = log.producers.get(8)
    assert committed is not None
    assert (committed.coordinator_epoch, committed.transaction_offset) == (3, -1)
    assert log.producers.first_open_offset() == 4


def test_a_producer_that_was_idle_too_long_is_forgotten(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(producer_id=7))
    append(log, make_batch(producer_id=8, transactional=True))
    for uptime_ms in (50, 1_049):
        log.producers.expire(uptime_ms, 1_000)
        assert len(log.producers) == 2
    log.producers.expire(1_050, 1_000)
    assert [producer.producer_id for producer in log.producers] == [8], "its transaction is open"


def test_a_producer_of_old_records_is_known_while_it_writes(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for number in range(5):
        append(log, make_batch(producer_id=7, sequence=number, timestamp=1_000))
        log.producers.expire(900 * number, 1_000)
        assert append(log, make_batch(producer_id=7, sequence=number, timestamp=1_000)).is_duplicate
    append_marker(log, Marker.COMMIT, 7, timestamp=1_001)
    log.producers.expire(4_500, 1_000)
    assert len(log.producers) == 1
    log.producers.expire(5_500, 1_000)
    assert len(log.producers) == 0


def test_the_number_of_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.PRODUCERS_PER_PARTITION_MAX == 100_000
    monkeypatch.setattr(producers_module, "PRODUCERS_PER_PARTITION_MAX", 3)
    producers = Producers()
    for producer_id in range(5):
        batch = make_batch(producer_id=producer_id, transactional=producer_id == 0)
        producers.update(read_header(batch), producer_id, NOW_MS)
    assert sorted(p.producer_id for p in producers) == [0, 3, 4], "the oldest without a transaction go"


def test_a_snapshot_holds_every_field_and_reads_back(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    send(log, 5, count=3, epoch=2)
    append(log, make_batch(producer_id=8, transactional=True))
    append_marker(log, Marker.COMMIT, 9, coordinator_epoch=4, timestamp=NOW_MS + 1)
    content = log.producers.encode()
    assert decode_snapshot(content) == [
        (7, 2, 7, 2, 2, NOW_MS + 2, -1, -1),
        (8, 0, 0, 3, 0, NOW_MS, -1, 3),
        (9, 0, -1, -1, 0, NOW_MS + 1, 4, -1),
    ]
    loaded = Producers()
    loaded.load(content, 5)
    assert loaded.encode() == content
    assert loaded.first_open_offset() == 3


def test_at_the_bound_the_producer_that_was_silent_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_PER_PARTITION_MAX", 3)
    producers = Producers()
    for offset, (producer_id, sequence) in enumerate([(1, 0), (2, 0), (3, 0), (1, 1), (4, 0)]):
        batch = make_batch(producer_id=producer_id, sequence=sequence)
        producers.update(read_header(batch), offset, NOW_MS)
    assert sorted(p.producer_id for p in producers) == [1, 3, 4], "the first that came has written since"
