"""What comes from another broker arrives whole, however the network cuts it."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.peers import PeerSend
from tidelog.server.peers import Peers

FRAMES = [b"small", bytes(range(256)) * 3, b"x" * 65_532, b"y" * 65_533, b"z" * 300_000, b"last!"]


class Owner:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = asyncio.Event()
        self.kept: list[memoryview] = []

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.kept.append(frame)

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        self.closed.set()


async def receive(pieces: list[bytes]) -> Owner:
    """What a broker hears of a peer that answers with these pieces, each alone, and goes."""
    owner = Owner()

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
        peers = Peers(owner, asyncio.get_running_loop(), 1_000_000)
        peers.send(PeerSend(1, 0, "127.0.0.1", port, b"asked"))
        await asyncio.wait_for(owner.closed.wait(), 30)
        peers.close()
    return owner


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1_000, 65_536, 70_000, 10**9])
def test_frames_come_whole_in_pieces_of_any_size(size: int) -> None:
    frames = FRAMES if size >= 1_000 else FRAMES[:2]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    owner = asyncio.run(receive([stream[at : at + size] for at in range(0, len(stream), size)]))
    assert owner.frames == frames
    assert [bytes(frame) for frame in owner.kept] == frames, "a frame is whoever's it was given to"


@pytest.mark.parametrize("size", [-1, 0, 4, 1_000_001])
def test_a_size_that_no_answer_has_ends_the_connection(size: int) -> None:
    good = len(FRAMES[0]).to_bytes(4, "big") + FRAMES[0]
    owner = asyncio.run(receive([good + size.to_bytes(4, "big", signed=True) + b"rest", good]))
    assert owner.frames == FRAMES[:1]
