"""How much room the disks of the log directories have, looked at every few seconds by a thread.

A full disk takes its directory offline, so the operator hears of it before: once when little is left, and
once when there is room again.

**Invariant:** the loop never asks a disk itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import NamedTuple

from tidelog.base.events import Event, info, warning
from tidelog.base.limits import DISK_FREE_SHARE_AGAIN, DISK_FREE_SHARE_LOW


class Space(NamedTuple):
    free_size: int  # for a process that is not root's
    size: int

    @property
    def free_share(self) -> float:
        return self.free_size / self.size if self.size else 1.0


def space_of(path: str) -> Space:
    found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


class DiskSpace:
    def __init__(
        self,
        paths: Iterable[str],
        call_soon: Callable[..., object],
        tell: Callable[[Event], None],
    ) -> None:
        self._paths = list(paths)
        self._call_soon = call_soon
        self._tell = tell
        self._is_looking = False
        self._low: set[str] = set()  # paths that were told as low
        self.spaces: dict[str, Space] = {}  # by path, as last seen

    def look(self) -> None:
        """Unless the last look has not ended."""
        if not self._is_looking:
            self._is_looking = True
            # A thread of its own, which nobody waits for: a file system that hangs holds up no other work.
            Thread(target=self._ask, name="tidelog-space", daemon=True).start()

    def _ask(self) -> None:
        spaces = {}
        for path in self._paths:
            with suppress(OSError):  # the disk is gone, which its writes tell
                spaces[path] = space_of(path)
        with suppress(RuntimeError):  # the loop has ended
            self._call_soon(self.note, spaces)

    def note(self, spaces: dict[str, Space]) -> None:
        """On the loop: what was found now."""
        self._is_looking = False
        self.spaces = spaces
        for path, space in spaces.items():
            percent = int(space.free_share * 100)
            if path not in self._low and space.free_share < DISK_FREE_SHARE_LOW:
                self._low.add(path)
                self._tell(
                    warning(
                        "disk space low", directory=path, free_bytes=space.free_size, free_percent=percent
                    )
                )
            elif path in self._low and space.free_share >= DISK_FREE_SHARE_AGAIN:
                self._low.discard(path)
                self._tell(info("disk space available", directory=path, free_percent=percent))
