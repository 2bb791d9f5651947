"""Connections to other brokers: one for each peer and lane, opened when there is something to send.

**Invariant:** whatever was sent on a connection and is unanswered when it ends, the broker hears of its end
once.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from tidelog.broker.peers import PeerClose, PeerSend

CONNECT_TIMEOUT_S = 5.0
_SIZE_LENGTH = 4
_HEAD_SIZE = 65_536


class PeersOwner(Protocol):
    """Who is told what comes of it."""

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None: ...

    def on_peer_closed(self, node_id: int, lane: int) -> None: ...


class Peers:
    def __init__(self, owner: PeersOwner, loop: asyncio.AbstractEventLoop, frame_size_max: int) -> None:
        self._owner = owner
        self._loop = loop
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
            link = None
        if link is None:
            link = self._links[key] = _Link(self, key, address, self._frame_size_max)
            link.connecting = self._loop.create_task(self._connect(link))
        link.send(effect.frame)

    def drop(self, effect: PeerClose) -> None:
        link = self._links.pop((effect.node_id, effect.lane), None)
        if link is not None:
            link.close()

    async def _connect(self, link: _Link) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(lambda: link, *link.address)
        except OSError:
            self.on_ended(link)

    def on_frame(self, link: _Link, frame: memoryview) -> None:
        if self._links.get(link.key) is link and not self._is_closed:
            self._owner.on_peer_frame(*link.key, frame)

    def on_ended(self, link: _Link) -> None:
        if self._links.get(link.key) is link:
            del self._links[link.key]
            if not self._is_closed:
                self._owner.on_peer_closed(*link.key)

    def close(self) -> None:
        self._is_closed = True
        for link in list(self._links.values()):
            link.close()


class _Link(asyncio.BufferedProtocol):
    """One connection. Small frames are taken from a buffer of its own, as many as have come at once; the rest
    of a larger one is received where it will lie."""

    def __init__(
        self, peers: Peers, key: tuple[int, int], address: tuple[str, int], frame_size_max: int
    ) -> None:
        self.key = key
        self.address = address
        self.connecting: asyncio.Task[None] | None = None
        self._peers = peers
        self._frame_size_max = frame_size_max
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes | bytearray] = []
        self._head = memoryview(bytearray(_HEAD_SIZE))
        self._buffer = self._head
        self._filled = 0

    def send(self, frame: bytes | bytearray) -> None:
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def close(self) -> None:
        if self.connecting is not None:
            self.connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._peers.on_ended(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            transport.write(frame)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._buffer is self._head:
            self._take_frames()
        elif self._filled == len(self._buffer):
            frame, self._buffer, self._filled = self._buffer, self._head, 0
            self._peers.on_frame(self, frame)

    def _take_frames(self) -> None:
        head, start, end = self._head, _SIZE_LENGTH, self._filled
        while start <= end:
            size = int.from_bytes(head[start - _SIZE_LENGTH : start], "big", signed=True)
            if not _SIZE_LENGTH < size <= self._frame_size_max:
                self.close()
                return
            if start + size > end:
                if start + size > len(head):
                    self._buffer, self._filled = memoryview(bytearray(size)), end - start
                    self._buffer[: self._filled] = head[start:end]
                    return
                break
            frame = memoryview(bytes(head[start : start + size]))
            start += size + _SIZE_LENGTH
            self._peers.on_frame(self, frame)
        rest = bytes(head[start - _SIZE_LENGTH : end])
        self._filled = len(rest)
        head[: len(rest)] = rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.on_ended(self)
