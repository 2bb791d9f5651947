"""A fetch of cold pages does not stall other clients.

The first test closes a gate in front of the disk and looks at the order of things: while one client's
pages are being read, another one is served. The last one drops pages for real, where the system can.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from tests.server.wire_client import WireClient
from tests.wire.harness import batch_of
from tidelog.protocol.records import read_records
from tidelog.server import page_cache
from tidelog.server.serve import Server

BATCH_SIZE = 1_000_000
BATCH_COUNT = 64


def with_server(directory: Path, run: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
        server = Server({**properties, "log.segment.bytes": str(16 * BATCH_SIZE)})
        await server.start()
        try:
            await run(server)
        finally:
            await server.stop()

    asyncio.run(main())


async def fill(server: Server, count: int) -> None:
    def run() -> None:
        with WireClient(server.port) as client:
            client.create_topic("cold")
            client.create_topic("warm")
            for number in range(count):
                client.produce("cold", batch_of(value=value_of(number)))

    await asyncio.to_thread(run)


def value_of(number: int) -> bytes:
    return number.to_bytes(4, "big") * (BATCH_SIZE // 4)


def read_all(port: int, until: int) -> int:
    """Fetch every batch, a few at a time, and check what is in it; how many there were."""
    count = 0
    with WireClient(port) as client:
        while count < until:
            records = memoryview(client.fetch("cold", count, max_bytes=8 * BATCH_SIZE).records)
            while len(records) >= 12 and len(records) >= (size := 12 + int.from_bytes(records[8:12], "big")):
                (record,) = read_records(records[:size])
                assert (record.offset, record.value) == (count, value_of(count))
                count += 1
                records = records[size:]
    return count


def test_others_are_served_while_cold_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    asked = threading.Event()
    warmed: set[tuple[int, int]] = set()
    read_through = page_cache.read_through

    def gated_read(descriptor: int, position: int, size: int) -> None:
        asked.set()
        assert gate.wait(60)
        read_through(descriptor, position, size)
        warmed.add((descriptor, position))

    def probe(pages: page_cache.PageCache, descriptor: int, position: int, size: int) -> bool:
        return (descriptor, position) in warmed

    monkeypatch.setattr(page_cache, "read_through", gated_read)

    async def run(server: Server) -> None:
        await fill(server, 4)
        with WireClient(server.port) as other:
            monkeypatch.setattr(page_cache.PageCache, "probe", probe)
            cold = asyncio.create_task(asyncio.to_thread(read_all, server.port, 4))
            await asyncio.to_thread(asked.wait, 60)
            for _ in range(20):
                await asyncio.to_thread(other.produce, "warm")
                await asyncio.to_thread(other.greet)
            assert not cold.done()
            gate.set()
            assert await cold == 4
            assert server.network.pages.warmed_count > 0

    with_server(tmp_path, run)


def test_a_cold_read_that_fails_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def fails(descriptor: int, position: int, size: int) -> None:
        names.append(threading.current_thread().name)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read(port: int) -> int:
        with WireClient(port) as client, pytest.raises(EOFError):
            client.fetch("cold", 0)
        with WireClient(port) as client:
            return int(client.fetch("cold", 0).error_code)

    async def run(server: Server) -> None:
        await fill(server, 1)
        monkeypatch.setattr(page_cache, "read_through", fails)
        monkeypatch.setattr(page_cache.PageCache, "probe", lambda *_: False)
        assert await asyncio.to_thread(read, server.port) == ErrorCode.kafka_storage_error
        assert [name.rpartition("_")[0] for name in names] == ["tidelog-cold"], "one read, on their threads"
        (directory,) = server.broker.disks.directories
        assert directory.failure is not None and "Input/output error" in directory.failure

    with_server(tmp_path, run)


def drop_pages(folder: Path) -> None:
    for segment in folder.glob("*.log"):
        descriptor = os.open(segment, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def can_drop_pages(folder: Path) -> bool:
    """Whether a dropped page is seen to be cold here; memory file systems and some sandboxes cannot say."""
    drop_pages(folder)
    segment = next(folder.glob("*.log"))
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        with suppress(OSError, AttributeError):
            os.preadv(descriptor, [bytearray(1)], segment.stat().st_size // 2, os.RWF_NOWAIT)
            return False
        return hasattr(os, "RWF_NOWAIT")
    finally:
        os.close(descriptor)


def test_dropped_pages_are_read_by_a_thread_and_every_byte_arrives(tmp_path: Path) -> None:
    skipped = False

    async def run(server: Server) -> None:
        nonlocal skipped
        await fill(server, BATCH_COUNT)
        folder = tmp_path / "cold-0"
        assert len(list(folder.glob("*.log"))) > 2
        if not await asyncio.to_thread(can_drop_pages, folder):
            skipped = True
            return
        await asyncio.to_thread(drop_pages, folder)
        cold = asyncio.create_task(asyncio.to_thread(read_all, server.port, BATCH_COUNT))
        with WireClient(server.port) as other:
            while not cold.done():
                await asyncio.to_thread(other.produce, "warm")
        assert await cold == BATCH_COUNT
        assert server.network.pages.warmed_count > 0

    with_server(tmp_path, run)
    if skipped:
        pytest.skip("this system does not tell cold pages")
