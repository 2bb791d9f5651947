"""What comes from another broker arrives whole, however the network cuts it."""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.broker.peers import PeerSend
from tidelog.client.spare import is_free
from tidelog.server import peers as peers_module
from tidelog.server.page_cache import PageCache
from tidelog.server.peers import Peers
from tidelog.server.sockets import Sockets
from tidelog.server.stream import Streams

FRAMES = [
    b"small",
    bytes(range(256)) * 3,
    b"x" * 65_532,
    b"y" * 65_533,
    b"z" * 300_000,
    b"w" * 100_000,
    b"last!",
]


class Owner:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = asyncio.Event()

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        self.closed.set()


def streams_of(sockets: Sockets) -> Streams:
    return Streams(sockets, PageCache(ThreadPoolExecutor(1), print))


async def receive(pieces: list[bytes], owner: Owner, frame_size_max: int = 1_000_000) -> Owner:
    """What a broker hears of a peer that answers with these pieces, each alone, and goes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(b"asked"))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        sockets = Sockets(loop, lambda: None)
        peers = Peers(owner, loop, streams_of(sockets), frame_size_max)
        peers.send(PeerSend(1, 0, "127.0.0.1", port, b"asked"))
        await asyncio.wait_for(owner.closed.wait(), 30)
        peers.close()
        sockets.close()
    return owner


async def hear(pieces: list[bytes]) -> Owner:
    return await receive(pieces, Owner())


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1_000, 65_536, 70_000, 10**9])
def test_frames_come_whole_in_pieces_of_any_size(size: int) -> None:
    frames = FRAMES if size >= 1_000 else FRAMES[:2]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    owner = asyncio.run(hear([stream[at : at + size] for at in range(0, len(stream), size)]))
    assert owner.frames == frames


@pytest.mark.parametrize("size", [-1, 0, 4, 1_000_001])
def test_a_size_that_no_answer_has_ends_the_connection(size: int) -> None:
    """With what came beside it in the same read."""
    good = len(FRAMES[0]).to_bytes(4, "big") + FRAMES[0]
    owner = asyncio.run(hear([good + size.to_bytes(4, "big", signed=True) + b"rest", good]))
    assert owner.frames == []


class MemoryOwner(Owner):
    """Looks, with each frame, whether the memory of large ones before it is still in use."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[bytearray] = []
        self.are_free: list[bool] = []

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        self.are_free = [is_free(buffer) for buffer in self.memory]
        if len(frame) > FRAME_GROWTH_SIZE:
            assert isinstance(frame.obj, bytearray)
            self.memory.append(frame.obj)


def test_the_memory_of_a_frame_that_is_too_large_to_keep_goes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "PEER_BUFFER_KEPT_SIZE", FRAME_GROWTH_SIZE)
    frames = [bytes(2 * FRAME_GROWTH_SIZE), b"small"]
    pieces = [len(frame).to_bytes(4, "big") + frame for frame in frames]
    owner = MemoryOwner()
    asyncio.run(receive(pieces, owner, 4 * FRAME_GROWTH_SIZE))
    assert owner.are_free == [True]


def test_a_peer_whose_connection_cannot_be_set_up_is_told_as_one_that_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some systems refuse options of a connection that was reset at once."""

    def refuse(sock: socket.socket, *option: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    async def live() -> None:
        owner, loop = Owner(), asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sockets = Sockets(loop, lambda: None)
            peers = Peers(owner, loop, streams_of(sockets), 1_000_000)
            monkeypatch.setattr(socket.socket, "setsockopt", refuse)
            peers.send(PeerSend(1, 0, "127.0.0.1", listening.getsockname()[1], b"asked"))
            await asyncio.wait_for(owner.closed.wait(), 30)
            peers.close()
            sockets.close()

    asyncio.run(live())


def test_what_a_peer_does_not_take_at_once_is_sent_when_it_does() -> None:
    async def live() -> bytes:
        owner, came = Owner(), asyncio.get_running_loop().create_future()
        frames = [bytes([number]) * 3_000_000 for number in range(4)]

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set_result(await reader.readexactly(sum(map(len, frames))))
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        async with server:
            loop = asyncio.get_running_loop()
            sockets = Sockets(loop, lambda: None)
            peers = Peers(owner, loop, streams_of(sockets), 1_000_000)
            port = server.sockets[0].getsockname()[1]
            for frame in frames:
                peers.send(PeerSend(1, 0, "localhost", port, frame))
                await asyncio.sleep(0)
            received: bytes = await asyncio.wait_for(came, 30)
            await asyncio.wait_for(owner.closed.wait(), 30)
            peers.close()
            sockets.close()
        assert received == b"".join(frames)
        return received

    assert asyncio.run(live())


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 1), ("a" * 64, 9092), ("127.0.0.1", 1_000_000), ("a\0b", 9092)]
)
def test_a_peer_that_is_not_there_is_told_as_one_that_has_gone(host: str, port: int) -> None:
    """Also one that nobody could be at."""

    async def live() -> None:
        owner, loop = Owner(), asyncio.get_running_loop()
        sockets = Sockets(loop, lambda: None)
        peers = Peers(owner, loop, streams_of(sockets), 1_000_000)
        peers.send(PeerSend(1, 0, host, port, b"asked"))
        await asyncio.wait_for(owner.closed.wait(), 30)
        peers.close()
        sockets.close()

    asyncio.run(live())


class Listening:
    """Takes connections and what comes over them."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.came = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.received)
        self.received.append(b"")
        while data := await reader.read(1_000):
            self.received[place] += data
            self.came.set()
        writer.close()


def test_a_connection_that_ends_while_effects_are_carried_out_is_told_after_them() -> None:
    """What is sent on it until then is lost with it: it does not go on over a new one."""

    async def live() -> list[bytes]:
        owner, loop, listening = Owner(), asyncio.get_running_loop(), Listening()
        server = await asyncio.start_server(listening.take, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            sockets = Sockets(loop, lambda: None)
            peers = Peers(owner, loop, streams_of(sockets), 1_000_000)
            peers.send(PeerSend(1, 0, "127.0.0.1", port, b"first"))
            await asyncio.wait_for(listening.came.wait(), 30)
            stream = peers._links[1, 0]._stream
            assert stream is not None
            stream._socket.shutdown(socket.SHUT_WR)
            for frame in (b"second", b"third"):
                peers.send(PeerSend(1, 0, "127.0.0.1", port, frame))
                assert not owner.closed.is_set(), "it is told in a turn of its own"
            await asyncio.wait_for(owner.closed.wait(), 30)
            listening.came.clear()
            peers.send(PeerSend(1, 0, "127.0.0.1", port, b"fourth"))
            await asyncio.wait_for(listening.came.wait(), 30)
            peers.close()
            sockets.close()
        return listening.received

    assert asyncio.run(live()) == [b"first", b"fourth"]


def test_a_peer_that_takes_too_little_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "PEER_UNSENT_BYTES_MAX", 1_000)

    async def live() -> None:
        owner, loop = Owner(), asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:  # nobody takes what comes
            sockets = Sockets(loop, lambda: None)
            peers = Peers(owner, loop, streams_of(sockets), 1_000_000)
            port = listening.getsockname()[1]
            peers.send(PeerSend(1, 0, "127.0.0.1", port, bytes(2_000)))
            assert not peers._links[1, 0].is_ended, "one frame may be larger"
            peers.send(PeerSend(1, 0, "127.0.0.1", port, b"asked"))
            await asyncio.wait_for(owner.closed.wait(), 30)
            peers.close()
            sockets.close()

    asyncio.run(live())
