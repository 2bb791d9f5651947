"""Pages of a file that are not in memory: whoever needs them waits until they are read, off the loop."""

from __future__ import annotations

from tidelog.base.files import Cold, File


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
