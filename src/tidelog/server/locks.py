"""The log directories of a broker, taken for this process alone.

**Invariant:** either all of them are locked or none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tidelog.base.descriptors import Descriptors
from tidelog.base.files import DirectoryLock, DiskDirectory
from tidelog.base.setting import InvalidSetting
from tidelog.log.directory import LogDirectory
from tidelog.server.process import descriptor_share


class StartFailed(Exception):
    """The broker cannot serve; the message is one line for the operator."""


class DirectoryLocks:
    """Makes what is missing of the directories and locks them; `paths` are their real ones."""

    def __init__(
        self, log_dirs: Sequence[str], if_taken: str = "stop it, or give each broker log.dirs of its own"
    ) -> None:
        self.paths = [os.path.realpath(path) for path in log_dirs]
        self._locks: list[DirectoryLock] = []
        if not self.paths or len({*self.paths}) != len(self.paths):
            raise InvalidSetting(f"log.dirs={','.join(self.paths)}: expected folders, each of them once")
        for path in self.paths:
            try:
                os.makedirs(path, exist_ok=True)
                self._locks.append(DirectoryLock(path))
            except BlockingIOError:
                self.release()
                raise StartFailed(f"{path}: in use by another process; {if_taken}") from None
            except OSError as error:
                self.release()
                raise StartFailed(f"{path}: {error.strerror}") from None

    def open_directories(self) -> list[LogDirectory]:
        """They share this process's descriptors."""
        descriptors = Descriptors(descriptor_share())
        return [LogDirectory(DiskDirectory(path, descriptors)) for path in self.paths]

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()
