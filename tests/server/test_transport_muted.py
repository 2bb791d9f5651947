"""Clients that are over a quota: answered, then not read; and addresses that connect too often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.wire_client import WireClient, produce_values
from tests.wire.harness import METADATA, PRODUCE, batch_of, parts
from tests.wire.requests import metadata_values
from tidelog.server import acceptor, serve, transport
from tidelog.server.transport import Transport

ALTER_CLIENT_QUOTAS = 49
BOUND_S = 120


def quota(client: WireClient, kind: str, name: str, key: str, value: float) -> None:
    part = parts(ALTER_CLIENT_QUOTAS, 1)
    entry = part.EntryData(
        entity=(part.EntityData(entity_type=kind, entity_name=name),),
        ops=(part.OpData(key=key, value=value, remove=False),),
    )
    answer = client.ask(ALTER_CLIENT_QUOTAS, 1, entries=(entry,), validate_only=False)
    assert answer.entries[0].error_code == 0


def served(path: Path, act: Callable[[serve.Server], Awaitable[None]]) -> None:
    async def live() -> None:
        server = serve.Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)})
        await server.start()
        try:
            await asyncio.wait_for(act(server), BOUND_S)
        finally:
            await server.abort()

    asyncio.run(live())


def transport_of(server: serve.Server, client: WireClient) -> Transport:
    port = client.socket.getsockname()[1]
    (found,) = (each for each in server.network.transports.by_connection.values() if each.client.port == port)
    return found


def noted(monkeypatch: pytest.MonkeyPatch, owner: object, method: str) -> asyncio.Event:
    """Set when the method was called."""
    event, act = asyncio.Event(), getattr(owner, method)

    def note(*values: Any) -> None:
        act(*values)
        event.set()

    monkeypatch.setattr(owner, method, note)
    return event


def over_quota(client: WireClient, acks: int = 1) -> None:
    """Muted for hours; a request comes together with the one that is too much, if that wants an answer."""
    client.create_topic("t")
    quota(client, "client-id", "tester", "producer_byte_rate", 1.0)
    values = produce_values("t", batch_of(value=b"v" * 50_000)) | {"acks": acks}
    produce = client.framed(PRODUCE, 9, **values)
    metadata = client.framed(METADATA, 12, **metadata_values(12, []))
    client.socket.sendall(produce + metadata if acks else produce)


def test_the_answer_leaves_at_once_and_what_came_behind_it_waits(tmp_path: Path) -> None:
    async def act(server: serve.Server) -> None:
        with WireClient(server.port) as client:
            await asyncio.to_thread(over_quota, client)
            await asyncio.to_thread(client.read_frame)
            muted = transport_of(server, client)
            assert muted.client.throttle_time_ms > 3_600_000
            assert not muted._stream.is_reading and muted.buffered_size
            assert not muted.is_idle(2**62)
            muted.client.muted_until_ms = 1  # long ago
            muted._on_muted()
            await asyncio.to_thread(client.read_frame)
            assert muted._stream.is_reading and not muted.buffered_size

    served(tmp_path, act)


def test_a_client_that_wants_no_answer_is_not_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(server: serve.Server) -> None:
        is_muted = noted(monkeypatch, Transport, "_stay_muted")
        with WireClient(server.port) as client:
            await asyncio.to_thread(over_quota, client, 0)
            muted = transport_of(server, client)
            await is_muted.wait()
            assert not muted._stream.is_reading

    served(tmp_path, act)


def test_a_client_that_is_muted_and_goes_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MUTE_LOOK_MS", 10)

    async def act(server: serve.Server) -> None:
        with WireClient(server.port) as client:
            await asyncio.to_thread(client.create_topic, "t")
            await asyncio.to_thread(quota, client, "client-id", "tester", "producer_byte_rate", 1.0)
            client.send(PRODUCE, 9, **produce_values("t", batch_of(value=b"v" * 50_000)))
            await asyncio.to_thread(client.read_frame)
            muted = transport_of(server, client)
            assert not muted._stream.is_reading
            is_closed = noted(monkeypatch, server.network.transports, "on_closed")
        await is_closed.wait()
        assert server.network.transports.count == 0

    served(tmp_path, act)


def test_an_address_that_connects_too_often_is_closed_unserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "monotonic_ms", lambda: 1_000)

    async def act(server: serve.Server) -> None:
        with WireClient(server.port) as client:
            await asyncio.to_thread(quota, client, "ip", "127.0.0.1", "connection_creation_rate", 1.0)
            others = [WireClient(server.port) for _ in range(11)]
            for other in others[:10]:
                await asyncio.to_thread(other.greet)
            assert await asyncio.to_thread(others[10].is_closed_by_peer)
            assert server.network.transports.count == 11
            for other in others:
                other.socket.close()

    served(tmp_path, act)


def test_a_broker_that_gets_too_many_connections_lets_the_next_ones_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(server: serve.Server) -> None:
        monkeypatch.setattr(server.broker.quotas.connections, "pause_ms", lambda now_ms: 20)
        clients = [WireClient(server.port) for _ in range(3)]
        for client in clients:  # each is served, after those before it
            await asyncio.to_thread(client.greet)
            client.socket.close()

    served(tmp_path, act)
