"""The session with a leader: what each request names, and what becomes of late answers (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.making import NOW_MS, make_batch, open_new
from tidelog.base.files import DiskDirectory
from tidelog.base.limits import REPLICA_FETCH_GROWTH_MAX
from tidelog.cluster.facts import PartitionFacts
from tidelog.log.directory import LogDirectory
from tidelog.protocol.fetch import FetchedPartition, FetchRequest, decode_fetch, encode_fetch
from tidelog.replication.fetcher import CLIENT_ID, FETCH_VERSION, Fetcher, FetchLimits, Received
from tidelog.replication.partition import Partition

BODY = 4 + 8 + 2 + len(CLIENT_ID) + 1
LIMITS = FetchLimits(500, 1, 10**7, 10**6, 1_000, 30_000)


class Session:
    """A fetcher, and the leader's part done by hand."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.fetcher = Fetcher(2, 7, LIMITS)
        self.partitions = [self._replica(folder, index) for index in range(count)]
        for partition in self.partitions:
            self.fetcher.add(partition)
        self.now_ms = 0
        self.frame = b""

    def _replica(self, folder: Path, index: int) -> Partition:
        log = open_new(folder / f"t-{index}")
        partition = Partition("t", bytes(16), index, log, LogDirectory(DiskDirectory(str(folder))))
        partition.become_follower(PartitionFacts(1, 4, [1, 2], [1, 2], 0))
        return partition

    def ask(self) -> FetchRequest | None:
        frame = self.fetcher.next_request(self.now_ms)
        if frame is None:
            return None
        self.frame = bytes(frame)
        return decode_fetch(self.frame, BODY, FETCH_VERSION)

    def answer(self, *parts: FetchedPartition, error: int = 0, session_id: int = 9) -> list[Received]:
        return list(self.answer_slowly(*parts, error=error, session_id=session_id))

    def answer_slowly(
        self, *parts: FetchedPartition, error: int = 0, session_id: int = 9
    ) -> Iterator[Received]:
        """One partition after the other, as they are asked for."""
        number = int.from_bytes(self.frame[8:12], "big")
        pieces = encode_fetch(FETCH_VERSION, number, 0, error, session_id, [(bytes(16), list(parts))])
        data = b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]
        return self.fetcher.on_answer(memoryview(data)[4:], self.now_ms)


def asked(request: FetchRequest | None) -> list[int]:
    assert request is not None
    return [partition.index for _, partitions in request.topics for partition in partitions]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_the_first_request_names_everything_and_the_next_ones_what_has_changed(session: Session) -> None:
    first = session.ask()
    assert asked(first) == [0, 1, 2] and first is not None
    assert (first.session_id, first.session_epoch, first.replica_id, first.replica_epoch) == (0, 0, 2, 7)
    assert session.ask() is None  # one at a time
    session.answer()
    second = session.ask()
    assert asked(second) == [] and second is not None and (second.session_id, second.session_epoch) == (9, 1)
    session.answer()
    partition = session.partitions[1]
    batch = make_batch(3)
    partition.log.append(memoryview(batch), 0, len(batch), 4, NOW_MS)
    session.fetcher.touch(partition)
    third = session.ask()
    assert asked(third) == [1] and third is not None
    assert third.topics[0][1][0].fetch_offset == 3 and third.topics[0][1][0].last_fetched_epoch == 4


def test_a_partition_that_waits_is_forgotten_until_its_time(session: Session) -> None:
    session.ask()
    session.answer()
    session.fetcher.hold(session.partitions[0], until_ms=100)
    session.fetcher.hold(session.partitions[2])
    request = session.ask()
    assert request is not None and asked(request) == []
    assert sorted(index for _, indexes in request.forgotten for index in indexes) == [0, 2]
    session.answer()
    session.now_ms = 100
    assert asked(session.ask()) == [0]
    session.answer()
    session.fetcher.release(session.partitions[2])
    assert asked(session.ask()) == [2]


def test_what_becomes_of_one_partition_may_have_others_of_the_same_answer_dropped(session: Session) -> None:
    session.ask()
    answers = session.answer_slowly(*(FetchedPartition(index, high_watermark=0) for index in range(3)))
    assert next(answers).partition is session.partitions[0]
    session.fetcher.remove(session.partitions[1])  # by the disk that both were on, and that has failed
    assert [received.partition for received in answers] == [session.partitions[2]]


