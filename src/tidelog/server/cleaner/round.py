"""One round on the real disk, by who runs it: alone in its folder, and no faster than it may.

The folder is locked while a round writes into it: the process of a broker that was killed may be at it still
when the next broker asks for a round. It ends when it notices, and until then nobody else begins.

**Invariant:** no folder is made: one that is gone was deleted or has moved.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from tidelog.base.files import DiskDirectory
from tidelog.log.compaction.cleaning import clean
from tidelog.log.compaction.keys import KeyMap
from tidelog.log.compaction.request import CleaningRequest, CleaningResult, SourcesChanged

Pace = Callable[[int], None]
_LOCK_RETRY_S = 0.05
_SLEEP_S_MAX = 0.5  # then it is asked again whether to go on


class Throttle:
    """Waits so that no more is read and written in a second, on the average of the round."""

    def __init__(self, bytes_per_second: float, report: Pace) -> None:
        self._rate = bytes_per_second
        self._report = report
        self._began_s = monotonic()
        self._size = 0

    def pace(self, size: int) -> None:
        self._size += size
        self._report(size)
        while (early_s := self._began_s + self._size / self._rate - monotonic()) > 0:
            sleep(min(early_s, _SLEEP_S_MAX))
            self._report(0)


def run_round(path: str, request: CleaningRequest, report: Pace, key_map: type[KeyMap]) -> CleaningResult:
    """`report` gets the size of each read and write, or 0 while it waits; it raises to end the round."""
    try:
        with _locked(path, report):
            throttle = Throttle(request.bytes_per_second, report)
            return clean(DiskDirectory.existing(path), request, throttle.pace, key_map)
    except FileNotFoundError as gone:
        raise SourcesChanged(str(gone)) from None


@contextmanager
def _locked(path: str, report: Pace) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(_CannotLock):
            while not _try_lock(descriptor):
                report(0)
                sleep(_LOCK_RETRY_S)
        yield
    finally:
        os.close(descriptor)


class _CannotLock(Exception):
    """The file system has no locks of folders."""


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        raise _CannotLock from problem
    return True
