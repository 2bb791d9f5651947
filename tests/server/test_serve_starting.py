"""A start that fails says why, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.locked import is_locked
from tidelog.base.config import BrokerSettings
from tidelog.cluster.store import Store
from tidelog.log.directory import LogDirectory
from tidelog.server.listeners import Listener, bind
from tidelog.server.locks import StartFailed
from tidelog.server.serve import Server

PATIENCE_S = 30


def test_a_start_whose_store_cannot_be_opened_leaves_no_port_and_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[socket.socket] = []

    def recorded_bind(listener: Listener, settings: BrokerSettings, key: str) -> socket.socket:
        bound.append(bind(listener, settings, key))
        return bound[-1]

    def open_store(notify: Callable[[], None]) -> Store:
        raise StartFailed("no store")

    async def main() -> None:
        listen = {"listeners": "PLAINTEXT://127.0.0.1:0", "probe.listener": "127.0.0.1:0"}
        server = Server({**listen, "log.dirs": str(tmp_path)}, open_shared=open_store)
        with pytest.raises(StartFailed, match="no store"):
            await server.start()

    monkeypatch.setattr("tidelog.server.serve.bind", recorded_bind)
    asyncio.run(main())
    assert [sock.fileno() for sock in bound] == [-1]
    assert not is_locked(tmp_path)


def test_a_start_whose_only_disk_fails_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: LogDirectory, *note: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        server = Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        with pytest.raises(StartFailed, match="every log directory is offline"):
            await asyncio.wait_for(server.start(), PATIENCE_S)

    monkeypatch.setattr(LogDirectory, "write_note", fail)
    asyncio.run(main())
    assert not is_locked(tmp_path)
