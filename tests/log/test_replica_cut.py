"""A log whose end was cut: one that never had the rest; and one that begins anew."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.histories import (
    SETTINGS,
    STEPS,
    Leader,
    Step,
    answers,
    follow,
    gapped,
    give,
    new_log,
    reopened,
    stable_offsets,
    stopped,
)
from tests.log.making import NOW_MS, append, append_marker, cut, flush, make_batch, make_settings, read_log
from tidelog.base.config import TopicSettings
from tidelog.log.log import Log
from tidelog.log.replica import end_below, restart
from tidelog.protocol.records import Marker


@settings(deadline=None)
@given(SETTINGS, STEPS, st.data(), STEPS)
def test_a_cut_log_is_one_that_never_had_the_rest(
    topic: TopicSettings, steps: list[Step], data: st.DataObject, more: list[Step]
) -> None:
    log, expected = new_log(topic), new_log(topic)
    whole = Leader(log)
    for step in steps:
        whole.run([step])
        if data.draw(st.integers(0, 9)) == 0:
            flush(log)
    offset = data.draw(st.integers(0, log.end_offset))
    kept_count = max(place for place, end in enumerate(whole.ends) if end <= offset)
    half = Leader(expected)
    half.run(steps[:kept_count])
    assert end_below(log, offset) == expected.end_offset
    removed = cut(log, offset)
    assert all(log.directory.exists(name) and name.endswith(".deleted") for name in removed)
    assert log.recovery_point <= log.end_offset
    assert stable_offsets(log) == stable_offsets(expected)
    assert answers(reopened(log, log.recovery_point)) == answers(expected)
    assert answers(log) == answers(expected)
    half.logs = [log, expected]
    half.run(more)
    assert answers(log) == answers(expected)
    assert answers(reopened(log, log.recovery_point)) == answers(expected)
    assert answers(stopped(log)) == answers(expected)


def long_log() -> Log:
    """Thirty batches of two records in some segments; producer 1 has each third in a transaction."""
    log = new_log(make_settings(segment_bytes=1_024, index_interval_bytes=0))
    for number in range(30):
        batch = make_batch(
            2,
            value=bytes([number]) * 60,
            timestamp=NOW_MS + number,
            producer_id=-1 if number % 3 else 1,
            sequence=number // 3 * 2,
            transactional=number % 3 == 0,
        )
        append(log, batch, number // 4)
    assert len(log.bases) > 4
    return log


def test_an_offset_at_the_end_or_above_it_cuts_nothing() -> None:
    log = long_log()
    before = answers(log)
    for offset in (60, 61, 10**9):
        assert cut(log, offset) == [] and end_below(log, offset) == 60
    assert answers(log) == before


def test_a_batch_that_holds_the_offset_leaves_whole() -> None:
    log = long_log()
    cut(log, 41)
    assert log.end_offset == 40
    cut(log, 40)
    assert log.end_offset == 40


def test_everything_may_be_cut() -> None:
    log = long_log()
    cut(log, 1)
    assert (log.bases, log.start_offset, log.end_offset, log.size) == ([0], 0, 0, 0)
    assert (log.epochs.entries(), len(log.producers)) == ([], 0)
    assert append(log, make_batch(producer_id=1, sequence=0)).base_offset == 0
    assert reopened(log).end_offset == 1


def test_a_cut_below_the_first_segment_begins_there() -> None:
    log = long_log()
    log.advance_start(log.bases[2])
    first = log.bases[2]
    log.remove_segments(2)
    cut(log, first - 3)
    assert (log.bases, log.start_offset, log.end_offset) == ([first - 3], first - 3, first - 3)


def test_a_cut_below_the_log_start_takes_it_along() -> None:
    log = long_log()
    log.advance_start(log.bases[1] + 3)
    cut(log, log.bases[1] + 2)
    assert log.start_offset == log.end_offset == log.bases[1] + 2
    assert log.epochs.entries() == []
    log = long_log()
    log.advance_start(7)
    cut(log, 30)
    assert (log.start_offset, log.end_offset) == (7, 30)


def test_the_recovery_point_is_not_above_the_end_after_a_cut() -> None:
    log = long_log()
    flush(log)
    cut(log, 31)
    assert log.recovery_point == 30
    append(log, make_batch(), epoch=9)
    cut(log, 30)
    assert log.recovery_point == 30


def test_a_flush_that_was_under_way_says_nothing_about_what_is_written_after_the_cut() -> None:
    log = long_log()
    job = log.begin_flush()
    cut(log, 31)
    append(log, make_batch(9), epoch=9)
    job.run()
    job.release()
    log.end_flush(job, NOW_MS)
    assert job.end_offset == log.recovery_point == 30


def test_a_reader_keeps_the_bytes_of_a_segment_that_left_and_is_told_of_one_that_was_cut() -> None:
    log = long_log()
    left = log.read(log.bases[2], log.end_offset, 10**6)
    shorter = log.read(log.bases[1], log.end_offset, 10**6)
    whole = log.read(0, log.end_offset, 10**6)
    assert left is not None and shorter is not None and whole is not None
    before, kept = left.read(), whole.read()
    cut(log, log.bases[2] - 1)
    append(log, make_batch(value=b"other" * 50), epoch=9)
    assert left.is_valid() and left.read() == before
    assert not shorter.is_valid()
    assert whole.is_valid() and whole.read() == kept
    for records in (left, shorter, whole):
        records.release()


def test_a_cut_between_two_segments_leaves_the_first_as_it_is_for_its_readers() -> None:
    log = long_log()
    records = log.read(log.bases[1], log.end_offset, 10**6)
    assert records is not None
    cut(log, log.bases[2])
    assert records.is_valid()
    records.release()


@pytest.mark.parametrize("content", [None, b"", b"no snapshot"])
def test_without_good_snapshots_the_producers_are_read_from_the_log(content: bytes | None) -> None:
    log, expected = long_log(), long_log()
    for name in log.directory.names():
        if name.endswith(".snapshot"):
            log.directory.remove(name)
            if content is not None:
                log.directory.replace_whole(name, content)
    for each in (log, expected):
        cut(each, 45)
    assert answers(log) == answers(expected)


def test_an_offset_index_that_points_nowhere_does_not_move_the_cut() -> None:
    log = long_log()
    segment = log.segments[1]
    segment.offset_index.reset()
    for number in range(1, 12):
        segment.offset_index.append(number, 7 * number)
    cut(log, log.bases[1] + 7)
    expected = long_log()
    cut(expected, expected.bases[1] + 7)
    assert answers(log) == answers(expected)


def test_a_transaction_whose_end_was_cut_is_decided_by_its_new_end() -> None:
    log = new_log()
    append(log, make_batch(3, producer_id=1, sequence=0, transactional=True))
    append(log, make_batch(3))
    append_marker(log, Marker.ABORT, 1)
    cut(log, 4)
    assert log.last_stable_offset(3) == 0
    append_marker(log, Marker.COMMIT, 1)
    assert log.last_stable_offset(4) == 4
    assert log.aborted_between(0, 4) == []


def test_a_transaction_aborted_above_the_cut_is_not_aborted_after_a_clean_stop() -> None:
    log = new_log()
    for _ in range(3):
        append(log, make_batch(producer_id=1, sequence=log.end_offset // 2, transactional=True))
        append_marker(log, Marker.ABORT, 1)
    kept = log.aborted_between(0, 2)
    cut(log, 3)
    assert log.aborted_between(0, 10) == kept != []
    assert stopped(log).aborted_between(0, 10) == kept


def test_a_producer_that_repeats_all_it_had_in_flight_is_known_after_a_cut() -> None:
    log = long_log()
    cut(log, log.bases[4] + 2)
    producer = log.producers.get(1)
    assert producer is not None
    for sequence in range(producer.last_sequence - 3, producer.last_sequence, 2):
        repeated = make_batch(2, producer_id=1, sequence=sequence, transactional=True)
        assert append(log, repeated).is_duplicate


def test_snapshots_above_the_cut_are_gone() -> None:
    log = long_log()
    log.write_snapshot()
    cut(log, log.bases[-1] + 3)
    names = [name for name in log.directory.names() if name.endswith(".snapshot")]
    assert max(names) <= f"{log.end_offset:020}.snapshot"


def test_a_gap_that_a_cut_lays_open_is_closed_off() -> None:
    log = new_log()
    give(log, gapped())
    cut(log, 6)
    assert log.end_offset == 6
    append(log, make_batch(), epoch=9)
    again = reopened(log)
    assert (again.end_offset, read_log(again)) == (7, read_log(log))


def test_a_cut_inside_a_gap_ends_where_the_last_batch_does() -> None:
    log = new_log(make_settings(cleanup_policy="compact"))
    give(log, gapped())
    assert end_below(log, 3) == 2
    cut(log, 3)
    assert log.end_offset == 2 == reopened(log).end_offset


def test_a_log_begins_anew_where_its_leader_does() -> None:
    log = long_log()
    flush(log)
    names = restart(log, 1_000, NOW_MS)
    assert names and all(name.endswith(".deleted") for name in names)
    assert log.recovery_point == 0  # should the old log come back, all of it is looked at
    flush(log)
    assert (log.bases, log.start_offset, log.end_offset, log.recovery_point) == ([1_000], 1_000, 1_000, 1_000)
    assert (log.epochs.entries(), len(log.producers), log.aborted) == ([], 0, {})
    assert log.last_stable_offset(1_000) == 1_000
    leader = new_log()
    restart(leader, 1_000, NOW_MS)
    Leader(leader).run([Step("transactional", 0, 2, 30, 5, True), Step("end", 0, 1, 30, 5, False)])
    follow(leader, log, [500])
    assert answers(log) == answers(leader)
    again = reopened(log, 60, 0)
    assert answers(again) == answers(leader)
