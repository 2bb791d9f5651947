"""A follower's log is its leader's, byte for byte, and takes nothing that is not."""

from __future__ import annotations

from struct import pack_into

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
    four_batches,
    gapped,
    give,
    new_log,
    reopened,
    stable_offsets,
    stopped,
)
from tests.log.making import NOW_MS, append, flush, make_batch, make_settings, read_log
from tidelog.base.config import TopicSettings
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.protocol.batch import CRC_POSITION, LENGTH_OVERHEAD, compute_crc
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, build_control_batch


@settings(deadline=None)
@given(SETTINGS, STEPS, st.lists(st.integers(1, 3_000), min_size=1, max_size=5))
def test_a_follower_has_what_its_leader_has(
    topic: TopicSettings, steps: list[Step], sizes: list[int]
) -> None:
    leader, follower = new_log(topic), new_log(topic)
    Leader(leader).run(steps)
    follow(leader, follower, sizes)
    assert stable_offsets(follower) == stable_offsets(leader)
    assert answers(follower) == answers(leader)
    assert [p.recent for p in follower.producers] == [p.recent for p in leader.producers]
    assert follower.size == leader.size
    assert answers(reopened(follower)) == answers(leader)
    assert answers(stopped(follower)) == answers(leader)


def test_a_torn_tail_is_left_wherever_it_ends() -> None:
    first, second, *_ = four_batches()
    for size in range(len(second)):
        log = new_log()
        assert give(log, first + second[:size]) == 1
        assert (log.end_offset, read_log(log)) == (2, first)
        assert give(log, second) == 1
        assert read_log(log) == first + second


@pytest.mark.parametrize("position", [8, 16, 17, 21, 23, 40, BATCH_HEADER_SIZE, BATCH_HEADER_SIZE + 20])
def test_a_damaged_batch_is_refused_and_those_before_it_are_taken(position: int) -> None:
    first, second, third, _ = four_batches()
    damaged = bytearray(second)
    damaged[position] ^= 0x80
    log = new_log()
    with pytest.raises(CorruptBatch, match=r"\b2\b"):
        give(log, first + damaged + third)
    assert (log.end_offset, read_log(log), log.epochs.entries()) == (2, first, [(0, 0)])
    assert give(log, second + third) == 2


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 48])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    first, second, *_ = four_batches()
    damaged = bytearray(second)
    pack_into(">i", damaged, 8, length)
    log = new_log()
    with pytest.raises(CorruptBatch, match=r"\b2\b"):
        give(log, first + damaged)
    assert read_log(log) == first


def test_a_batch_below_the_end_is_refused() -> None:
    first, second, *_ = four_batches()
    log = new_log()
    give(log, first + second)
    for again in (first, second):
        with pytest.raises(CorruptBatch, match="ends at 4"):
            give(log, again)
    assert read_log(log) == first + second


def test_a_batch_of_an_older_leader_is_refused() -> None:
    first, second, third, _ = four_batches()
    old = bytearray(third)
    pack_into(">i", old, 12, 0)
    log = new_log()
    with pytest.raises(CorruptBatch, match=r"offset 4.*epoch 0 follows 1"):
        give(log, first + second + old)
    assert (log.end_offset, log.epochs.entries()) == (4, [(0, 0), (1, 2)])


def test_what_the_leader_took_is_not_too_large() -> None:
    batch = four_batches()[0]
    log = new_log(make_settings(max_message_bytes=60))
    assert give(log, batch) == 1


def test_a_control_batch_without_its_record_is_taken_as_recovery_takes_it() -> None:
    bare = bytearray(build_control_batch(Marker.ABORT, 1, 0, 0, NOW_MS)[:BATCH_HEADER_SIZE])
    pack_into(">i", bare, 8, BATCH_HEADER_SIZE - LENGTH_OVERHEAD)
    for record_count in (0, 1):
        pack_into(">i", bare, BATCH_HEADER_SIZE - 4, record_count)
        pack_into(">I", bare, CRC_POSITION, compute_crc(memoryview(bare), 0, len(bare)))
        log = new_log()
        assert give(log, bare) == 1
        again = reopened(log)
        assert (read_log(again), again.producers.encode()) == (bytes(bare), log.producers.encode())


def test_a_compacted_log_has_gaps_where_its_leader_has_them() -> None:
    log = new_log(make_settings(cleanup_policy="compact"))
    assert give(log, gapped()) == 3
    assert (log.bases, log.end_offset, read_log(log)) == ([0], 8, gapped())
    assert answers(reopened(log)) == answers(log)


def test_behind_a_gap_of_a_log_that_is_not_compacted_recovery_believes_what_follows() -> None:
    log = new_log()
    assert give(log, gapped()) == 3
    append(log, make_batch(), epoch=9)
    for recovery_point in (0, 8, 9):
        again = reopened(log, recovery_point)
        assert again.end_offset == 9
        assert read_log(again) == read_log(log)


def test_a_gap_in_a_topic_that_was_never_compacted_is_refused() -> None:
    log = new_log()
    first, second, *rest = four_batches()
    with pytest.raises(CorruptBatch, match="offset 4, at 2: the records between are missing"):
        give(log, gapped(), may_have_gaps=False)
    assert (log.end_offset, read_log(log)) == (2, first), "what is before it is taken"
    assert give(log, b"".join([second, *rest]), may_have_gaps=False) == 3


def test_a_gap_in_front_of_a_damaged_batch_is_closed_off_too() -> None:
    log = new_log()
    with pytest.raises(CorruptBatch):
        give(log, gapped() + bytes(BATCH_HEADER_SIZE))
    append(log, make_batch(), epoch=9)
    assert reopened(log).end_offset == 9


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_an_offset_that_no_index_could_name_begins_a_segment(policy: str, is_empty: bool) -> None:
    first, second, *_ = four_batches()
    far = bytearray(second)
    pack_into(">q", far, 0, 2**40)
    log = new_log(make_settings(was_compacted=True, cleanup_policy=policy, index_interval_bytes=0))
    give(log, (b"" if is_empty else first) + far)
    assert (2**40 in log.bases, log.end_offset) == (True, 2**40 + 2)
    append(log, make_batch(), epoch=9)
    flush(log)
    again = reopened(log, log.recovery_point)
    assert (again.end_offset, read_log(again)) == (2**40 + 3, read_log(log))
