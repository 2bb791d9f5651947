"""A follower's log: equal to its leader's, equal after a cut to one that never had the rest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.histories import SETTINGS, STEPS, Leader, Step, answers, open_in, stable_offsets
from tests.log.making import (
    NOW_MS,
    flush,
    make_settings,
    read_bytes,
    split,
)
from tests.sim.disk import SimulatedDisk
from tidelog.base.config import TopicSettings
from tidelog.log.log import Log
from tidelog.log.replica import append_replica, end_below, truncate


def new_log(topic: TopicSettings | None = None) -> Log:
    return open_in(SimulatedDisk().root, topic or make_settings())


def give(log: Log, data: bytes | bytearray) -> int:
    return append_replica(log, memoryview(data), NOW_MS)


def follow(leader: Log, follower: Log, sizes: list[int]) -> None:
    """Fetch all that the leader has, in pieces of those sizes, cut wherever they end."""
    turn = 0
    while follower.end_offset < leader.end_offset:
        piece = read_bytes(leader, follower.end_offset, max_bytes=sizes[turn % len(sizes)])
        assert give(follower, piece) == len(split(piece)) > 0
        turn += 1


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
    follower.close(clean=False)
    assert answers(open_in(follower.directory, topic)) == answers(leader)


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
    removed = truncate(log, offset, NOW_MS)
    assert all(log.directory.exists(name) and name.endswith(".deleted") for name in removed)
    assert log.recovery_point <= log.end_offset
    reopened = open_in(log.directory, topic, log.recovery_point)
    assert answers(reopened) == answers(expected)
    assert stable_offsets(log) == stable_offsets(expected)
    assert answers(log) == answers(expected)
    half.logs = [log, expected]
    half.run(more)
    assert answers(log) == answers(expected)
    log.close(clean=False)
    assert answers(open_in(log.directory, topic, log.recovery_point)) == answers(expected)
