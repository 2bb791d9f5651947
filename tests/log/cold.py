"""Files of which nothing is in memory until the disk was waited for."""

from __future__ import annotations

import pytest

from tidelog.base.files import Buffer, Cold, DiskFile


class ColdPages:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warm: set[tuple[str, int]] = set()
        self.waited: list[tuple[str, int]] = []  # reads that had to wait for the disk
        read = DiskFile.read

        def read_now(file: DiskFile, position: int, size: int) -> Buffer:
            if (file.name, position) not in self.warm:
                raise Cold(file, position, size)
            return read(file, position, size)

        def read_and_wait(file: DiskFile, position: int, size: int) -> bytes:
            if (file.name, position) not in self.warm:
                self.warm.add((file.name, position))
                self.waited.append((file.name, position))
            return read(file, position, size)

        monkeypatch.setattr(DiskFile, "read_now", read_now)
        monkeypatch.setattr(DiskFile, "read", read_and_wait)
