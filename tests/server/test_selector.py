"""The loop that sleeps in the poll of its sockets: what is called for is heard, and nobody spins in vain."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tidelog.base.limits import SPIN_AFTER_SECONDS_MAX, SPIN_SECONDS, SPIN_WORTH_MAX
from tidelog.server.poll import READABLE, Found
from tidelog.server.selector import EagerLoop, EagerSelector
from tidelog.server.sockets import Sockets

LONG_SECONDS = 60.0
BUSY: Found = [(7, READABLE)]


class Served:
    """One socket of a loop, and what it does when it is ready."""

    def __init__(self, loop: EagerLoop) -> None:
        self.loop = loop
        self.sockets = Sockets(loop, lambda: None)
        self._ours, self.theirs = socket.socketpair()

    def on_ready(self, act: object) -> None:
        def serve() -> None:
            self._ours.recv(100)
            assert callable(act)
            act()

        self.sockets.add_reader(self._ours.fileno(), serve)

    def close(self) -> None:
        self.sockets.close()
        self._ours.close()
        self.theirs.close()


@contextmanager
def served_by_a_loop() -> Iterator[Served]:
    """Whose next timer is far away, so that it sleeps in its sockets' poll."""
    with closing(EagerLoop()) as loop:
        served = Served(loop)
        loop.call_later(LONG_SECONDS, pytest.fail, "nobody woke the loop")
        with closing(served):
            yield served


def test_what_a_socket_calls_for_runs_at_once() -> None:
    with served_by_a_loop() as served:
        served.on_ready(lambda: served.loop.call_soon(served.loop.stop))
        served.theirs.send(b"x")
        served.loop.run_forever()


def test_a_timer_that_a_socket_sets_is_not_slept_through() -> None:
    with served_by_a_loop() as served:
        served.on_ready(lambda: served.loop.call_later(0.01, served.loop.stop))
        served.theirs.send(b"x")
        served.loop.run_forever()


def test_a_task_that_a_socket_lets_go_on_goes_on() -> None:
    async def wait_for(event: asyncio.Event) -> str:
        await event.wait()
        return "gone on"

    with served_by_a_loop() as served:
        event = asyncio.Event()
        served.on_ready(event.set)
        served.theirs.send(b"x")
        assert served.loop.run_until_complete(wait_for(event)) == "gone on"


def test_another_thread_wakes_a_loop_that_sleeps() -> None:
    with served_by_a_loop() as served:
        thread = threading.Timer(0.05, served.loop.call_soon_threadsafe, [served.loop.stop])
        thread.start()
        served.loop.run_forever()
        thread.join()


def test_what_the_loop_watches_itself_is_seen_while_sockets_are_always_ready() -> None:
    with served_by_a_loop() as served:
        ours, theirs = socket.socketpair()
        with closing(ours), closing(theirs):
            served.on_ready(lambda: served.theirs.send(b"x"))  # which makes it ready again
            served.loop.add_reader(ours.fileno(), served.loop.stop)
            served.theirs.send(b"x")
            theirs.send(b"x")
            served.loop.run_forever()
            served.loop.remove_reader(ours.fileno())


def test_a_timer_comes_while_sockets_are_always_ready() -> None:
    with served_by_a_loop() as served:
        served.on_ready(lambda: served.theirs.send(b"x"))
        served.loop.call_later(0.01, served.loop.stop)
        served.theirs.send(b"x")
        served.loop.run_forever()


def test_a_socket_can_stop_the_loop() -> None:
    with served_by_a_loop() as served:
        served.on_ready(served.loop.stop)
        served.theirs.send(b"x")
        served.loop.run_forever()


def test_a_socket_can_end_the_serving_of_sockets() -> None:
    with closing(EagerLoop()) as loop, closing(Served(loop)) as served:
        loop.call_later(0.05, loop.stop)
        served.on_ready(served.sockets.close)
        served.theirs.send(b"x")
        loop.run_forever()


def test_sockets_have_many_turns_for_one_of_a_loop_that_always_has_something_to_do() -> None:
    counts = {"turns": 0, "pieces": 0}
    with served_by_a_loop() as served:

        def serve() -> None:
            counts["turns"] += 1
            served.theirs.send(b"x")
            if counts["turns"] == 200:
                served.loop.stop()

        def work() -> None:
            counts["pieces"] += 1
            served.loop.call_soon(work)

        served.on_ready(serve)
        served.theirs.send(b"x")
        served.loop.call_soon(work)
        served.loop.run_forever()
    assert counts["pieces"] < counts["turns"]


class Clock:
    """A clock that stands still but for what a script or a turn takes."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tidelog.server.selector.perf_counter", clock)
    return clock


class Script:
    """A poll that finds something when it was told to; it counts who looks in vain."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.looks = 0
        self.is_there = False  # something is ready whenever the loop looks,
        self.is_quick = False  # or as soon as it sleeps

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...

    def register(self, descriptor: int, events: int, /) -> None: ...

    def modify(self, descriptor: int, events: int, /) -> None: ...

    def unregister(self, descriptor: int, /) -> None: ...

    def poll(self, timeout: float | None, /) -> Found:
        if self.is_there:
            return BUSY
        if timeout == 0:
            self.looks += 1
            self._clock.seconds += SPIN_SECONDS / 4
            return []
        if not self.is_quick:
            self._clock.seconds += 2 * SPIN_SECONDS
        return BUSY


def select_once(selector: EagerSelector, poll: Script) -> int:
    """How often it looked in vain before it slept."""
    poll.looks = 0
    assert selector.select(LONG_SECONDS) == []
    return poll.looks


def test_looking_again_is_given_up_as_soon_as_it_is_not_worth_it(clock: Clock) -> None:
    with closing(EagerSelector()) as selector:
        poll = Script(clock)
        selector.serve(poll, lambda found: True)
        assert select_once(selector, poll) == 0, "nothing has been worth it yet"
        poll.is_quick = True
        assert select_once(selector, poll) == 0
        poll.is_quick, poll.is_there = False, True
        for _ in range(2 * SPIN_WORTH_MAX):
            select_once(selector, poll)
        poll.is_there = False
        looks = [bool(select_once(selector, poll)) for _ in range(2 * SPIN_WORTH_MAX)]
        assert looks == [True] * SPIN_WORTH_MAX + [False] * SPIN_WORTH_MAX


def test_after_a_turn_that_took_long_nobody_looks_again(clock: Clock) -> None:
    turn = {"seconds": 0.0}

    def serve(found: Found) -> bool:
        clock.seconds += turn["seconds"]
        return True

    with closing(EagerSelector()) as selector:
        poll = Script(clock)
        selector.serve(poll, serve)
        for seconds, does_look in ((0.0, True), (2 * SPIN_AFTER_SECONDS_MAX, False)):
            turn["seconds"] = seconds
            poll.is_quick = True
            select_once(selector, poll)
            poll.is_quick, poll.is_there = False, True
            for _ in range(SPIN_WORTH_MAX):
                select_once(selector, poll)
            poll.is_there = False
            assert bool(select_once(selector, poll)) is does_look


def test_one_that_comes_quickly_among_many_that_do_not_is_worth_one_look(clock: Clock) -> None:
    with closing(EagerSelector()) as selector:
        poll = Script(clock)
        selector.serve(poll, lambda found: True)
        for _ in range(5):
            poll.is_quick = True
            select_once(selector, poll)
            poll.is_quick = False
            assert [bool(select_once(selector, poll)) for _ in range(3)] == [True, False, False]
