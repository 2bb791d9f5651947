"""`/metrics` and `/health` over HTTP/1.1, on an address of their own and on the broker's loop.

| request                                     | answer                                                |
|---------------------------------------------|-------------------------------------------------------|
| GET or HEAD of `/metrics`                   | 200, Prometheus text, sent as it is made              |
| GET or HEAD of `/health`                    | 200 if the broker serves, 503 if not yet or no longer |
| another path, another method                | 404, 405                                              |
| a head that is not HTTP/1, or has a body    | 400, and the connection is closed                     |
| a head longer than `PROBE_HEAD_SIZE_MAX`    | 431, and the connection is closed                     |

**Invariant:** however many come, and however slowly they talk, the broker's clients do not notice: at most
`PROBE_CONNECTIONS_MAX` connections, and between two answers, or two pieces of one, the loop has its turn.
An answer is over when the client's socket has all of it, so that none is left behind uncounted.
"""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from tidelog.base.events import Event, error
from tidelog.base.limits import (
    PROBE_ANSWER_SECONDS_MAX,
    PROBE_CONNECTIONS_MAX,
    PROBE_HEAD_SIZE_MAX,
    PROBE_IDLE_SECONDS_MAX,
)
from tidelog.base.metrics import CONTENT_TYPE
from tidelog.server.process import open_file_count
from tidelog.server.watch.report import TRACEBACK
from tidelog.server.watch.scrape import Watched, expose

METHODS = ("GET", "HEAD")
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_PLAIN = "text/plain; charset=utf-8"


class BadHead(Exception):
    """Not a request that can be understood; the connection ends with the answer."""


class Head(NamedTuple):
    method: str
    path: str
    is_chunked: bool  # the client understands an answer in pieces, which HTTP/1.0 does not
    keeps_alive: bool


def parse_head(data: bytes) -> Head:
    """The head of a request, with the empty line that ends it."""
    line, *fields = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1") or not parts[1].startswith("/"):
        raise BadHead("bad request line; expected a method, a path and HTTP/1.1")
    if not line.isprintable() or not parts[0].isalpha():
        raise BadHead("bad characters in the request line")
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not name or any(not 0x21 <= ord(mark) < 0x7F for mark in name):
            raise BadHead("bad header; expected a name, a colon and a value")
        if name.lower() == "content-length" in headers:
            raise BadHead("more than one Content-Length")
        headers[name.lower()] = value.strip(" \t").lower()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadHead("a request body is not accepted")
    is_new = parts[2] == "HTTP/1.1"
    keeps_alive = is_new and "close" not in headers.get("connection", "")
    return Head(parts[0], parts[1].partition("?")[0], is_new, keeps_alive)


