"""Are the pages of a file range in memory? A cold range is read by a thread before the loop sends it.

Linux can be asked without waiting (`preadv2` with RWF_NOWAIT). Where that is missing, every range counts
as warm: correct, and as slow as the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future

from tidelog.base.files import CANNOT_SAY
from tidelog.base.limits import PAGE_PROBE_STRIDE

OnWarm = Callable[[OSError | None], None]
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class PageCache:
    def __init__(self, executor: Executor, call_soon: Callable[[OnWarm, OSError | None], object]) -> None:
        self._executor = executor
        self._call_soon = call_soon
        self._byte = bytearray(1)
        self._can_probe = bool(_NOWAIT) and hasattr(os, "preadv")
        self.warmed_count = 0

    def probe(self, descriptor: int, position: int, size: int) -> bool:
        """Whether the range is in memory, or nobody can say."""
        if not self._can_probe or size == 0:
            return True
        last = position + size - 1
        for place in (*range(position, last, PAGE_PROBE_STRIDE), last):
            try:
                os.preadv(descriptor, [self._byte], place, _NOWAIT)
            except BlockingIOError:
                return False
            except OSError as failure:
                if failure.errno not in CANNOT_SAY:
                    return False  # the thread that reads it finds out
                self._can_probe = False
                return True
        return True

    def warm(self, descriptor: int, position: int, size: int, then: OnWarm) -> None:
        """Read the range on a thread, then run `then` on the loop, with what went wrong. The caller keeps the
        file pinned."""
        self.warmed_count += 1

        def on_done(future: Future[None]) -> None:
            failure = future.exception()
            known = failure if failure is None or isinstance(failure, OSError) else OSError(str(failure))
            self._call_soon(then, known)

        self._executor.submit(read_through, descriptor, position, size).add_done_callback(on_done)


def read_through(descriptor: int, position: int, size: int) -> None:
    end = position + size
    while position < end:
        piece = os.pread(descriptor, min(PAGE_PROBE_STRIDE, end - position), position)
        if not piece:
            return
        position += len(piece)
