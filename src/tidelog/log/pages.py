"""What a look-up has to wait for: work that is longer than a request may be, pages that are not in memory.

**Invariant:** nobody here waits for the disk but who says so: `PageRead.step`, and `Unready.step` with it.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.files import Cold, File


class Work(Protocol):
    def step(self) -> bool:
        """One piece; whether that was the last. OSError if the disk failed, CorruptBatch if the log is
        damaged, Unready if the disk would have to be waited for."""


class PageRead:
    """What has to be read before a look-up can go on."""

    __slots__ = ("file", "position", "size")

    def __init__(self, cold: Cold) -> None:
        self.file: File = cold.file
        self.position = cold.position
        self.size = cold.size

    def step(self) -> bool:
        """Read it here, waiting for the disk."""
        self.file.read(self.position, self.size)
        return True


class Unready(Exception):
    """A look-up has to wait: for the disk, or for work that is longer than the loop has time for."""

    def __init__(self, work: Work) -> None:
        super().__init__(type(work).__name__)
        self.work = work

    def step(self) -> None:
        """One piece of it here, waiting for the disk."""
        try:
            self.work.step()
        except Unready as pages:
            pages.work.step()
