"""Requests that are held back for a client that does not take its answers: counted, and not without end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.wire_client import WireClient, fetch_values
from tests.wire.harness import FETCH
from tidelog.server import serve, transport, transports
from tidelog.testing import Broker

COUNT = 100  # they fit into one packet


def fetches(client: WireClient, max_wait_ms: int) -> bytes:
    values = fetch_values("t", 0, max_wait_ms=max_wait_ms)
    return b"".join(client.framed(FETCH, 12, **values) for _ in range(COUNT))


@pytest.fixture(autouse=True)
def choking(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one request waits, those behind it are held back."""
    monkeypatch.setattr(transport, "PIPELINED_REQUESTS_MAX", 1)


@pytest.mark.parametrize("is_served", [True, False])
def test_what_is_held_back_is_counted_until_it_is_served_or_dropped(tmp_path: Path, is_served: bool) -> None:
    async def live() -> tuple[int, int]:
        server = serve.Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        sizes: asyncio.Queue[int] = asyncio.Queue()
        clients = server.network.transports
        on_buffered = clients.on_buffered

        def noted(change: int) -> None:
            on_buffered(change)
            sizes.put_nowait(clients.buffered_size)

        with WireClient(server.port) as client:
            await asyncio.to_thread(client.create_topic, "t")
            clients.on_buffered = noted  # type: ignore[method-assign]
            sent = fetches(client, 1 if is_served else 60_000)
            client.socket.sendall(sent)
            largest = await asyncio.wait_for(sizes.get(), 30)
            for _ in range(COUNT if is_served else 0):
                await asyncio.to_thread(client.read_frame)
            while is_served and clients.buffered_size:
                await asyncio.wait_for(sizes.get(), 30)
        await server.abort()
        assert clients.buffered_size == 0
        return largest, len(sent) // COUNT * (COUNT - 1)

    largest, held_back = asyncio.run(live())
    assert largest > held_back


def test_whoever_has_too_much_held_back_goes_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "FRAMES_BUFFERED_BYTES_MAX", 10_000)
    with Broker() as broker, WireClient(broker.port) as friend, WireClient(broker.port) as client:
        friend.create_topic("t")
        client.socket.sendall(fetches(client, 60_000))
        assert client.is_closed_by_peer()
        friend.greet()
