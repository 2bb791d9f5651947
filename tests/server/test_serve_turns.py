"""One client's pipelined requests do not keep the loop from the others."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from tests.server.wire_client import WireClient, fetch_values
from tests.wire.harness import API_VERSIONS, FETCH, METADATA, request_frame
from tests.wire.requests import metadata_values
from tidelog.base.limits import TURN_NS_LONG
from tidelog.handlers.table import dispatch
from tidelog.server import answers, requests, serve
from tidelog.server.transport import Transport

COUNT = 500


def framed(api_key: int, version: int, **values: Any) -> bytes:
    frame = request_frame(api_key, version, 1, **values)
    return len(frame).to_bytes(4, "big") + frame


def test_a_turn_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The friend asks while the first of many requests is served, and is answered long before the last."""
    clock_ns = monotonic_ns()  # from which connections are not taken for idle ones
    order: list[int] = []

    async def run() -> None:
        server = serve.Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        monkeypatch.setattr(requests, "monotonic_ns", lambda: clock_ns)
        loop = asyncio.get_running_loop()
        all_served = asyncio.Event()
        with (
            socket.create_connection(("127.0.0.1", server.port)) as hostile,
            socket.create_connection(("127.0.0.1", server.port)) as friend,
        ):

            def slow_dispatch(broker: Any, client: Any, frame: memoryview) -> int:
                nonlocal clock_ns
                if not order:
                    friend.sendall(framed(METADATA, 12, **metadata_values(12, [])))
                clock_ns += requests.TURN_NS_MAX
                order.append(int.from_bytes(frame[:2], "big"))
                api_key = dispatch(broker, client, frame)
                if len(order) == COUNT + 1:
                    all_served.set()
                return api_key

            monkeypatch.setattr(requests, "dispatch", slow_dispatch)
            asked = framed(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
            await loop.run_in_executor(None, hostile.sendall, asked * COUNT)
            size = len(await loop.run_in_executor(None, hostile.recv, 4, socket.MSG_WAITALL))
            assert size == 4
            await loop.run_in_executor(None, friend.recv, 1)
            await asyncio.wait_for(all_served.wait(), 30)
        await server.stop()

    asyncio.run(run())
    assert order.count(API_VERSIONS) == COUNT
    assert order.index(METADATA) <= 3


def test_a_client_that_goes_is_noticed_while_its_held_back_request_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request takes the whole turn, the second one is held back and then waits for records."""
    clock_ns = monotonic_ns()

    async def run() -> None:
        server = serve.Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        with WireClient(server.port) as friend:
            await asyncio.to_thread(friend.create_topic, "quiet")
        closed = asyncio.Event()
        is_parked = asyncio.Event()
        clients = server.network.transports
        on_closed = clients.on_closed

        def note_closed(transport: Transport) -> None:
            on_closed(transport)
            if is_parked.is_set():
                closed.set()

        def slow_dispatch(broker: Any, client: Any, frame: memoryview) -> int:
            nonlocal clock_ns
            clock_ns += requests.TURN_NS_MAX
            api_key = dispatch(broker, client, frame)
            if client.connection.slots:
                is_parked.set()
            return api_key

        with socket.create_connection(("127.0.0.1", server.port)) as client:
            monkeypatch.setattr(requests, "monotonic_ns", lambda: clock_ns)
            monkeypatch.setattr(requests, "dispatch", slow_dispatch)
            clients.on_closed = note_closed  # type: ignore[method-assign]
            asked = framed(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
            client.sendall(asked + framed(FETCH, 12, **fetch_values("quiet", 0, max_wait_ms=240_000)))
            await asyncio.wait_for(is_parked.wait(), 30)
        await asyncio.wait_for(closed.wait(), 30)
        assert server.broker.waiting.count == 0
        await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("is_late", [False, True])
def test_who_is_woken_with_many_others_does_not_keep_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The friend asks while the first of many waiters is looked at, and is served while most still wait."""
    crowd, clock_ns, waiting_counts = 40, monotonic_ns(), []

    def hurried_ns() -> int:
        nonlocal clock_ns
        clock_ns += TURN_NS_LONG
        return clock_ns

    async def run() -> None:
        server = serve.Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        monkeypatch.setattr(answers, "monotonic_ns", hurried_ns)
        room = server.broker.waiting
        wake_next, park = room.wake_next, room.park
        all_parked = asyncio.Event()
        with ExitStack() as stack:
            opened = [stack.enter_context(WireClient(server.port)) for _ in range(crowd + 2)]
            friend, producer, *clients = opened
            await asyncio.to_thread(friend.create_topic, "t")

            def note_parked(*args: Any) -> bool:
                is_parked = park(*args)
                if room.count == crowd:
                    all_parked.set()
                return is_parked

            def note_woken() -> bool:
                if room.count == crowd:
                    friend.send(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
                return wake_next()

            def note_dispatched(broker: Any, client: Any, frame: memoryview) -> int:
                waiting_counts.append(room.count)
                return dispatch(broker, client, frame)

            monkeypatch.setattr(room, "park", note_parked)
            for client in clients:
                client.send(FETCH, 12, **fetch_values("t", 0, max_wait_ms=240_000))
            await asyncio.wait_for(all_parked.wait(), 30)
            monkeypatch.setattr(requests, "dispatch", note_dispatched)
            monkeypatch.setattr(room, "wake_next", note_woken)
            if is_late:
                room.tick(2**62)
                server.loop.settle()
            else:
                await asyncio.to_thread(producer.produce, "t")
            await asyncio.to_thread(friend.read_frame)
            for client in clients:
                await asyncio.to_thread(client.read_frame)
        await server.stop()

    asyncio.run(run())
    assert waiting_counts[-1] > crowd // 2
