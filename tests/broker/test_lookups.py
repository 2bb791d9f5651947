"""Look-ups that go on in pieces: who is looked at when they end, and how they fail."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.broker.parts import Stored, make_disks, make_kernel, make_partitions, make_topic, told
from tests.jobs import run_job
from tests.memory_store import MemoryStore
from tidelog.base.files import Cold
from tidelog.broker.data_plane.damaged import Damaged
from tidelog.broker.data_plane.lookups import ColdRead, Lookups
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.standing import Standing
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.log.pages import PageRead, Unready
from tidelog.log.scan import Damage
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode


class Steps:
    """Work of so many pieces, each of which may do something instead."""

    def __init__(self, *pieces: Callable[[], None]) -> None:
        self._pieces = list(pieces)

    def step(self) -> bool:
        self._pieces.pop(0)()
        return not self._pieces


def nothing() -> None:
    """A piece that goes well."""


def failing(failure: Exception) -> Callable[[], None]:
    def piece() -> None:
        raise failure

    return piece


class Looking:
    def __init__(self) -> None:
        self.kernel = make_kernel()
        self.disks = make_disks(self.kernel)
        partitions = make_partitions(self.kernel, self.disks, make_topic())
        (self.partition,) = partitions.all()
        desk = Stored(self.kernel, MemoryStore()).desk
        statements = Statements(1, Standing(1), desk, partitions)
        self.waiting = WaitingRoom()
        damaged = Damaged(self.kernel.outbox, statements)
        self.lookups = Lookups(self.kernel.outbox, self.disks, self.waiting, damaged)
        self.request = self.park()
        self.found: list[int] = []

    def park(self) -> Parked:
        request = Parked(10**9, [self.partition])
        self.waiting.park(request, Connection(1_000))
        return request

    def search(self, *pieces: Callable[[], None], is_at_once: bool = False) -> None:
        self.lookups.search(self.partition, Steps(*pieces), self.request, self.found.append, is_at_once)

    def work(self) -> int:
        """All that can be done now; how many pieces it took."""
        count = 0
        while self.lookups.has_work:
            self.lookups.work()
            count += 1
        return count


def test_each_piece_is_a_turn_of_its_own() -> None:
    looking = Looking()
    looking.search(nothing, nothing, nothing)
    assert looking.found == [] and looking.work() == 3
    assert looking.found == [ErrorCode.none]


def test_the_first_piece_may_be_enough() -> None:
    looking = Looking()
    looking.search(nothing, is_at_once=True)
    assert looking.found == [ErrorCode.none] and not looking.lookups.has_work


def test_searches_take_turns() -> None:
    looking = Looking()
    order: list[str] = []
    looking.search(lambda: order.append("a1"), lambda: order.append("a2"))
    looking.search(lambda: order.append("b1"), lambda: order.append("b2"))
    looking.work()
    assert order == ["a1", "b1", "a2", "b2"]


def test_a_search_whose_request_has_left_is_dropped() -> None:
    looking = Looking()
    done: list[str] = []
    looking.search(lambda: done.append("for nobody"))
    looking.request.is_gone = True
    assert looking.work() == 1 and (done, looking.found) == ([], [])


@pytest.mark.parametrize(
    "failure, code, event",
    [
        (OSError(errno.EIO, "Input/output error"), ErrorCode.kafka_storage_error, "directory offline"),
        (Damage("0.log", 5, "a hole"), ErrorCode.corrupt_message, "log damaged"),
    ],
    ids=["disk", "damage"],
)
def test_what_a_piece_meets_is_the_answer_s_error(failure: Exception, code: ErrorCode, event: str) -> None:
    looking = Looking()
    looking.search(nothing, failing(failure))
    looking.work()
    assert looking.found == [code] and told(looking.kernel.outbox) == [event]


def test_a_bug_ends_one_search_and_its_request() -> None:
    looking = Looking()
    looking.search(failing(ValueError("a bug")))
    failed, looking.request = looking.request, looking.park()
    looking.search(nothing)
    looking.work()
    assert failed.is_gone and not looking.request.is_gone and looking.found == [ErrorCode.none]


def test_cold_pages_are_read_once_by_a_thread_for_all_that_wait() -> None:
    looking = Looking()
    file = looking.partition.log.segments[0].file
    cold = failing(Unready(PageRead(Cold(file, 0, 100))))
    for _ in range(2):
        looking.search(cold, nothing)
    assert looking.work() == 2 and looking.found == []
    (read,) = looking.kernel.outbox.take_effects()
    assert isinstance(read, ColdRead)
    run_job(read)
    looking.work()
    assert looking.found == [ErrorCode.none] * 2
