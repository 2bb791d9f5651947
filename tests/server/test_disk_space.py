"""A disk that fills up is told once, before it is full, and again only after there was room."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from tidelog.base.events import Event
from tidelog.base.limits import DISK_FREE_SHARE_AGAIN, DISK_FREE_SHARE_LOW, DISK_SPACE_INTERVAL_MS
from tidelog.server.disk_space import DiskSpace, Space

SIZE = 1_000_000


def test_a_crossing_is_told_once_in_each_direction() -> None:
    told: list[Event] = []
    space = DiskSpace(["/a"], cast(ThreadPoolExecutor, None), print, told.append)
    low, again = int(SIZE * DISK_FREE_SHARE_LOW), int(SIZE * DISK_FREE_SHARE_AGAIN)
    for free in (SIZE, low, low - 1, low - 2, 0, low, again - 1, again, low, low - 1):
        space.note({"/a": Space(free, SIZE)})
    assert [event.name for event in told] == ["disk space low", "disk space available", "disk space low"]
    assert told[0].fields["directory"] == "/a"


def test_disks_are_told_apart() -> None:
    told: list[Event] = []
    space = DiskSpace(["/a", "/b"], cast(ThreadPoolExecutor, None), print, told.append)
    space.note({"/a": Space(0, SIZE), "/b": Space(SIZE, SIZE)})
    space.note({"/a": Space(0, SIZE), "/b": Space(0, SIZE)})
    assert [event.fields["directory"] for event in told] == ["/a", "/b"]


def test_a_thread_looks_at_the_real_disk_and_one_that_is_gone_is_left_out(tmp_path: Path) -> None:
    async def run() -> dict[str, Space]:
        loop, seen = asyncio.get_running_loop(), asyncio.Event()
        with ThreadPoolExecutor(1) as threads:

            def call_soon(note: object, spaces: dict[str, Space]) -> None:
                loop.call_soon_threadsafe(note, spaces)  # type: ignore[arg-type]
                loop.call_soon_threadsafe(seen.set)

            space = DiskSpace([str(tmp_path), str(tmp_path / "gone")], threads, call_soon, print)
            for now_ms in (0, 1, DISK_SPACE_INTERVAL_MS - 1):
                space.tick(now_ms)
            await asyncio.wait_for(seen.wait(), 30)
        return space.spaces

    spaces = asyncio.run(run())
    assert list(spaces) == [str(tmp_path)]
    assert 0 <= spaces[str(tmp_path)].free_size <= spaces[str(tmp_path)].size
