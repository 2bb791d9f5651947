"""Fetch sessions (KIP-227): who gets one, what it remembers, when it goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.base.limits import SESSION_EVICTION_MS
from tidelog.broker.data_plane.sessions import EPOCH_MAX, FetchSessions, Session
from tidelog.broker.waiting import WaitingRoom
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest


def counting() -> Callable[[int], bytes]:
    """Entropy that is 0, 1, 2, …"""
    numbers = iter(range(100_000))
    return lambda size: next(numbers).to_bytes(size, "big")


def request(session_id: int = 0, epoch: int = 0, *partitions: tuple[str, int, int]) -> FetchRequest:
    made = FetchRequest(-1, 500, 1, 10**6, 0, session_id, epoch)
    made.topics = [
        (topic, [FetchPartition(index, -1, offset, -1, -1, 10**6)]) for topic, index, offset in partitions
    ]
    made.forgotten = []
    return made


def opened(sessions: FetchSessions, now_ms: int = 0) -> Session:
    error, session = sessions.find(request(), False, now_ms)
    assert error == 0 and session is not None
    return session


def test_a_full_fetch_opens_a_session_with_an_id_that_is_not_zero() -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    assert [opened(sessions).session_id for _ in range(3)] == [1, 2, 3]


def test_a_fetch_without_a_session_opens_none_and_ends_the_one_it_names() -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    session = opened(sessions)
    assert sessions.find(request(session.session_id, -1), False, 0) == (0, None)
    assert len(sessions) == 0


def test_each_request_must_bring_the_next_epoch() -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    session = opened(sessions)
    assert sessions.find(request(session.session_id, 1), False, 0) == (0, session)
    assert sessions.find(request(session.session_id, 1), False, 0)[0] == ErrorCode.invalid_fetch_session_epoch
    assert sessions.find(request(session.session_id, 2), False, 0) == (0, session)


def test_the_epoch_wraps_to_1() -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    session = opened(sessions)
    session.epoch = EPOCH_MAX
    sessions.find(request(session.session_id, EPOCH_MAX), False, 0)
    assert session.epoch == 1


def test_an_unknown_session_and_a_changed_kind_of_name_are_refused() -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    session = opened(sessions)
    assert sessions.find(request(99, 1), False, 0)[0] == ErrorCode.fetch_session_id_not_found
    found = sessions.find(request(session.session_id, 1), True, 0)
    assert found[0] == ErrorCode.fetch_session_topic_id_error


def test_a_new_session_takes_the_place_of_one_long_unused_or_gets_none() -> None:
    sessions = FetchSessions(2, counting(), WaitingRoom())
    first, second = opened(sessions, 0), opened(sessions, 1)
    sessions.find(request(first.session_id, 1), False, 2)
    assert sessions.find(request(), False, SESSION_EVICTION_MS) == (0, None)
    third = opened(sessions, SESSION_EVICTION_MS + 1)
    assert len(sessions) == 2
    assert sessions.find(request(second.session_id, 1), False, 0)[0] == ErrorCode.fetch_session_id_not_found
    assert sessions.find(request(third.session_id, 1), False, 0)[0] == 0


def test_with_no_slots_there_are_no_sessions() -> None:
    assert FetchSessions(0, counting(), WaitingRoom()).find(request(), False, 0) == (0, None)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_session_that_has_ended_holds_nothing(epoch: int) -> None:
    sessions = FetchSessions(10, counting(), WaitingRoom())
    session = opened(sessions)
    session.update(request(0, 0, ("a", 0, 5)))
    sessions.find(request(session.session_id, epoch), False, 0)
    assert not session.partitions and not session.due


def test_a_session_that_made_room_holds_nothing() -> None:
    sessions = FetchSessions(1, counting(), WaitingRoom())
    session = opened(sessions)
    session.update(request(0, 0, ("a", 0, 5)))
    opened(sessions, SESSION_EVICTION_MS)
    assert not session.partitions
