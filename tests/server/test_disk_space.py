"""A disk that fills up is told once, before it is full, and again only after there was room."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tidelog.base.events import Event
from tidelog.base.limits import DISK_FREE_SHARE_AGAIN, DISK_FREE_SHARE_LOW
from tidelog.server import disk_space
from tidelog.server.disk_space import DiskSpace, Space

SIZE = 1_000_000


def test_a_crossing_is_told_once_in_each_direction() -> None:
    told: list[Event] = []
    space = DiskSpace(["/a"], print, told.append)
    low, again = int(SIZE * DISK_FREE_SHARE_LOW), int(SIZE * DISK_FREE_SHARE_AGAIN)
    for free in (SIZE, low, low - 1, low - 2, 0, low, again - 1, again, low, low - 1):
        space.note({"/a": Space(free, SIZE)})
    assert [event.name for event in told] == ["disk space low", "disk space available", "disk space low"]
    assert told[0].fields["directory"] == "/a"


def test_disks_are_told_apart() -> None:
    told: list[Event] = []
    space = DiskSpace(["/a", "/b"], print, told.append)
    space.note({"/a": Space(0, SIZE), "/b": Space(SIZE, SIZE)})
    space.note({"/a": Space(0, SIZE), "/b": Space(0, SIZE)})
    assert [event.fields["directory"] for event in told] == ["/a", "/b"]


def test_a_thread_looks_at_the_real_disk_and_one_that_is_gone_is_left_out(tmp_path: Path) -> None:
    async def run() -> dict[str, Space]:
        loop, seen = asyncio.get_running_loop(), asyncio.Event()

        def call_soon(note: object, spaces: dict[str, Space]) -> None:
            loop.call_soon_threadsafe(note, spaces)  # type: ignore[arg-type]
            loop.call_soon_threadsafe(seen.set)

        space = DiskSpace([str(tmp_path), str(tmp_path / "gone")], call_soon, print)
        for _ in range(3):
            space.look()
        await asyncio.wait_for(seen.wait(), 30)
        return space.spaces

    spaces = asyncio.run(run())
    assert list(spaces) == [str(tmp_path)]
    assert 0 <= spaces[str(tmp_path)].free_size <= spaces[str(tmp_path)].size


def test_a_disk_that_does_not_answer_is_asked_once_and_awaited_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = threading.Event(), threading.Event()
    lookers: list[threading.Thread] = []

    def hang(path: str) -> Space:
        lookers.append(threading.current_thread())
        asked.set()
        answers.wait(30)
        return Space(SIZE, SIZE)

    monkeypatch.setattr(disk_space, "space_of", hang)
    space = DiskSpace(["/a"], lambda note, spaces: note(spaces), print)
    space.look()
    assert asked.wait(30)
    space.look()
    assert [thread.daemon for thread in lookers] == [True], "an exit does not wait for it"
    answers.set()
    lookers[0].join(30)
    assert space.spaces == {"/a": Space(SIZE, SIZE)}
