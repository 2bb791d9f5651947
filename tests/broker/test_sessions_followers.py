"""Sessions of followers: what moved is looked at, and nothing else; one for each follower."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.test_sessions import counting
from tests.log.making import NOW_MS, make_batch, open_new
from tests.replication.leading import lead
from tidelog.base.files import DiskDirectory
from tidelog.base.limits import FOLLOWER_SESSIONS_MAX
from tidelog.broker.data_plane.sessions import FetchSessions, FollowersSession
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.log.directory import LogDirectory
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.replication.partition import Partition

TOPIC_ID = bytes(16)
LAG_MAX_MS = 1_000


def request(*indexes: int, replica_id: int = 2, session: tuple[int, int] = (0, 0)) -> FetchRequest:
    made = FetchRequest(replica_id, 500, 1, 10**6, 0, *session)
    made.topics = [(TOPIC_ID, [FetchPartition(index, 0, 0, -1, 0, 10**6) for index in indexes])]
    made.forgotten = []
    made.replica_epoch = 1
    return made


def opened(sessions: FetchSessions, *indexes: int, replica_id: int = 2, now_ms: int = 0) -> FollowersSession:
    asked = request(*indexes, replica_id=replica_id)
    error, session = sessions.find_follower(asked, True, now_ms)
    assert error == 0 and session is not None
    session.update(asked)
    return session


@pytest.fixture
def waiting() -> WaitingRoom:
    return WaitingRoom()


@pytest.fixture
def sessions(waiting: WaitingRoom) -> FetchSessions:
    return FetchSessions(1, counting(), waiting)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = Partition("t", TOPIC_ID, 0, open_new(tmp_path / "t-0"), LogDirectory(DiskDirectory(str(tmp_path))))
    lead(made, 0, (1, 2))
    return made


def test_a_new_session_of_a_follower_takes_the_place_of_the_old_one(
    waiting: WaitingRoom, sessions: FetchSessions, partition: Partition
) -> None:
    old = opened(sessions, 0)
    old.watch((TOPIC_ID, 0), partition)
    new = opened(sessions, 0)
    assert len(sessions) == 1
    again = request(session=(old.session_id, 1))
    assert sessions.find_follower(again, True, 0) == (ErrorCode.fetch_session_id_not_found, None)
    assert sessions.find_follower(request(session=(new.session_id, 1)), True, 0) == (0, new)
    old.due.clear()
    waiting.on_moved(partition)
    waiting.wake()
    assert not old.due


def test_a_session_of_a_follower_is_not_another_one_s(sessions: FetchSessions) -> None:
    session = opened(sessions, 0)
    asked = request(replica_id=3, session=(session.session_id, 1))
    assert sessions.find_follower(asked, True, 0) == (ErrorCode.fetch_session_id_not_found, None)


def test_followers_need_no_slot_and_made_up_ones_take_no_more_than_so_many(sessions: FetchSessions) -> None:
    numbers = range(FOLLOWER_SESSIONS_MAX + 3)
    kept = [opened(sessions, 0, replica_id=number, now_ms=number) for number in numbers]
    assert len(sessions) == FOLLOWER_SESSIONS_MAX
    last = request(replica_id=kept[-1].replica_id, session=(kept[-1].session_id, 1))
    assert sessions.find_follower(last, True, 0) == (0, kept[-1])


def test_a_follower_that_begins_a_new_session_was_in_sync_until_its_last_fetch(
    waiting: WaitingRoom, sessions: FetchSessions, partition: Partition
) -> None:
    session = opened(sessions, 0)
    assert partition.leadership is not None
    partition.leadership.on_fetch(2, 1, 0, 0, 0)
    session.settle((TOPIC_ID, 0), partition)
    session.used_ms = 50_000
    view = memoryview(make_batch(1))
    partition.append(view, 0, len(view), NOW_MS)
    waiting.on_moved(partition)
    opened(sessions, 0, now_ms=50_100)
    partition.leadership.on_fetch(2, 1, 0, 1, 50_100)
    assert partition.leadership.followers[2].is_near(50_100, LAG_MAX_MS, 1)


class Waiting(Parked):
    def finish_late(self) -> bytes:
        return b"nothing yet"


def test_fetches_of_some_followers_are_answered_before_their_time_and_once(
    waiting: WaitingRoom, sessions: FetchSessions
) -> None:
    connections = [Connection(1_000) for _ in range(2)]
    for replica_id, connection in enumerate(connections, 2):
        session = opened(sessions, 0, replica_id=replica_id)
        session.waiting = Waiting(500, [])
        waiting.park(session.waiting, connection)
    sessions.hurry([1, 2])
    sessions.hurry([2])
    assert [connection.output for connection in connections] == [[b"nothing yet"], []]
