"""The probe among those who want to be in the way: their sockets are counted, and the loop has its turn."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import cast

import pytest

from tests.server.watch.test_probe import LOOPBACK, ask, raw
from tidelog.base.limits import PROBE_CONNECTIONS_MAX
from tidelog.server.watch import probe as probe_module
from tidelog.server.watch.probe import Probe
from tidelog.server.watch.scrape import Watched
from tidelog.testing import Broker

NOWHERE = b"GET / HTTP/1.1\r\n\r\n"  # answered without a look at the broker
COUNT = 500
TURNS_PER_REQUEST = 10  # of the loop, more than enough to answer one


@asynccontextmanager
async def probing() -> AsyncIterator[tuple[Probe, tuple[str, int]]]:
    """A probe with no broker, and its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)  # whom it accepts has the same
    listening.setblocking(False)
    probe = Probe(cast(Watched, None), lambda event: None)
    await probe.start(listening)
    yield probe, listening.getsockname()
    await probe.close()


def test_the_loop_has_its_turn_between_two_pipelined_requests() -> None:
    """Nothing is timed: the loop's turns are counted."""

    async def live() -> int:
        loop, turns, is_over = asyncio.get_running_loop(), 0, False

        def turn() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                loop.call_soon(turn)

        async with probing() as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(NOWHERE * COUNT + b"\r\n\r\n")
            turn()
            answers = await reader.read()
            is_over = True
            assert answers.count(b"HTTP/1.1 404") == COUNT
            writer.close()
            return turns

    assert asyncio.run(live()) >= COUNT


def test_a_connection_is_counted_until_nothing_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "PROBE_ANSWER_SECONDS_MAX", 0.2)

    async def live() -> None:
        loop = asyncio.get_running_loop()
        async with probing() as (probe, address):
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                deaf.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                deaf.setblocking(False)
                await loop.sock_connect(deaf, address)
                await loop.sock_sendall(deaf, NOWHERE)
                await loop.sock_recv(deaf, 4_096)
                ((client, task),) = probe._clients.items()
                with suppress(ConnectionError):
                    while not (task.done() or client.writer.transport.get_write_buffer_size()):
                        await loop.sock_sendall(deaf, NOWHERE)
                        for _ in range(TURNS_PER_REQUEST):
                            await asyncio.sleep(0)
                    await loop.sock_sendall(deaf, b"\r\n\r\n")  # which is no request: the last answer
                await task
                assert client.writer.transport.get_write_buffer_size() == 0

    asyncio.run(asyncio.wait_for(live(), 30))


def test_connections_that_take_nothing_make_room_for_a_health_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "expose", lambda *_: itertools.repeat("x" * 100_000))
    with Broker(**LOOPBACK) as broker, ExitStack() as stack:
        for _ in range(PROBE_CONNECTIONS_MAX):
            deaf = stack.enter_context(raw(broker))
            deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert deaf.recv(4) == b"HTTP"
        assert ask(broker, "/health")[0].status == 200


def test_a_client_that_takes_its_answer_is_not_the_one_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "expose", lambda *_: itertools.repeat("x" * 100_000))
    with Broker(**LOOPBACK) as broker, ExitStack() as stack:
        patient = stack.enter_context(raw(broker))
        patient.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for _ in range(3 * PROBE_CONNECTIONS_MAX):
            taken = 0
            while taken < 1_000_000:
                piece = patient.recv(1 << 20)
                assert piece
                taken += len(piece)
            stack.enter_context(raw(broker))
            assert ask(broker, "/health")[0].status == 200