def test_an_answer_is_for_what_was_asked_and_for_nothing_else(session: Session) -> None:
    session.ask()
    moved, same, gone = session.partitions
    batch = make_batch()
    moved.log.append(memoryview(batch), 0, len(batch), 4, NOW_MS)  # meanwhile, by somebody else
    session.fetcher.remove(gone)
    found = session.answer(*(FetchedPartition(index, 0, 5, -1, 0) for index in range(4)))
    assert [each.partition for each in found] == [same]
    assert found[0].answer.high_watermark == 5


def test_a_late_answer_of_a_session_that_was_given_up_is_left(session: Session) -> None:
    session.ask()
    old = session.frame
    session.fetcher.restart(session.now_ms)
    session.ask()
    new, session.frame = session.frame, old
    assert session.answer(FetchedPartition(0, 0, 5, -1, 0)) == [] and session.fetcher.is_under_way
    session.frame = new
    assert len(session.answer(FetchedPartition(0, 0, 5, -1, 0))) == 1


@pytest.mark.parametrize(("error", "wait_ms"), [(70, 0), (71, 0), (106, 0), (-1, 1_000)])
def test_a_session_that_the_leader_does_not_know_begins_anew(
    session: Session, error: int, wait_ms: int
) -> None:
    session.ask()
    session.answer()
    session.ask()
    session.answer(error=error)
    assert (session.ask() is None) == bool(wait_ms)
    session.now_ms += wait_ms
    request = session.ask() if wait_ms else decode_fetch(session.frame, BODY, FETCH_VERSION)
    assert asked(request) == [0, 1, 2] and request is not None and request.session_epoch == 0


def test_a_leader_without_room_for_a_session_is_asked_for_everything_each_time(session: Session) -> None:
    for _ in range(3):
        assert asked(session.ask()) == [0, 1, 2]
        session.answer(session_id=0)


def test_an_answer_that_does_not_come_is_overdue(session: Session) -> None:
    session.ask()
    session.now_ms = LIMITS.wait_ms + LIMITS.timeout_ms
    assert not session.fetcher.is_overdue(session.now_ms)
    assert session.fetcher.is_overdue(session.now_ms + 1)
    session.answer()
    assert not session.fetcher.is_overdue(session.now_ms + 1)


def test_garbage_ends_the_session(session: Session) -> None:
    session.ask()
    frame = session.frame[8:12] + b"\x00" + b"\xff" * 9
    assert list(session.fetcher.on_answer(memoryview(frame), 0)) == []
    assert asked(session.ask()) == [0, 1, 2]


def test_what_a_leader_refuses_is_asked_for_again_soon_then_later_and_later(session: Session) -> None:
    session.ask()
    session.answer()
    refused = session.partitions[0]
    waits = []
    for _ in range(8):
        session.fetcher.back_off(refused, session.now_ms)
        session.ask()
        session.answer()
        begun_ms = session.now_ms
        while asked(session.ask()) != [0]:
            session.answer()
            session.now_ms += 1
        session.answer()
        waits.append(session.now_ms - begun_ms)
    assert waits == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    session.fetcher.touch(refused)  # it was served
    session.fetcher.back_off(refused, session.now_ms)
    session.ask()
    session.answer()
    session.now_ms += 20
    assert asked(session.ask()) == [0]


def sizes(request: FetchRequest | None) -> list[int]:
    assert request is not None
    return [partition.max_bytes for _, partitions in request.topics for partition in partitions]


def test_of_a_partition_that_gives_much_more_is_asked_for(session: Session) -> None:
    """Twice as much each time, up to a bound; when it gives little again, less and less."""
    step = LIMITS.partition_max_bytes
    assert sizes(session.ask()) == [step] * 3
    seen = []
    for size in [2 * step] * 4 + [1_000] * 4:
        (received,) = session.answer(FetchedPartition(1, 0, 0, 0, 0, None, -1, bytes(size)))
        assert len(received.records) == size
        batch = make_batch(1)
        received.partition.log.append(memoryview(batch), 0, len(batch), 4, NOW_MS)
        session.fetcher.touch(received.partition)
        seen += sizes(session.ask())
    largest = REPLICA_FETCH_GROWTH_MAX * step
    assert seen == [2 * step, largest, largest, largest, largest // 2, step, step, step]
