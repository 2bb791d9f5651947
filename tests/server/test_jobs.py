"""What threads did comes back on the loop, also what nobody expected."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from tidelog.base.events import Event
from tidelog.broker.outbox import Job, JobKind
from tidelog.server.jobs import Jobs
from tidelog.server.life import Life


class FailingJob(Job):
    def __init__(self, kind: JobKind, failure: BaseException) -> None:
        self.kind = kind
        self._failure = failure
        self.failures: asyncio.Queue[OSError | None] = asyncio.Queue()

    def run(self) -> None:
        raise self._failure

    def on_done(self, failure: OSError | None) -> None:
        self.failures.put_nowait(failure)


class LanedJob(Job):
    """Waits until it is let go."""

    kind = JobKind.CHECKPOINT

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told
        self.is_let_go = threading.Event()
        self.has_ended = asyncio.Event()

    @property
    def lane(self) -> str:
        return "one"

    def run(self) -> None:
        assert self.is_let_go.wait(30)

    def on_done(self, failure: OSError | None) -> None:
        self._told.append(self._name)
        self.has_ended.set()


class Inputs:
    """A broker that only hears what came of jobs."""

    def on_job_ended(self, job: Job, failure: OSError | None) -> None:
        job.on_done(failure)

    def settle(self) -> None:
        pass


def make_jobs(told: list[Event]) -> Jobs:
    return Jobs(Inputs(), Life(), asyncio.get_running_loop(), {}, told.append)


@pytest.mark.parametrize("kind", JobKind)
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), ValueError("a bug"), MemoryError()])
def test_a_job_that_fails_ends(kind: JobKind, failure: BaseException) -> None:
    """A bug as well: else its flush would count as under way, and its acknowledgements wait, for ever."""

    async def run() -> tuple[OSError | None, list[str]]:
        told: list[Event] = []
        jobs = make_jobs(told)
        job = FailingJob(kind, failure)
        jobs.start(job)
        ended = await asyncio.wait_for(job.failures.get(), 30)
        await jobs.stop()
        return ended, [event.name for event in told]

    ended, told = asyncio.run(run())
    assert isinstance(ended, OSError)
    if isinstance(failure, OSError):
        assert (ended, told) == (failure, [])
    else:
        assert ended.errno == errno.EIO and repr(failure) in str(ended)
        assert told == ["job failed"]


def test_of_the_jobs_that_wait_for_their_lane_the_last_one_runs() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        jobs = make_jobs([])
        first, second, third = (LanedJob(name, told) for name in ("first", "second", "third"))
        for job in (first, second, third):
            jobs.start(job)
        for job in (first, third):
            job.is_let_go.set()
            await asyncio.wait_for(job.has_ended.wait(), 30)
        await jobs.stop()
        return told

    assert asyncio.run(run()) == ["first", "third"]
