"""Who is idle: a connection over which nothing moves, and not one whose bytes are slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic_ns

import pytest

from tests.server.wire_client import PATIENCE_S, WireClient, fetch_values
from tests.wire.harness import FETCH, batch_of
from tidelog.base.limits import MIB, RECEIVE_LOW_WATER
from tidelog.protocol.connection import Connection
from tidelog.server import loop, requests, serve, transport

IDLE_MS = 600_000
RECORDS_SIZE = 32 * MIB


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.ns = monotonic_ns()

    @property
    def ms(self) -> int:
        return self.ns // 1_000_000

    def advance(self, share_of_idle: float) -> None:
        self.ns += int(IDLE_MS * share_of_idle) * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(requests, "monotonic_ns", lambda: clock.ns)
    for module in (loop, transport):
        monkeypatch.setattr(module, "monotonic_ms", lambda: clock.ms)
    return clock


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the server under test has no event for it
            await asyncio.sleep(0)


def has_come(connection: Connection, missing_size: int) -> bool:
    return connection.missing_size == missing_size


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[serve.Server]:
    listener = "PLAINTEXT://127.0.0.1:0"
    settings = {"log.dirs": str(folder), "connections.max.idle.ms": str(IDLE_MS)}
    server = serve.Server({"listeners": listener, "message.max.bytes": str(RECORDS_SIZE * 2)} | settings)
    await server.start()
    yield server
    await server.stop()


def test_a_request_that_comes_slowly_keeps_its_connection(tmp_path: Path, clock: Clock) -> None:
    """Also where its pieces are less than what the socket was told to wait for."""
    piece_size = 1_000
    assert piece_size < RECEIVE_LOW_WATER

    async def run() -> None:
        async with serving(tmp_path) as server:
            clients = server.network.transports
            with WireClient(server.port) as client:
                client.socket.sendall((4 * MIB).to_bytes(4, "big") + bytes(1_000))
                await until(lambda: clients.buffered_size > 0)
                [connection] = clients.by_connection
                missing_size = connection.missing_size
                for _ in range(4):
                    clock.advance(0.7)
                    client.socket.sendall(bytes(piece_size))
                    missing_size -= piece_size
                    clock.advance(0.7)
                    clients.close_idle(clock.ms)
                    assert clients.count
                    await until(partial(has_come, connection, missing_size))
                clock.advance(1.1)
                clients.close_idle(clock.ms)
                assert not clients.count

    asyncio.run(run())


def test_an_answer_that_is_taken_slowly_keeps_its_connection(tmp_path: Path, clock: Clock) -> None:
    async def run() -> None:
        async with serving(tmp_path) as server:
            clients = server.network.transports
            with WireClient(server.port) as client:
                await asyncio.to_thread(client.create_topic, "t")
                await asyncio.to_thread(client.produce, "t", batch_of(value=bytes(RECORDS_SIZE)))
                client.send(FETCH, 12, **fetch_values("t", 0))
                await until(lambda: clients.unsent_size > 0)
                for _ in range(4):
                    clock.advance(0.7)
                    unsent_size = clients.unsent_size
                    while clients.unsent_size == unsent_size:
                        await asyncio.to_thread(client.socket.recv, MIB)
                    clients.close_idle(clock.ms)
                    assert clients.count
                clock.advance(1.1)
                clients.close_idle(clock.ms)
                assert not clients.count

    asyncio.run(run())
