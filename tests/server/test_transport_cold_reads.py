"""A slow client's cold pages: one job of a thread at a time, however often the socket can be written to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tidelog.base.files import DiskDirectory, FileSlice
from tidelog.server.pages import PageProbe
from tidelog.server.sockets import Sockets
from tidelog.server.transport import Transport

HEAD = b"h" * 2_000_000  # more than a socket takes at once
BODY = b"b" * 100_000


class Watched:
    """Sockets whose turns the test takes: who is called when the socket can be written to."""

    def __init__(self) -> None:
        self.writer: Callable[..., Any] | None = None

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        pass

    def remove_reader(self, fd: Any) -> bool:
        return True

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self.writer = callback

    def remove_writer(self, fd: Any) -> bool:
        self.writer = None
        return True


class ColdPages(PageProbe):
    """Pages that are cold until the test says otherwise; jobs that end when it calls them."""

    def __init__(self) -> None:
        self.is_cold = True
        self.jobs: list[Callable[[], None]] = []

    def is_warm(self, descriptor: int, position: int, size: int) -> bool:
        return not self.is_cold

    def warm(self, descriptor: int, position: int, size: int, then: Callable[[], None]) -> None:
        self.jobs.append(then)


class QuietHost:
    """The server's part, of which nothing is asked here."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.loop = cast(asyncio.AbstractEventLoop, None)
        self.sockets = cast(Sockets, self.watched)
        self.receive_buffer = memoryview(bytearray(1_000))
        self.cold = ColdPages()
        self.probe: PageProbe = self.cold

    def on_frames(self, transport: Transport, frames: list[memoryview]) -> None:
        raise AssertionError("nothing was sent")

    def end_turn(self) -> None:
        pass

    def on_problem(self, transport: Transport, reason: str) -> None:
        raise AssertionError(reason)

    def on_closed(self, transport: Transport) -> None:
        pass

    def on_buffered(self, change: int) -> None:
        pass


def drain(client: socket.socket) -> bytes:
    received = b""
    while True:
        try:
            received += client.recv(1 << 20)
        except BlockingIOError:
            return received


def test_a_slow_client_s_cold_read_is_one_job_at_a_time(tmp_path: Path) -> None:
    host = QuietHost()
    loop, probe = host.watched, host.cold
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        client.setblocking(False)
        transport = Transport(host, ours, ("client", 1), 1_000)
        transport.connection.answer([HEAD, FileSlice(file, 0, len(BODY))])
        transport.flush()
        assert loop.writer is not None, "the client did not take everything at once"
        received = b""
        turns = 0
        while loop.writer is not None and turns < 1_000:
            received += drain(client)
            loop.writer()
            turns += 1
        received += drain(client)
        assert (received, len(probe.jobs)) == (HEAD, 1)
        assert loop.writer is None, "the loop would turn without end until the pages are there"
        probe.is_cold = False
        probe.jobs[0]()
        received += drain(client)
        while loop.writer is not None:
            loop.writer()
            received += drain(client)
        assert (received == HEAD + BODY, len(probe.jobs)) == (True, 1)
        transport.close()
    file.close()
