"""Folders and files of a disk that are looked at and never changed.

**Invariant:** nothing is written, made, or locked for longer than a look.
"""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Protocol, Self

from tidelog.base.files import LOCK_NAME


class Readable(Protocol):
    """The part of a `File` that a scan needs."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""


class ReadOnlyFile:
    """FileNotFoundError if there is no such file."""

    def __init__(self, path: str) -> None:
        self.name = os.path.basename(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)


class ReadOnlyFolder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(os.path.abspath(path))

    @property
    def parent(self) -> ReadOnlyFolder:
        return ReadOnlyFolder(os.path.dirname(os.path.abspath(self.path)))

    def folder(self, name: str) -> ReadOnlyFolder:
        return ReadOnlyFolder(os.path.join(self.path, name))

    def folders(self) -> list[str]:
        """The names of the folders in this one, sorted."""
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def sizes(self) -> dict[str, int]:
        """The files in this folder, by name, with their sizes."""
        with os.scandir(self.path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def exists(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path, name))

    def open(self, name: str) -> ReadOnlyFile:
        return ReadOnlyFile(os.path.join(self.path, name))

    def read_whole(self, name: str) -> bytes | None:
        """The content of a small file, or None if there is no such file."""
        try:
            with self.open(name) as file:
                return file.read(0, file.size)
        except FileNotFoundError:
            return None

    def is_locked(self) -> bool:
        """Whether a broker holds the directory. The lock is tried and given back at once."""
        try:
            descriptor = os.open(os.path.join(self.path, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError:
            return True
        finally:
            os.close(descriptor)
