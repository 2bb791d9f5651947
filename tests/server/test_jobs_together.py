"""Flush jobs of a stop: all of them end, and a failure is not lost among the others."""

from __future__ import annotations

import errno
import threading

import pytest

from tidelog.log.flush import FlushJob
from tidelog.server.jobs import run_together


class Job(FlushJob):
    def __init__(self, failure: OSError | None = None) -> None:
        super().__init__(0, [], [], 0)
        self._failure = failure
        self.run_count = 0

    def run(self) -> None:
        self.run_count += 1
        if self._failure is not None:
            raise self._failure


class Meeting(FlushJob):
    """Ends only when another one is under way at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__(0, [], [], 0)
        self._barrier = barrier

    def run(self) -> None:
        self._barrier.wait(30)


def test_each_job_is_run_once() -> None:
    jobs = [Job() for _ in range(100)]
    run_together([*jobs])
    assert [job.run_count for job in jobs] == [1] * 100


def test_jobs_are_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2)
    run_together([Meeting(barrier), Meeting(barrier)])


def test_a_failed_job_is_told_after_all_have_run() -> None:
    jobs = [Job(OSError(errno.EIO, "broken")), *(Job() for _ in range(50))]
    with pytest.raises(OSError, match="broken"):
        run_together([*jobs])
    assert [job.run_count for job in jobs] == [1] * 51
