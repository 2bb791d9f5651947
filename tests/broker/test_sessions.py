"""Fetch sessions (KIP-227): who gets one, what it remembers, when it goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.broker import sessions as sessions_module
from tidelog.broker.sessions import EPOCH_MAX, EVICTION_MS, FetchSession, FetchSessions, SessionPartition
from tidelog.broker.waiting import WaitingRoom
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest


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


def opened(sessions: FetchSessions, now_ms: int = 0) -> FetchSession:
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
    assert sessions.find(request(), False, EVICTION_MS) == (0, None)
    third = opened(sessions, EVICTION_MS + 1)
    assert len(sessions) == 2
    assert sessions.find(request(second.session_id, 1), False, 0)[0] == ErrorCode.fetch_session_id_not_found
    assert sessions.find(request(third.session_id, 1), False, 0)[0] == 0


def test_with_no_slots_there_are_no_sessions() -> None:
    assert FetchSessions(0, counting(), WaitingRoom()).find(request(), False, 0) == (0, None)


def test_a_session_adds_changes_and_forgets_partitions() -> None:
    session = FetchSession(1, False, 0)
    session.update(request(1, 0, ("a", 0, 5), ("b", 1, 7)))
    known = session.partitions["a", 0]
    session.update(request(1, 1, ("a", 0, 9)))
    assert session.partitions["a", 0] is known and known.request.fetch_offset == 9
    forgetting = request(1, 2)
    forgetting.forgotten = [("b", [1, 2])]
    session.update(forgetting)
    assert list(session.partitions) == [("a", 0)]


def test_a_session_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "FETCH_SESSION_PARTITIONS_MAX", 1)
    session = FetchSession(1, False, 0)
    with pytest.raises(MalformedRequest):
        session.update(request(1, 0, ("a", 0, 5), ("b", 1, 7)))


def test_a_partition_that_was_served_goes_last() -> None:
    session = FetchSession(1, False, 0)
    session.update(request(1, 0, ("a", 0, 0), ("b", 0, 0), ("c", 0, 0)))
    session.move_back(("a", 0))
    assert [topic for topic, _ in session.partitions] == ["b", "c", "a"]


def fetched(
    high_watermark: int = 5, start: int = 0, error: int = 0, records: bytes | None = None
) -> FetchedPartition:
    return FetchedPartition(0, error, high_watermark, high_watermark, start, None, -1, records)


def test_a_client_hears_again_only_of_what_changed() -> None:
    known = SessionPartition(FetchPartition(0, -1, 0, -1, -1, 100))
    assert known.is_news(fetched())
    assert not known.is_news(fetched())
    assert known.is_news(fetched(high_watermark=6))
    assert known.is_news(fetched(high_watermark=6, start=1))
    assert known.is_news(fetched(high_watermark=6, start=1, records=b"x"))
    assert not known.is_news(fetched(high_watermark=6, start=1))


def test_after_an_error_the_client_hears_when_it_is_over() -> None:
    known = SessionPartition(FetchPartition(0, -1, 0, -1, -1, 100))
    known.is_news(fetched())
    assert known.is_news(fetched(high_watermark=-1, error=6))
    assert known.is_news(fetched())


def test_an_update_that_is_refused_leaves_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "FETCH_SESSION_PARTITIONS_MAX", 2)
    session = FetchSession(1, False, 0)
    session.update(request(1, 0, ("a", 0, 5)))
    with pytest.raises(MalformedRequest):
        session.update(request(1, 1, ("a", 1, 5), ("b", 1, 7), ("c", 1, 7)))
    assert list(session.partitions) == [("a", 0)]