class _Client:
    """One connection, and whether it is being answered."""

    __slots__ = ("is_busy", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_busy = False
        writer.transport.set_write_buffer_limits(high=0)  # `drain` waits until all is with the kernel

    def abort(self) -> None:
        self.writer.transport.abort()

    def end(self) -> None:
        """Close it; what the client has not taken by now it never gets."""
        if self.is_busy:
            self.abort()
        else:
            self.writer.close()


class Probe:
    def __init__(self, watched: Watched, tell: Callable[[Event], None]) -> None:
        self._watched = watched
        self._tell = tell
        # The client that asked, or took a piece of an answer, last is last.
        self._clients: dict[_Client, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._on_client, sock=listening, limit=PROBE_HEAD_SIZE_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.abort()
        if self._clients:
            await asyncio.wait(list(self._clients.values()))

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._make_room()
        self._clients[client] = task
        try:
            while await self._serve_one(client) and client in self._clients:
                pass
        except (OSError, EOFError, TimeoutError):  # it is gone, or takes too long
            pass
        except Exception as bug:
            lines = "".join(traceback.format_exception(bug))
            self._tell(error("probe failed", **{TRACEBACK: lines}))
        finally:
            self._clients.pop(client, None)
            client.end()

    def _make_room(self) -> None:
        """Drop the client that was idle for longest, in the middle of an answer or not: a health check
        gets in."""
        while len(self._clients) >= PROBE_CONNECTIONS_MAX:
            client = next(iter(self._clients))
            del self._clients[client]
            client.abort()

    def _note_sign_of_life(self, client: _Client) -> None:
        task = self._clients.pop(client, None)
        if task is not None:
            self._clients[client] = task

    async def _serve_one(self, client: _Client) -> bool:
        """Read a request and answer it; whether there may be another."""
        try:
            async with asyncio.timeout(PROBE_IDLE_SECONDS_MAX):
                head = parse_head(await client.reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            await self._refuse(client, 431, f"more than {PROBE_HEAD_SIZE_MAX} bytes of headers")
            return False
        except BadHead as bad:
            await self._refuse(client, 400, str(bad))
            return False
        client.is_busy = True
        self._note_sign_of_life(client)
        async with asyncio.timeout(PROBE_ANSWER_SECONDS_MAX):
            await self._answer(client, head)
        client.is_busy = False
        self._note_sign_of_life(client)
        await asyncio.sleep(0)  # with more requests at hand, and room for their answers, nothing else waits
        return head.keeps_alive

    async def _refuse(self, client: _Client, status: int, reason: str) -> None:
        """The last answer of a connection: what follows in its stream means nothing."""
        client.is_busy = True
        async with asyncio.timeout(PROBE_ANSWER_SECONDS_MAX):
            await self._send(client, Head("GET", "", True, False), status, _PLAIN, f"{reason}\n")
        client.is_busy = False

    async def _answer(self, client: _Client, head: Head) -> None:
        if head.path not in ("/metrics", "/health"):
            await self._send(client, head, 404, _PLAIN, "not found; expected /metrics or /health\n")
        elif head.method not in METHODS:
            await self._send(client, head, 405, _PLAIN, "only GET and HEAD\n", "Allow: GET, HEAD\r\n")
        elif head.path == "/health":
            status, body = self._health()
            await self._send(client, head, status, "application/json", body)
        else:
            await self._send_pieces(client, head)

    def _health(self) -> tuple[int, str]:
        broker = self._watched.broker
        status = "failed" if broker.is_failing else "ok" if broker.is_serving else "starting"
        directories = broker.disks.directories
        facts = {
            "status": status,
            "broker_id": broker.node_id,
            "cluster_id": broker.image.cluster_id,
            "uptime_seconds": self._watched.vitals.uptime_ms // 1_000,
            "offline_directories": [each.path for each in directories if each.failure is not None],
        }
        return 200 if status == "ok" else 503, json.dumps(facts) + "\n"

    async def _send(
        self, client: _Client, head: Head, status: int, kind: str, body: str, more: str = ""
    ) -> None:
        data = body.encode()
        top = _top(head, status, kind, f"{more}Content-Length: {len(data)}\r\n")
        client.writer.write(top if head.method == "HEAD" else top + data)
        await client.writer.drain()

    async def _send_pieces(self, client: _Client, head: Head) -> None:
        writer = client.writer
        framing = "Transfer-Encoding: chunked\r\n" if head.is_chunked else ""
        writer.write(_top(head, 200, CONTENT_TYPE, framing))
        if head.method == "GET":
            async for piece in self._pieces():
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if head.is_chunked else piece)
                await writer.drain()
                self._note_sign_of_life(client)
            if head.is_chunked:
                writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _pieces(self) -> AsyncIterator[bytes]:
        open_files = await asyncio.to_thread(open_file_count)
        for piece in expose(self._watched, open_files):
            if piece:
                yield piece.encode()
            await asyncio.sleep(0)


def _top(head: Head, status: int, kind: str, more: str) -> bytes:
    """The status line and the headers of an answer."""
    ending = "" if head.keeps_alive else "Connection: close\r\n"
    lines = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n{more}{ending}"
    return f"{lines}Cache-Control: no-store\r\n\r\n".encode()
