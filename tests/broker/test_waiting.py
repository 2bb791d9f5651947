"""The waiting room: everybody who is parked leaves once, in the order of their connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.making import open_new
from tidelog.base.files import DiskDirectory
from tidelog.broker import waiting as waiting_module
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.log.directory import LogDirectory
from tidelog.protocol.connection import Answer, Connection
from tidelog.replication.partition import Partition


class Waiter(Parked):
    """Waits until it is told that it is done."""

    def __init__(self, deadline_ms: int, *partitions: Partition, late: Answer | None = b"late") -> None:
        super().__init__(deadline_ms, list(partitions))
        self.is_ready = False
        self.tried = 0
        self.late = late

    def try_finish(self) -> Answer | None:
        self.tried += 1
        return b"done" if self.is_ready else None

    def finish_late(self) -> Answer | None:
        return self.late


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return made(tmp_path)


def made(folder: Path) -> Partition:
    return Partition("t", bytes(16), 0, open_new(folder), LogDirectory(DiskDirectory(str(folder))))


def test_a_request_is_answered_when_what_it_waits_for_has_moved(partition: Partition) -> None:
    room, connection, waiter = WaitingRoom(), Connection(1_000), Waiter(100, partition)
    room.park(waiter, connection)
    room.on_moved(partition)
    room.wake()
    assert (waiter.tried, connection.output, room.count) == (1, [], 1)
    waiter.is_ready = True
    room.wake()
    assert connection.output == [], "nothing moved since it was last looked at"
    room.on_moved(partition)
    room.wake()
    assert (connection.output, room.answered, room.count) == ([b"done"], [waiter], 0)


def test_who_is_woken_is_answered_one_at_a_time(partition: Partition) -> None:
    room, connections = WaitingRoom(), [Connection(1_000) for _ in range(3)]
    waiters = [Waiter(100, partition) for _ in connections]
    for waiter, connection in zip(waiters, connections, strict=True):
        room.park(waiter, connection)
    waiters[0].is_ready = waiters[2].is_ready = True
    room.on_moved(partition)
    assert room.wake_next()
    assert [waiter.tried for waiter in waiters] == [1, 0, 0]
    assert room.wake_next()
    assert [waiter.tried for waiter in waiters] == [1, 1, 0]
    room.drop(connections[2])
    assert not room.wake_next()
    assert [waiter.tried for waiter in waiters] == [1, 1, 0]
    assert room.answered == [waiters[0]]


def test_who_is_late_is_answered_one_at_a_time() -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    for _ in range(3):
        room.park(Waiter(10), connection)
    room.tick(10)
    assert [room.wake_next() for _ in range(4)] == [True, True, True, False]
    assert connection.output == [b"late"] * 3


def test_who_is_woken_later_does_not_wait_for_all_who_were_woken_before(tmp_path: Path) -> None:
    crowded, other = made(tmp_path / "a"), made(tmp_path / "b")
    room, last = WaitingRoom(), Waiter(100, other)
    for _ in range(50):
        room.park(Waiter(100, crowded), Connection(1_000))
    room.park(last, Connection(1_000))
    room.on_moved(crowded)
    assert room.wake_next()
    room.on_moved(other)
    room.find_woken()
    for _ in range(2):
        room.wake_next()
    assert last.tried == 1


def test_who_is_to_be_looked_at_is_not_noted_again(partition: Partition) -> None:
    room, waiters = WaitingRoom(), [Waiter(100, partition) for _ in range(5)]
    for waiter in waiters:
        room.park(waiter, Connection(1_000))
    for _ in range(3):
        room.on_moved(partition)
        room.find_woken()
    room.wake()
    assert [waiter.tried for waiter in waiters] == [1] * 5


def test_many_moves_are_one_look(partition: Partition) -> None:
    room, waiter = WaitingRoom(), Waiter(100, partition)
    room.park(waiter, Connection(1_000))
    for _ in range(50):
        room.on_moved(partition)
    room.wake()
    assert waiter.tried == 1


def test_a_request_that_waits_for_two_partitions_leaves_once(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    room, connection, waiter = WaitingRoom(), Connection(1_000), Waiter(100, first, second, first)
    room.park(waiter, connection)
    waiter.is_ready = True
    room.on_moved(first)
    room.on_moved(second)
    room.wake()
    room.tick(10**9)
    room.wake()
    assert (connection.output, room.count) == ([b"done"], 0)


def test_a_deadline_answers_what_is_late_and_leaves_the_rest(partition: Partition) -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    for deadline in (30, 10, 20):
        room.park(Waiter(deadline, partition), connection)
    room.tick(9)
    room.wake()
    assert room.count == 3
    room.tick(20)
    room.wake()
    assert (room.count, connection.output) == (1, [])
    room.tick(30)
    room.wake()
    assert (connection.output, room.count) == ([b"late"] * 3, 0)


def test_answers_leave_in_the_order_of_the_requests(partition: Partition) -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    first, second = Waiter(100, partition), Waiter(100, partition)
    room.park(first, connection)
    room.park(second, connection)
    connection.answer(b"third")
    second.is_ready = True
    room.on_moved(partition)
    room.wake()
    assert connection.output == []
    room.finish(first, b"first")
    assert connection.output == [b"first", b"done", b"third"]
    room.finish(first, b"again")
    assert connection.output == [b"first", b"done", b"third"]


def test_a_closed_connection_takes_its_requests_along(partition: Partition) -> None:
    room, gone, stays = WaitingRoom(), Connection(1_000), Connection(1_000)
    dropped = Waiter(10, partition)
    room.park(dropped, gone)
    room.park(Waiter(10, partition), stays)
    room.drop(gone)
    room.drop(gone)
    assert room.count == 1
    room.on_moved(partition)
    room.wake()
    room.tick(10)
    room.wake()
    assert (dropped.tried, gone.output, stays.output) == (0, [], [b"late"])


def test_a_request_without_an_answer_leaves_silently(partition: Partition) -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    room.park(Waiter(10, partition, late=None), connection)
    room.tick(10)
    room.wake()
    assert (connection.output, len(connection.slots), room.count) == ([], 0, 0)


def test_the_room_is_full_at_its_bound(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "PARKED_REQUESTS_MAX", 2)
    room, last = WaitingRoom(), Connection(1_000)
    assert room.park(Waiter(10, partition), Connection(1_000))
    assert room.park(Waiter(10, partition), Connection(1_000))
    assert not room.park(Waiter(10, partition), last)
    assert (room.count, len(last.slots)) == (2, 0)


def test_a_connection_has_a_bound_of_its_own(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "PIPELINED_REQUESTS_MAX", 2)
    room, connection = WaitingRoom(), Connection(1_000)
    assert [room.park(Waiter(10, partition), connection) for _ in range(3)] == [True, True, False]
    assert room.park(Waiter(10, partition), Connection(1_000))


def test_who_is_answered_in_the_same_moment_never_takes_a_seat(partition: Partition) -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    prompt, patient = Waiter(10), Waiter(20)
    room.park(prompt, connection)
    room.park(patient, connection)
    room.finish(prompt, b"at once")
    assert room.first_deadline_ms == 20
    assert (sum(room.counts.values()), room.count, connection.output) == (1, 1, [b"at once"])
    room.tick(20)
    room.wake()
    assert (sum(room.counts.values()), room.count, connection.output) == (0, 0, [b"at once", b"late"])


def test_who_has_just_come_goes_with_its_connection() -> None:
    room, gone, other = WaitingRoom(), Connection(1_000), Connection(1_000)
    waiter = Waiter(10)
    room.park(waiter, gone)
    room.park(Waiter(20), other)
    room.drop(gone)
    room.finish(waiter, b"to nobody")
    assert (room.first_deadline_ms, room.count, gone.output) == (20, 1, [])


def test_finished_requests_do_not_pile_up_behind_a_far_deadline(partition: Partition) -> None:
    room, connection = WaitingRoom(), Connection(1_000)
    last = Waiter(10**9, partition)
    room.park(last, connection)
    for _ in range(1_000):
        waiter = Waiter(10**9, partition)
        room.park(waiter, connection)
        assert room.first_deadline_ms == 10**9
        room.finish(waiter, b"done")
    assert len(room._deadlines) < 100
    room.tick(10**9)
    room.wake()
    assert (room.count, connection.output) == (0, [b"late"] + [b"done"] * 1_000)


def test_the_room_is_full_at_its_bound_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "PARKED_PARTITIONS_MAX", 3)
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    room, gone = WaitingRoom(), Connection(1_000)
    assert room.park(Waiter(10, first, second), gone)
    assert room.park(Waiter(20, first), Connection(1_000))
    assert not room.park(Waiter(20, first), Connection(1_000))
    assert room.watched_count == 3
    room.drop(gone)
    assert room.watched_count == 1
    room.tick(20)
    room.wake()
    assert (room.watched_count, room.count) == (0, 0)


class Broken(Waiter):
    """Cannot be answered, because of a bug."""

    def try_finish(self) -> Answer | None:
        raise RecursionError("try_finish")

    def finish_late(self) -> Answer | None:
        raise ValueError("finish_late")


@pytest.mark.parametrize("reason", ["try_finish", "finish_late"])
def test_a_bug_in_one_answer_is_nobody_else_s(partition: Partition, reason: str) -> None:
    room, connections = WaitingRoom(), [Connection(1_000) for _ in range(3)]
    waiters = [Waiter(100, partition), Broken(100, partition), Waiter(100, partition)]
    for waiter, connection in zip(waiters, connections, strict=True):
        waiter.is_ready = True
        room.park(waiter, connection)
    if reason == "try_finish":
        room.on_moved(partition)
    else:
        room.tick(100)
    while room.wake_next():
        pass
    assert [connection.output != [] for connection in connections] == [True, False, True]
    assert [(parked, str(bug)) for parked, bug in room.failed] == [(waiters[1], reason)]
    assert (room.count, room.watched_count, waiters[1].is_gone) == (0, 0, True)
    room.drop(connections[1])
    assert room.count == 0, "it has left once"


def test_who_drives_a_room_without_connections_hears_of_bugs(partition: Partition) -> None:
    room = WaitingRoom()
    room.park(Broken(100, partition), Connection(1_000))
    room.on_moved(partition)
    with pytest.raises(RecursionError):
        room.wake()
