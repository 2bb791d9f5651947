"""Connections to other brokers: one for each peer and lane, opened when there is something to send.

Each is one of the sockets that are watched together, and is read in their turn.

**Invariant:** whatever was sent on a connection and is unanswered when it ends, the broker hears of its end
once, in a turn of its own: never while its effects are carried out. What it sends meanwhile counts as sent
on that connection. The memory of a frame is whoever's it is given to until that returns.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Protocol

from tidelog.base.limits import PEER_BUFFER_KEPT_SIZE, PEER_HEAD_SIZE, PEER_UNSENT_BYTES_MAX
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.server.sockets import Sockets, set_low_water

CONNECT_TIMEOUT_S = 5.0
_SIZE_LENGTH = 4


class PeersOwner(Protocol):
    """Who is told what comes of it."""

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None: ...

    def on_peer_closed(self, node_id: int, lane: int) -> None: ...


class Peers:
    def __init__(
        self, owner: PeersOwner, loop: asyncio.AbstractEventLoop, sockets: Sockets, frame_size_max: int
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._sockets = sockets
        self._frame_size_max = frame_size_max
        self._links: dict[tuple[int, int], _Link] = {}
        self._is_closed = False

    def send(self, effect: PeerSend) -> None:
        if self._is_closed:
            return
        key, address = (effect.node_id, effect.lane), (effect.host, effect.port)
        link = self._links.get(key)
        if link is not None and link.address != address:  # it lives elsewhere now
            link.close()
        if link is None:
            link = self._links[key] = _Link(self, self._sockets, key, address, self._frame_size_max)
            link.connecting = self._loop.create_task(self._connect(link))
        link.send(effect.frame)

    def drop(self, effect: PeerClose) -> None:
        link = self._links.pop((effect.node_id, effect.lane), None)
        if link is not None:
            link.close()

    async def _connect(self, link: _Link) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                link.begin(await self._open(*link.address))
        except (OSError, ValueError, OverflowError):  # also a name or a port that no host can have
            link.connecting = None
            link.close()

    async def _open(self, host: str, port: int) -> socket.socket:
        """Connected to the first of the host's addresses that takes it; OSError if none does."""
        failure = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                await self._loop.sock_connect(sock, address)
            except OSError as refused:
                failure = refused
                sock.close()
            except asyncio.CancelledError:
                sock.close()
                raise
            else:
                return sock
        raise failure

    def on_frame(self, link: _Link, frame: memoryview) -> None:
        if self._links.get(link.key) is link and not self._is_closed:
            self._owner.on_peer_frame(*link.key, frame)

    def on_ended(self, link: _Link) -> None:
        """The broker is told when what it does now is over."""
        if self._links.get(link.key) is link and not self._is_closed:
            self._loop.call_soon(self._tell_ended, link)

    def _tell_ended(self, link: _Link) -> None:
        if self._links.get(link.key) is link and not self._is_closed:
            del self._links[link.key]
            self._owner.on_peer_closed(*link.key)

    def close(self) -> None:
        self._is_closed = True
        for link in list(self._links.values()):
            link.close()


class _Link:
    """One connection. Small frames are taken where they came, as many as have come at once; the rest of a
    larger one is received where it will lie, in memory that is kept for the next."""

    def __init__(
        self,
        peers: Peers,
        sockets: Sockets,
        key: tuple[int, int],
        address: tuple[str, int],
        frame_size_max: int,
    ) -> None:
        self.key = key
        self.address = address
        self.connecting: asyncio.Task[None] | None = None
        self._peers = peers
        self._sockets = sockets
        self._frame_size_max = frame_size_max
        self._socket: socket.socket | None = None
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._is_ended = False
        self._head = memoryview(bytearray(PEER_HEAD_SIZE))
        self._large = memoryview(b"")  # what the last large frame was received in
        self._buffer = self._head
        self._filled = 0
        self._low_water = 1  # what must have come before the socket is ready

    def begin(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.add_reader(sock.fileno(), self._on_readable)
        if self._unsent:
            self._sockets.add_writer(sock.fileno(), self._on_writable)

    def send(self, frame: bytes | bytearray) -> None:
        """As far as the peer takes it now; the rest goes later, and the frame must stay as it is."""
        sock = self._socket
        if self._is_ended:
            return
        if sock is None or self._unsent:
            self._queue(memoryview(frame))
            return
        try:
            sent = sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(frame):
            self._queue(memoryview(frame)[sent:])
            self._sockets.add_writer(sock.fileno(), self._on_writable)

    def _queue(self, rest: memoryview) -> None:
        if self._unsent and self._unsent_size + len(rest) > PEER_UNSENT_BYTES_MAX:
            self.close()
            return
        self._unsent.append(rest)
        self._unsent_size += len(rest)

    def _on_writable(self) -> None:
        assert self._socket is not None
        first = self._unsent[0]
        try:
            sent = self._socket.send(first)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._unsent_size -= sent
        if sent < len(first):
            self._unsent[0] = first[sent:]
        else:
            self._unsent.popleft()
        if not self._unsent:
            self._sockets.remove_writer(self._socket.fileno())

    def close(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        if self.connecting is not None:
            self.connecting.cancel()
        sock, self._socket = self._socket, None
        if sock is not None:
            self._sockets.remove(sock.fileno())
            sock.close()
        self._unsent.clear()
        self._unsent_size = 0
        self._peers.on_ended(self)

    def _on_readable(self) -> None:
        assert self._socket is not None
        try:
            size = self._socket.recv_into(self._buffer[self._filled :])
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if size == 0:
            self.close()
            return
        self._filled += size
        if self._buffer is self._head:
            self._take_frames()
        elif self._filled == len(self._buffer):
            self._low_water = set_low_water(self._socket, 0, self._low_water)
            frame, self._buffer, self._filled = self._buffer, self._head, 0
            self._peers.on_frame(self, frame)
        else:
            missing_size = len(self._buffer) - self._filled
            self._low_water = set_low_water(self._socket, missing_size, self._low_water)

    def _take_frames(self) -> None:
        head, start, end = self._head, _SIZE_LENGTH, self._filled
        while start <= end:
            size = int.from_bytes(head[start - _SIZE_LENGTH : start], "big", signed=True)
            if not _SIZE_LENGTH < size <= self._frame_size_max:
                self.close()
                return
            if start + size > end:
                if start + size > len(head):
                    self._begin_large(size, head[start:end])
                    return
                break
            frame = head[start : start + size]
            start += size + _SIZE_LENGTH
            self._peers.on_frame(self, frame)
        rest = bytes(head[start - _SIZE_LENGTH : end])
        self._filled = len(rest)
        head[: len(rest)] = rest

    def _begin_large(self, size: int, received: memoryview) -> None:
        buffer = self._large[:size]
        if len(buffer) < size:
            buffer = memoryview(bytearray(size))
            if size <= PEER_BUFFER_KEPT_SIZE:
                self._large = buffer
        self._buffer, self._filled = buffer, len(received)
        assert self._socket is not None
        self._low_water = set_low_water(self._socket, size - len(received), self._low_water)
        buffer[: len(received)] = received
