"""Sockets that are ready at the same moment share a turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from tidelog.base.limits import SOCKETS_PER_TURN
from tidelog.server import sockets as sockets_module
from tidelog.server.poll import READABLE, WRITABLE, Poll, SelectorPoll, new_poll
from tidelog.server.selector import EagerLoop
from tidelog.server.sockets import Sockets


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a turn takes on the machine of these tests, it is none that ends before all are served."""
    monkeypatch.setattr(sockets_module, "TURN_NS_LONG", 10**12)


class Table:
    """Pairs of sockets in a loop; who was served, and where turns ended."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.told: list[str] = []
        self.sockets = Sockets(self.loop, lambda: self.told.append("end"))
        self.pairs = [socket.socketpair() for _ in range(count)]

    def watch(self, place: int) -> None:
        def serve() -> None:
            self.pairs[place][0].recv(100)
            self.told.append(str(place))

        self.sockets.add_reader(self.pairs[place][0].fileno(), serve)

    def turn(self) -> list[str]:
        """What was told in one round of the loop."""
        self.told.clear()
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return list(self.told)


@contextmanager
def table_of(count: int, loop: type[asyncio.AbstractEventLoop] = EagerLoop) -> Iterator[Table]:
    table = Table(count, loop())
    with closing(table.loop):
        yield table
        table.sockets.close()
        for ours, theirs in table.pairs:
            ours.close()
            theirs.close()


@pytest.mark.parametrize("loop", [EagerLoop, asyncio.SelectorEventLoop])
def test_who_is_ready_at_once_is_served_in_one_turn(loop: type[asyncio.AbstractEventLoop]) -> None:
    with table_of(3, loop) as table:
        for place in range(3):
            table.watch(place)
            table.pairs[place][1].send(b"x")
        assert sorted(table.turn()[:3]) == ["0", "1", "2"]
        assert table.told[3:] == ["end"]
        assert table.turn() == []


def test_a_crowd_is_served_in_several_turns() -> None:
    count = SOCKETS_PER_TURN + 1
    with table_of(count) as table:
        for place in range(count):
            table.watch(place)
            table.pairs[place][1].send(b"x")
        told = table.turn()
        assert told[SOCKETS_PER_TURN] == told[-1] == "end"
        assert len(told) == count + 2


def test_a_turn_that_takes_long_ends_before_all_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "TURN_NS_LONG", -1)
    with table_of(2) as table:
        for place in range(2):
            table.watch(place)
            table.pairs[place][1].send(b"x")
        told = table.turn()
        assert (sorted(told), told[1], told[3]) == (["0", "1", "end", "end"], "end", "end")


def test_a_callback_that_was_taken_back_in_the_same_turn_is_not_called() -> None:
    with table_of(2) as table:
        first, second = (pair[0] for pair in table.pairs)

        def serve(place: int, other: socket.socket) -> None:
            table.told.append(str(place))
            table.sockets.remove_reader(other.fileno())

        table.sockets.add_reader(first.fileno(), lambda: serve(0, second))
        table.sockets.add_reader(second.fileno(), lambda: serve(1, first))
        for _, theirs in table.pairs:
            theirs.send(b"x")
        told = table.turn()
        assert len(told) > 1 and len({*told} - {"end"}) == 1


def test_a_socket_can_be_watched_for_both_and_for_one_again() -> None:
    with table_of(1) as table:
        ours = table.pairs[0][0].fileno()
        table.watch(0)

        def write() -> None:
            table.told.append("writable")
            table.sockets.remove_writer(ours)

        table.sockets.add_writer(ours, write)
        assert table.turn() == ["writable", "end"]
        assert table.turn() == []
        table.pairs[0][1].send(b"x")
        assert table.turn() == ["0", "end"]
        table.sockets.remove_reader(ours)
        table.pairs[0][1].send(b"x")
        assert table.turn() == []


def test_a_turn_that_fails_is_told_and_the_next_one_comes() -> None:
    with table_of(1) as table:
        told: list[object] = []
        table.loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        bug = RuntimeError("a bug")

        def fail() -> None:
            raise bug

        table.sockets.add_reader(table.pairs[0][0].fileno(), fail)
        table.pairs[0][1].send(b"x")
        table.turn()
        assert told == [bug]
        table.watch(0)
        assert table.turn() == ["0", "end"]


def test_what_is_not_served_in_place_is_the_loop_s() -> None:
    with table_of(2) as table:
        table.watch(0)
        table.loop.add_reader(table.pairs[1][0].fileno(), lambda: table.told.append("the loop's"))
        for _, theirs in table.pairs:
            theirs.send(b"x")
        assert sorted(table.turn()) == ["0", "end", "the loop's"]
        table.loop.remove_reader(table.pairs[1][0].fileno())


@pytest.mark.parametrize("make", [new_poll, SelectorPoll])
def test_every_poll_tells_the_same(make: Callable[[], Poll]) -> None:
    poll, (ours, theirs) = make(), socket.socketpair()
    with closing(poll), closing(ours), closing(theirs):
        poll.register(ours.fileno(), READABLE)
        assert poll.poll(0) == []
        theirs.send(b"x")
        assert poll.poll(0) == [(ours.fileno(), READABLE)]
        poll.modify(ours.fileno(), READABLE | WRITABLE)
        assert poll.poll(0) == [(ours.fileno(), READABLE | WRITABLE)]
        theirs.close()
        (ready,) = poll.poll(0)
        assert ready[1] & ~WRITABLE and ready[1] & ~READABLE, "the end is for both"
        poll.unregister(ours.fileno())
        assert poll.poll(0) == []
