"""A fetch session (KIP-227): what it remembers, what of it is due, and what it watches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.test_sessions import request
from tests.log.making import open_new
from tests.replication.leading import lead
from tidelog.base.files import DiskDirectory
from tidelog.log.directory import LogDirectory
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition
from tidelog.replication import fetch_session
from tidelog.replication.fetch_session import FetchSession, SessionPartition
from tidelog.replication.partition import Partition
from tidelog.replication.watches import Watches

KEY = ("t", 0)


class Asking:
    """A request that waits."""

    is_gone = False


def made(watches: Watches[Asking] | None = None) -> FetchSession[Asking]:
    return FetchSession(1, False, 0, watches if watches is not None else Watches())


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    log = open_new(tmp_path / "t-0")
    partition = Partition("t", bytes(16), 0, log, LogDirectory(DiskDirectory(str(tmp_path))))
    lead(partition, 0)
    return partition


def settled(watches: Watches[Asking], partition: Partition) -> FetchSession[Asking]:
    session = made(watches)
    session.update(request(1, 0, ("t", 0, 0)))
    session.settle(KEY, partition)
    return session


def test_what_is_settled_is_due_again_when_it_moves_and_when_it_is_named(partition: Partition) -> None:
    watches: Watches[Asking] = Watches()
    session = settled(watches, partition)
    assert not session.due
    watches.on_moved(partition)
    assert watches.take_woken() == [] and list(session.due) == [KEY]
    session.settle(KEY, partition)
    session.update(request(1, 2, ("t", 0, 0)))
    assert list(session.due) == [KEY]


def test_only_the_fetch_that_waits_is_woken_and_asking_which_changes_nothing(partition: Partition) -> None:
    watches: Watches[Asking] = Watches()
    session = settled(watches, partition)
    session.waiting = Asking()
    assert session.woken_by(partition) is session.waiting and not session.due
    watches.on_moved(partition)
    assert watches.take_woken() == [session.waiting] and list(session.due) == [KEY]


def test_a_session_that_nobody_uses_stops_watching_what_moves(partition: Partition) -> None:
    watches: Watches[Asking] = Watches()
    session = settled(watches, partition)
    session.waiting = gone = Asking()
    gone.is_gone = True
    for _ in range(2):
        watches.on_moved(partition)
        watches.take_woken()
    watches.on_moved(partition)
    assert not watches.moved and list(session.due) == [KEY]


def test_a_due_partition_is_watched_for_as_long_as_a_fetch_waits(partition: Partition) -> None:
    watches: Watches[Asking] = Watches()
    session = settled(watches, partition)
    session.waiting = Asking()
    for _ in range(3):
        watches.on_moved(partition)
        assert watches.take_woken() == [session.waiting]


def test_what_is_forgotten_and_what_has_ended_is_not_watched(partition: Partition) -> None:
    watches: Watches[Asking] = Watches()
    forgetting = request(1, 1)
    forgetting.forgotten = [("t", [0])]
    settled(watches, partition).update(forgetting)
    settled(watches, partition).close()
    watches.on_moved(partition)
    assert not watches.moved


def test_a_partition_that_takes_the_place_of_another_is_watched_instead(
    partition: Partition, tmp_path: Path
) -> None:
    watches: Watches[Asking] = Watches()
    session = settled(watches, partition)
    log = open_new(tmp_path / "other")
    other = Partition("t", bytes(16), 0, log, partition.directory)
    session.update(request(1, 1, ("t", 0, 0)))
    session.settle(KEY, other)
    watches.on_moved(partition)
    assert not watches.moved
    watches.on_moved(other)
    watches.take_woken()
    assert list(session.due) == [KEY]


def test_everything_is_due_when_the_reader_sees_otherwise(partition: Partition) -> None:
    session = settled(Watches(), partition)
    session.use_view((12, 0, ""))
    session.settle(KEY, partition)
    session.use_view((12, 0, ""))
    assert not session.due
    session.use_view((12, 1, ""))
    assert list(session.due) == [KEY]


def test_a_session_adds_changes_and_forgets_partitions() -> None:
    session = made()
    session.update(request(1, 0, ("a", 0, 5), ("b", 1, 7)))
    known = session.partitions["a", 0]
    session.update(request(1, 1, ("a", 0, 9)))
    assert session.partitions["a", 0] is known and known.request.fetch_offset == 9
    forgetting = request(1, 2)
    forgetting.forgotten = [("b", [1, 2])]
    session.update(forgetting)
    assert list(session.partitions) == [("a", 0)]


def test_a_session_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "FETCH_SESSION_PARTITIONS_MAX", 1)
    session = made()
    with pytest.raises(MalformedRequest):
        session.update(request(1, 0, ("a", 0, 5), ("b", 1, 7)))


def test_a_partition_that_was_served_goes_last() -> None:
    session = made()
    session.update(request(1, 0, ("a", 0, 0), ("b", 0, 0), ("c", 0, 0)))
    session.move_back(("a", 0))
    assert [topic for topic, _ in session.due] == ["b", "c", "a"]


def fetched(
    high_watermark: int = 5, start: int = 0, error: int = 0, records: bytes | None = None
) -> FetchedPartition:
    return FetchedPartition(0, error, high_watermark, high_watermark, start, None, -1, records)


def tell(known: SessionPartition, fetched: FetchedPartition) -> bool:
    """Whether it is news, and the client is told."""
    is_news = known.is_news(fetched)
    known.note_told(fetched)
    return is_news


def test_a_client_hears_again_only_of_what_changed() -> None:
    known = SessionPartition(FetchPartition(0, -1, 0, -1, -1, 100))
    assert known.is_news(fetched()) and known.is_news(fetched()), "asking tells nobody"
    assert tell(known, fetched())
    assert not tell(known, fetched())
    assert tell(known, fetched(high_watermark=6))
    assert tell(known, fetched(high_watermark=6, start=1))
    assert tell(known, fetched(high_watermark=6, start=1, records=b"x"))
    assert not tell(known, fetched(high_watermark=6, start=1))


def test_after_an_error_the_client_hears_when_it_is_over() -> None:
    known = SessionPartition(FetchPartition(0, -1, 0, -1, -1, 100))
    tell(known, fetched())
    assert tell(known, fetched(high_watermark=-1, error=6))
    assert tell(known, fetched())


def test_an_update_that_is_refused_leaves_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "FETCH_SESSION_PARTITIONS_MAX", 2)
    session = made()
    session.update(request(1, 0, ("a", 0, 5)))
    with pytest.raises(MalformedRequest):
        session.update(request(1, 1, ("a", 1, 5), ("b", 1, 7), ("c", 1, 7)))
    assert list(session.partitions) == [("a", 0)]
