"""Connections to other brokers: one for each peer and lane, opened when there is something to send.

Each is a stream among those of the clients, and is read in their turn.

**Invariant:** whatever was sent on a connection and is unanswered when it ends, the broker hears of its end
once, in a turn of its own: never while its effects are carried out. What it sends meanwhile counts as sent
on that connection. The memory of a frame is whoever's it is given to until that returns.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from tidelog.base.files import File
from tidelog.base.limits import PEER_BUFFER_KEPT_SIZE, PEER_CONNECT_SECONDS_MAX, PEER_UNSENT_BYTES_MAX
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.protocol.framing import ANSWER_SIZE_MIN, FrameCutter
from tidelog.server.stream import Stream, Streams

_FRAME_SIZE_MIN = ANSWER_SIZE_MIN + 1  # there is something to answer


class PeersOwner(Protocol):
    """Who is told what comes of it."""

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None: ...

    def on_peer_closed(self, node_id: int, lane: int) -> None: ...


class Peers:
    def __init__(
        self, owner: PeersOwner, loop: asyncio.AbstractEventLoop, streams: Streams, frame_size_max: int
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._streams = streams
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
            link = self._links[key] = _Link(self, key, address, self._frame_size_max)
            link.connecting = self._loop.create_task(self._connect(link))
        link.send(effect.frame)

    def drop(self, effect: PeerClose) -> None:
        link = self._links.pop((effect.node_id, effect.lane), None)
        if link is not None:
            link.close()

    async def _connect(self, link: _Link) -> None:
        try:
            async with asyncio.timeout(PEER_CONNECT_SECONDS_MAX):
                sock = await self._open(*link.address)
            link.begin(self._streams.open(sock))
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
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
    """One connection, and what is to be sent over it before it stands."""

    def __init__(
        self, peers: Peers, key: tuple[int, int], address: tuple[str, int], frame_size_max: int
    ) -> None:
        self.key = key
        self.address = address
        self.connecting: asyncio.Task[None] | None = None
        self.is_ended = False
        self._peers = peers
        self._stream: Stream | None = None
        self._frames = FrameCutter(_FRAME_SIZE_MIN, frame_size_max, _LinkMemory())
        self._early: list[bytes | bytearray] = []
        self._early_size = 0

    def begin(self, stream: Stream) -> None:
        self.connecting = None
        self._stream = stream
        stream.begin(self)
        for frame in self._early:
            stream.enqueue(frame)
        self._early = []
        stream.write()

    def send(self, frame: bytes | bytearray) -> None:
        """As far as the peer takes it now; the rest goes later, and the frame must stay as it is."""
        if self.is_ended:
            return
        stream = self._stream
        unsent_size = self._early_size if stream is None else stream.unsent_size
        if unsent_size and unsent_size + len(frame) > PEER_UNSENT_BYTES_MAX:
            self.close()
        elif stream is None:
            self._early.append(frame)
            self._early_size += len(frame)
        else:
            stream.send(frame)

    def on_readable(self) -> None:
        assert self._stream is not None
        for frame in self._stream.receive(self._frames) or ():
            self._peers.on_frame(self, frame)
        self._frames.end_frame()

    def on_progress(self) -> None:
        pass

    def on_unreadable(self, file: File, failure: OSError) -> None:
        raise AssertionError("a peer is sent no files")

    def close(self, reason: str | None = None) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        if self.connecting is not None:
            self.connecting.cancel()
        if self._stream is not None:
            self._stream.close()
        self._early = []
        self._peers.on_ended(self)


class _LinkMemory:
    """What the last large frame was received in, for the next; a peer's sizes are believed at once."""

    def __init__(self) -> None:
        self._large = memoryview(b"")

    def spare(self, size: int) -> memoryview:
        buffer = self._large
        if len(buffer) < size:
            buffer = memoryview(bytearray(size))
            if size <= PEER_BUFFER_KEPT_SIZE:
                self._large = buffer
        return buffer

    def allocate(self, size: int) -> memoryview:
        return self.spare(size)

    def give_back(self, buffer: memoryview) -> None:
        pass
