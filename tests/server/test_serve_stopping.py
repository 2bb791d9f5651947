"""A stop is clean only if all that was being made durable has become so."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from tests.server.locked import is_locked
from tests.server.wire_client import WireClient, produce_values
from tests.wire.harness import PRODUCE, batch_of
from tidelog.broker.broker import Broker
from tidelog.log.flush import FlushJob
from tidelog.log.format.names import CLEAN_SHUTDOWN
from tidelog.server.serve import Server

PATIENCE_S = 30


@pytest.mark.parametrize("fails", [True, False])
def test_an_fsync_that_fails_during_a_stop_leaves_no_sign_of_a_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    gate, entered = threading.Event(), threading.Event()
    run_job = FlushJob.run

    def gated_run(job: FlushJob) -> None:
        if entered.is_set():  # the flushes of the stop itself
            return run_job(job)
        entered.set()
        assert gate.wait(PATIENCE_S)
        if fails:
            raise OSError(errno.EIO, "Input/output error")
        return run_job(job)

    async def main() -> None:
        server = Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        with WireClient(server.port) as client:
            await asyncio.to_thread(lambda: client.create_topic("t", flush_messages="1"))
            monkeypatch.setattr(FlushJob, "run", gated_run)
            client.send(PRODUCE, 9, **produce_values("t", batch_of()))
            assert await asyncio.to_thread(entered.wait, PATIENCE_S)
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            assert server.life.is_stopping
            gate.set()
            await stopping

    asyncio.run(main())
    assert (tmp_path / CLEAN_SHUTDOWN).exists() != fails


def test_a_broker_whose_last_directory_has_failed_says_that_it_has(tmp_path: Path) -> None:
    async def main() -> None:
        paths = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        server = Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": paths})
        await server.start()
        failed = []
        for directory in server.broker.disks.directories:
            server.broker.disks.fail(directory, OSError(errno.EIO, "Input/output error"))
            server.loop.settle()
            failed.append(server.life.failed.is_set())
        assert failed == [False, True]
        await server.abort()

    asyncio.run(main())


def test_a_bug_in_a_stop_leaves_no_lock_and_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(broker: Broker, run_jobs: object) -> None:
        raise ValueError("a bug")

    async def main() -> None:
        server = Server({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        await server.start()
        monkeypatch.setattr(Broker, "stop", fail)
        assert is_locked(tmp_path)
        with pytest.raises(ValueError, match="a bug"):
            await server.stop()
        assert not is_locked(tmp_path)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)

    asyncio.run(main())
