"""What runs off the loop for the broker: jobs of a few kinds, each with its share of threads.

| kind             | threads | if no descriptor is left | its failure during a stop |
|------------------|---------|--------------------------|---------------------------|
| flush            | flush   | is tried again           | the stop is not clean     |
| checkpoint, copy | io      | fails                    | is ignored                |
| swap             | io      | fails                    | is ignored                |
| cleaning         | rounds  | fails                    | is ignored                |
| slow disk        | cold    | fails                    | is ignored                |

**Invariant:** a job that ends comes back on the loop, once; after a stop only a failed fsync does. A bug in a
job counts as a failure of its disk: nobody knows how far it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from errno import EIO
from time import monotonic_ns
from typing import NamedTuple, Protocol

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import Event, error, warning
from tidelog.base.limits import BACKGROUND_THREADS, CLOSING_THREADS, COLD_READ_THREADS, FLUSH_THREADS
from tidelog.base.metrics import Histogram
from tidelog.broker.outbox import Job, JobKind
from tidelog.log.flush import FlushJob
from tidelog.server.life import Life
from tidelog.server.watch.report import trace_of

RETRY_S = 1.0  # when there are no descriptors left

# A disk may take seconds to give a sector up, and all who wait for it hold a thread of `cold`.
BUDGETS = {"flush": FLUSH_THREADS, "io": BACKGROUND_THREADS, "cold": COLD_READ_THREADS, "rounds": 1}


class Rule(NamedTuple):
    threads: str  # whose budget it uses
    is_fsync: bool = False  # it is tried again if it could not begin, and its failure counts while stopping


RULES = {
    JobKind.FLUSH: Rule("flush", is_fsync=True),
    JobKind.CHECKPOINT: Rule("io"),
    JobKind.COPY: Rule("io"),
    JobKind.SWAP: Rule("io"),
    JobKind.CLEANING: Rule("rounds"),
    JobKind.SLOW_DISK: Rule("cold"),
}


class Inputs(Protocol):
    """Where the broker is told."""

    def on_job_ended(self, job: Job, failure: OSError | None) -> None: ...

    def settle(self) -> None: ...


class Jobs:
    def __init__(
        self,
        inputs: Inputs,
        life: Life,
        loop: asyncio.AbstractEventLoop,
        times: Mapping[JobKind, Histogram],
        tell: Callable[[Event], None],
    ) -> None:
        self._inputs = inputs
        self._life = life
        self._loop = loop
        self._times = times  # of the kinds that are measured
        self._tell = tell
        self._pools = {
            name: ThreadPoolExecutor(count, thread_name_prefix=f"tidelog-{name}")
            for name, count in BUDGETS.items()
        }
        self._lanes: dict[object, Job | None] = {}  # in use, and what comes next on each

    @property
    def background(self) -> Executor:
        return self._pools["io"]

    @property
    def cold(self) -> Executor:
        """For what may wait for a disk that takes seconds."""
        return self._pools["cold"]

    async def stop(self) -> None:
        """Let what is under way end."""
        for pool in self._pools.values():
            await self._loop.run_in_executor(None, pool.shutdown)

    def start(self, job: Job) -> None:
        lane = job.lane
        if lane is None:
            self._run(job)
        elif lane in self._lanes:
            self._lanes[lane] = job
        else:
            self._lanes[lane] = None
            self._run(job)

    def _run(self, job: Job) -> None:
        def on_done(future: Future[int]) -> None:
            failure = future.exception()
            took_ns = future.result() if failure is None else 0
            self._loop.call_soon_threadsafe(self._on_done, job, failure, took_ns)

        self._pools[RULES[job.kind].threads].submit(run_timed, job).add_done_callback(on_done)

    def _on_done(self, job: Job, reason: BaseException | None, took_ns: int) -> None:
        is_fsync, is_stopping = RULES[job.kind].is_fsync, self._life.is_stopping
        following = self._lanes.pop(job.lane, None) if job.lane is not None else None
        if is_stopping and (reason is None or not is_fsync):
            return
        failure = self._as_io(reason)
        if is_fsync and failure is not None and failure.errno in TOO_MANY_OPEN and not is_stopping:
            # A folder could not be opened to be synced; no fsync has failed, so this may be tried again.
            self._tell(warning("flush deferred", reason=f"{failure.strerror}; raise the limit of open files"))
            self._loop.call_later(RETRY_S, self._run, job)
            return
        if failure is None and job.kind in self._times:
            self._times[job.kind].observe(took_ns)
        self._inputs.on_job_ended(job, failure)
        if self._life.is_stopping:
            return
        if following is not None:
            self.start(following)
        self._inputs.settle()

    def _as_io(self, failure: BaseException | None) -> OSError | None:
        if failure is None or isinstance(failure, OSError):
            return failure
        self._tell(error("job failed", traceback=trace_of(failure)))
        return OSError(EIO, f"a job failed: {failure!r}")


def run_timed(job: Job) -> int:
    """How many nanoseconds it took."""
    begun_ns = monotonic_ns()
    job.run()
    return monotonic_ns() - begun_ns


def run_together(jobs: list[FlushJob]) -> None:
    """Run all flushes of a stop; return, or raise what the first failure was, when all have ended."""
    with ThreadPoolExecutor(CLOSING_THREADS) as threads:
        begun = [threads.submit(job.run) for job in jobs]
    for future in begun:
        future.result()
