"""What threads did comes back on the loop, also what nobody expected."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, cast

import pytest

from tidelog.base.clock import monotonic_ms, wall_ms
from tidelog.log.log import FlushJob
from tidelog.replication.partition import Partition
from tidelog.server.jobs import Jobs, JobsOwner
from tidelog.server.report import Report
from tidelog.server.vitals import Vitals


class FailingJob(FlushJob):
    def __init__(self, failure: BaseException) -> None:
        super().__init__(0, [], [], 0)
        self._failure = failure

    def run(self) -> None:
        raise self._failure

    write = run  # as a checkpoint is written

    @property
    def copy(self) -> FailingJob:
        return self

    directory = move = None


class Owner:
    """A broker that only hears what came of jobs."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.report = Report(self.told.append, lambda: "INFO", False, wall_ms, monotonic_ms)
        self.vitals = Vitals(1)
        self.is_stopping = False
        self.failures: asyncio.Queue[OSError | None] = asyncio.Queue()

    @property
    def broker(self) -> Owner:
        return self

    relocation = broker

    def set_time(self) -> None:
        pass

    settle = set_time

    def on_ended(self, job: Any, failure: OSError | None) -> None:
        self.failures.put_nowait(failure)

    on_flushed = on_checkpointed = on_copied = on_ended


@pytest.mark.parametrize("kind", ["flush", "copy", "write_checkpoint"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), ValueError("a bug"), MemoryError()])
def test_a_job_that_fails_ends(kind: str, failure: BaseException) -> None:
    """A bug as well: else its flush would count as under way, and its acknowledgements wait, for ever."""

    async def run() -> tuple[OSError | None, list[str]]:
        owner = Owner()
        jobs = Jobs(cast(JobsOwner, owner), asyncio.get_running_loop())
        job = cast(Any, FailingJob(failure))
        if kind == "flush":
            jobs.flush(cast(Partition, None), job)
        else:
            getattr(jobs, kind)(job)
        ended = await asyncio.wait_for(owner.failures.get(), 30)
        await jobs.stop()
        return ended, owner.told

    ended, told = asyncio.run(run())
    assert isinstance(ended, OSError)
    if isinstance(failure, OSError):
        assert (ended, told) == (failure, [])
    else:
        assert ended.errno == errno.EIO and repr(failure) in str(ended)
        assert any("job failed" in line for line in told)
