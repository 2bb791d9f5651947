"""Ranges of files on their way to a socket: cold pages, pages that cannot be read, files that were cut."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tidelog.base.files import DiskDirectory, File, FileSlice
from tidelog.protocol.connection import Piece
from tidelog.server.page_cache import OnWarm, PageCache
from tidelog.server.sockets import Sockets
from tidelog.server.stream import Stream

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


class ColdPages(PageCache):
    """Pages that are cold until the test says otherwise; jobs that end when it calls them."""

    def __init__(self) -> None:
        self.is_cold = True
        self.jobs: list[OnWarm] = []

    def probe(self, descriptor: int, position: int, size: int) -> bool:
        return not self.is_cold

    def warm(self, descriptor: int, position: int, size: int, then: OnWarm) -> None:
        self.jobs.append(then)


class Quiet:
    """What a stream is for, of which nothing is asked here but to close it."""

    def __init__(self, sock: socket.socket) -> None:
        self.watched = Watched()
        self.cold = ColdPages()
        self.problems: list[str] = []
        self.unreadable: list[tuple[str, OSError]] = []
        self.is_closed = False
        buffer = memoryview(bytearray(1_000))
        self.stream = Stream(sock, cast(Sockets, self.watched), self.cold, buffer)
        self.stream.begin(self)

    def send(self, *pieces: Piece) -> None:
        self.stream.enqueue([*pieces])
        self.stream.write()

    def on_readable(self) -> None:
        raise AssertionError("nothing was sent")

    def on_progress(self) -> None:
        pass

    def on_unreadable(self, file: File, failure: OSError) -> None:
        self.unreadable.append((file.name, failure))

    def close(self, reason: str | None = None) -> None:
        self.problems += [reason] if reason else []
        self.is_closed = True
        self.stream.close()


def drain(client: socket.socket) -> bytes:
    received = b""
    while True:
        try:
            received += client.recv(1 << 20)
        except BlockingIOError:
            return received


def test_a_slow_client_s_cold_read_is_one_job_at_a_time(tmp_path: Path) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        client.setblocking(False)
        host = Quiet(ours)
        loop, probe = host.watched, host.cold
        host.send(HEAD, FileSlice(file, 0, len(BODY)))
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
        probe.jobs[0](None)
        received += drain(client)
        while loop.writer is not None:
            loop.writer()
            received += drain(client)
        assert (received == HEAD + BODY, len(probe.jobs)) == (True, 1)
        host.close()
    file.close()
    assert host.problems == []


def test_a_file_that_cannot_be_read_closes_the_connection_and_is_told(tmp_path: Path) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        host = Quiet(ours)
        host.send(b"head", FileSlice(file, 0, len(BODY)))
        failure = OSError(errno.EIO, os.strerror(errno.EIO))
        host.cold.jobs[0](failure)
        assert host.is_closed and not file.is_pinned
        assert (host.unreadable, len(host.cold.jobs)) == ([("pages", failure)], 1), "it is not tried again"
        assert client.recv(100) == b"head" and client.recv(100) == b""
    file.close()


def test_pages_that_go_as_soon_as_they_were_read_are_sent_all_the_same(tmp_path: Path) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        client.setblocking(False)
        host = Quiet(ours)
        host.send(b"head", FileSlice(file, 0, len(BODY)))
        host.cold.jobs[0](None)  # and the probe says that they are cold again
        received = drain(client)
        while host.watched.writer is not None:
            host.watched.writer()
            received += drain(client)
        assert (received == b"head" + BODY, len(host.cold.jobs)) == (True, 1)
        host.close()
    file.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
def test_a_disk_that_fails_under_sendfile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)

    def fails(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "sendfile", fails)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        host = Quiet(ours)
        host.cold.is_cold = False
        host.send(b"head", FileSlice(file, 0, len(BODY)))
        assert host.is_closed and [name for name, _ in host.unreadable] == ["pages"]
    file.close()


def test_a_file_that_was_cut_under_a_slice_is_not_sent(tmp_path: Path) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        host = Quiet(ours)
        host.cold.is_cold = False
        host.stream.enqueue([b"head", FileSlice(file, 0, len(BODY))])
        file.truncate(0)
        file.append(b"x" * len(BODY))  # as long as it was, and not what was promised
        host.stream.write()
        assert host.is_closed and host.problems == ["a file was cut while it was being sent"]
        assert client.recv(100) == b"head" and client.recv(100) == b""
    file.close()


def test_a_file_that_is_cut_while_its_pages_are_read_is_not_sent(tmp_path: Path) -> None:
    file = DiskDirectory(str(tmp_path)).open("pages")
    file.append(BODY)
    ours, client = socket.socketpair()
    with ours, client:
        ours.setblocking(False)
        host = Quiet(ours)
        host.send(b"head", FileSlice(file, 0, len(BODY)))
        file.truncate(10)
        file.append(b"x" * len(BODY))
        host.cold.is_cold = False
        host.cold.jobs[0](None)
        assert host.is_closed and client.recv(100) == b"head" and client.recv(100) == b""
    file.close()
