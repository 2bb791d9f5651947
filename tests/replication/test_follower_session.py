"""Sessions of followers: what moved is due, and nothing else; who is caught up, and who is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.test_sessions_followers import TOPIC_ID, request
from tests.log.making import NOW_MS, make_batch, open_new
from tests.replication.leading import lead
from tests.replication.test_fetch_session import Asking
from tidelog.base.files import DiskDirectory
from tidelog.log.directory import LogDirectory
from tidelog.replication.follower_session import FollowerSession
from tidelog.replication.partition import Partition
from tidelog.replication.watches import Watches

LAG_MAX_MS = 1_000


def opened(watches: Watches[Asking], *indexes: int) -> FollowerSession[Asking]:
    session = FollowerSession(1, True, 0, 2, watches)
    session.update(request(*indexes))
    return session


def move(watches: Watches[Asking], partition: Partition) -> list[Asking]:
    watches.on_moved(partition)
    return watches.take_woken()


@pytest.fixture
def watches() -> Watches[Asking]:
    return Watches()


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = Partition("t", TOPIC_ID, 0, open_new(tmp_path / "t-0"), LogDirectory(DiskDirectory(str(tmp_path))))
    lead(made, 0, (1, 2))
    return made


def test_what_a_request_names_is_looked_at_and_what_moves_from_then_on(
    watches: Watches[Asking], partition: Partition
) -> None:
    session = opened(watches, 0, 1)
    assert list(session.due) == [(TOPIC_ID, 0), (TOPIC_ID, 1)]
    session.settle((TOPIC_ID, 0), partition)
    move(watches, partition)
    assert list(session.due) == [(TOPIC_ID, 1), (TOPIC_ID, 0)]


def test_a_follower_that_had_all_was_in_sync_until_its_last_fetch(
    watches: Watches[Asking], partition: Partition
) -> None:
    session = opened(watches, 0)
    assert partition.leadership is not None
    partition.leadership.on_fetch(2, 1, 0, 0, 0)
    session.settle((TOPIC_ID, 0), partition)
    session.used_ms = 50_000
    view = memoryview(make_batch(1))
    partition.append(view, 0, len(view), NOW_MS)
    move(watches, partition)
    progress = partition.leadership.followers[2]
    assert progress.is_near(50_000 + LAG_MAX_MS, LAG_MAX_MS, 1)
    assert not progress.is_near(50_001 + LAG_MAX_MS, LAG_MAX_MS, 1)
    session.used_ms = 60_000  # it has asked again, and does not have it yet
    move(watches, partition)
    assert not progress.is_near(50_001 + LAG_MAX_MS, LAG_MAX_MS, 1)


def test_a_broker_that_has_registered_anew_is_looked_at_as_a_whole(watches: Watches[Asking]) -> None:
    session = opened(watches, 0, 1)
    session.due.clear()
    asked = request(session=(session.session_id, 1))
    session.update(asked)
    assert not session.due
    asked.replica_epoch = 2
    session.update(asked)
    assert len(session.due) == 2


def test_what_is_forgotten_is_heard_of_no_more(watches: Watches[Asking], partition: Partition) -> None:
    session = opened(watches, 0)
    session.watch((TOPIC_ID, 0), partition)
    asked = request(session=(session.session_id, 1))
    asked.forgotten = [(TOPIC_ID, [0])]
    session.update(asked)
    assert not session.partitions and not session.due
    move(watches, partition)
    assert not session.due


def test_what_is_named_and_forgotten_at_once_is_not_looked_at(watches: Watches[Asking]) -> None:
    session = opened(watches)
    asked = request(0, 1, session=(session.session_id, 1))
    asked.forgotten = [(TOPIC_ID, [0])]
    session.update(asked)
    assert list(session.partitions) == list(session.due) == [(TOPIC_ID, 1)]


def test_asking_who_is_woken_changes_nothing(watches: Watches[Asking], partition: Partition) -> None:
    session = opened(watches, 0)
    assert partition.leadership is not None
    partition.leadership.on_fetch(2, 1, 0, 0, 0)
    session.settle((TOPIC_ID, 0), partition)
    session.waiting, session.used_ms = Asking(), 50_000
    session.woken_by(partition)
    assert not session.due and partition.leadership.followers[2].fetched_ms == 0


def is_woken(session: FollowerSession[Asking], partition: Partition) -> bool:
    return session.woken_by(partition) is session.waiting


def test_a_high_watermark_alone_wakes_nobody_but_who_has_readers(
    watches: Watches[Asking], partition: Partition
) -> None:
    session = opened(watches, 0)
    session.waiting = Asking()
    known = session.partitions[TOPIC_ID, 0]
    known.log_start_offset = 0
    assert not is_woken(session, partition)
    session.serves_readers = True
    assert is_woken(session, partition)
    session.serves_readers = False
    view = memoryview(make_batch(1))
    partition.append(view, 0, len(view), NOW_MS)
    assert is_woken(session, partition), "there are records"
    known.request = known.request._replace(fetch_offset=1)
    assert not is_woken(session, partition)
    partition.leader_epoch += 1
    assert is_woken(session, partition), "it asks another leader than it thinks"
    partition.leader_epoch -= 1
    partition.high_watermark = 1
    partition.trim(1)
    assert is_woken(session, partition), "the log begins elsewhere"
    known.log_start_offset = 1
    assert not is_woken(session, partition)
    partition.become_offline()
    assert is_woken(session, partition)


@pytest.mark.parametrize(("wait_ms", "is_steady"), [(500, False), (2_000, True)])
def test_a_follower_that_asks_to_wait_for_long_is_heard_of_less_often(wait_ms: int, is_steady: bool) -> None:
    session = FollowerSession[Asking](1, True, 0, 2, Watches())
    for now_ms in (0, 2_500, 5_000, 7_500):
        session.note_use(wait_ms, now_ms)
        session.used_ms = now_ms
    assert session.is_steady(10_000) == is_steady
    assert not session.is_steady(12_500)
