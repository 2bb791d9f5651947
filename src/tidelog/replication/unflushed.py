"""What of a partition is not flushed, and the flush of it that is under way (L6).

**Invariant:** one flush is under way at most; what wants to be flushed meanwhile shares the next one.
"""

from __future__ import annotations

from tidelog.log.flush import FlushJob
from tidelog.log.log import Log


class Unflushed:
    __slots__ = ("_job", "count", "is_wanted")

    def __init__(self) -> None:
        self.is_wanted = False  # a flush is to begin
        self.count = 0  # of records since the last flush began
        self._job: FlushJob | None = None

    @property
    def is_under_way(self) -> bool:
        return self._job is not None

    def want(self) -> None:
        self.is_wanted = True

    def begin(self, log: Log) -> FlushJob | None:
        """The next fsync if one is wanted, unless one is under way."""
        if self._job is not None or not self.is_wanted:
            return None
        self._job = log.begin_flush()
        self.is_wanted = False
        self.count = 0
        return self._job

    def end(self, log: Log, now_ms: int) -> None:
        """The fsync under way has succeeded."""
        job, self._job = self._job, None
        assert job is not None
        job.release()
        log.end_flush(job, now_ms)
