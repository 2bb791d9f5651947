"""`/metrics` and `/health` over HTTP/1.1, on an address of their own and on the broker's loop.

| request                                     | answer                                                |
|---------------------------------------------|-------------------------------------------------------|
| GET or HEAD of `/metrics`                   | 200, Prometheus text, sent as it is made              |
| GET or HEAD of `/health`                    | 200 if the broker serves, 503 if not yet or no longer |
| another path, another method                | 404, 405                                              |
| a head that is not HTTP/1, or has a body    | 400, and the connection is closed                     |
| a head longer than `PROBE_HEAD_SIZE_MAX`    | 431, and the connection is closed                     |

**Invariant:** however many come, and however slowly they talk, the broker's clients do not notice: at most
`PROBE_CONNECTIONS_MAX` connections, and between two pieces of an answer the loop has its turn.
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
from tidelog.server.report import TRACEBACK
from tidelog.server.scrape import Watched, expose

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
        raise BadHead("a request line is a method, a path and HTTP/1.1")
    if not line.isprintable() or not parts[0].isalpha():
        raise BadHead("a request line has no such characters")
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not name or any(not 0x21 <= ord(mark) < 0x7F for mark in name):
            raise BadHead("a header is a name, a colon and a value")
        headers[name.lower()] = value.strip(" \t").lower()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadHead("a request here has no body")
    is_new = parts[2] == "HTTP/1.1"
    keeps_alive = is_new and "close" not in headers.get("connection", "")
    return Head(parts[0], parts[1].partition("?")[0], is_new, keeps_alive)


class _Client:
    """One connection: whether it is being answered, or may be dropped for another."""

    __slots__ = ("is_busy", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_busy = False

    def abort(self) -> None:
        self.writer.transport.abort()


class Probe:
    def __init__(self, watched: Watched, tell: Callable[[Event], None]) -> None:
        self._watched = watched
        self._tell = tell
        self._clients: dict[asyncio.Task[None], _Client] = {}  # whoever was answered last is last
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._on_client, sock=listening, limit=PROBE_HEAD_SIZE_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for client in list(self._clients.values()):
            client.abort()
        if self._clients:
            await asyncio.wait(list(self._clients))

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(reader, writer)
        task = asyncio.current_task()
        assert task is not None
        if not self._make_room():
            client.abort()
            return
        self._clients[task] = client
        try:
            while await self._serve_one(client) and self._clients.pop(task, None) is not None:
                self._clients[task] = client
        except (OSError, EOFError, TimeoutError):  # it is gone, or takes too long
            pass
        except Exception as bug:
            lines = "".join(traceback.format_exception(bug))
            self._tell(error("the probe failed", **{TRACEBACK: lines}))
        finally:
            self._clients.pop(task, None)
            if client.is_busy:
                client.abort()
            else:
                writer.close()

    def _make_room(self) -> bool:
        """Whoever has been silent for longest goes, so that nobody can keep a health check out."""
        if len(self._clients) < PROBE_CONNECTIONS_MAX:
            return True
        silent = next((task for task, client in self._clients.items() if not client.is_busy), None)
        if silent is None:
            return False
        self._clients.pop(silent).abort()
        return True

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
        async with asyncio.timeout(PROBE_ANSWER_SECONDS_MAX):
            await self._answer(client, head)
        client.is_busy = False
        return head.keeps_alive

    async def _refuse(self, client: _Client, status: int, reason: str) -> None:
        """The last answer of a connection: what follows in its stream means nothing."""
        async with asyncio.timeout(PROBE_ANSWER_SECONDS_MAX):
            await self._send(client, Head("GET", "", True, False), status, _PLAIN, f"{reason}\n")

    async def _answer(self, client: _Client, head: Head) -> None:
        if head.path not in ("/metrics", "/health"):
            await self._send(client, head, 404, _PLAIN, "there are /metrics and /health\n")
        elif head.method not in METHODS:
            await self._send(client, head, 405, _PLAIN, "only GET and HEAD\n", "Allow: GET, HEAD\r\n")
        elif head.path == "/health":
            status, body = self._health()
            await self._send(client, head, status, "application/json", body)
        else:
            await self._send_pieces(client, head)

    def _health(self) -> tuple[int, str]:
        broker = self._watched.broker
        status = "failed" if broker.has_failed else "ok" if broker.is_serving else "starting"
        directories = broker.partitions.directories
        facts = {
            "status": status,
            "broker_id": broker.node_id,
            "cluster_id": broker.image.cluster_id,
            "uptime_seconds": self._watched.uptime_ms // 1_000,
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
