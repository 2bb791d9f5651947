"""The log directories of a broker, taken for this process alone.

**Invariant:** either all of them are locked or none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tidelog.base.files import DirectoryLock
from tidelog.base.setting import InvalidSetting


class StartFailed(Exception):
    """The broker cannot serve; the message is one line for the operator."""


class DirectoryLocks:
    """Makes what is missing of the directories and locks them; `paths` are their real ones."""

    def __init__(self, log_dirs: Sequence[str]) -> None:
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
                raise StartFailed(
                    f"{path}: in use by another process; give each broker log.dirs of its own"
                ) from None
            except OSError as error:
                self.release()
                raise StartFailed(f"{path}: {error.strerror}") from None

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()
