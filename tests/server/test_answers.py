"""Answers of requests that have waited: a bug in one of them ends one connection and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.wire_client import WireClient, fetch_values
from tests.wire.harness import FETCH
from tidelog.handlers import reading
from tidelog.handlers.reading import ParkedFetch
from tidelog.protocol.connection import Answer
from tidelog.server.serve import Server


@pytest.mark.parametrize("name", ["try_finish", "finish_late"])
def test_a_bug_in_a_parked_fetch_closes_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lines: list[str] = []

    def fails(parked: ParkedFetch) -> Answer | None:
        raise RecursionError("too deep")

    def talk(port: int) -> None:
        with WireClient(port) as broken, WireClient(port) as other:
            other.create_topic("t")
            wait_ms = 30_000 if name == "try_finish" else 100
            broken.send(FETCH, 12, **fetch_values("t", 0, max_wait_ms=wait_ms, min_bytes=1 << 30))
            if name == "try_finish":
                for _ in range(2):  # by the second one the fetch is parked
                    other.produce("t")
            assert broken.is_closed_by_peer()
            other.produce("t")

    async def main() -> None:
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        server = Server(properties, lines.append)
        await server.start()
        try:
            await asyncio.to_thread(talk, server.port)
            assert server.broker.waiting.count == 0
        finally:
            await server.stop()

    monkeypatch.setattr(reading.ParkedFetch, name, fails)
    asyncio.run(main())
    (line,) = [line for line in lines if "request failed" in line]
    assert "RecursionError: too deep" in line
