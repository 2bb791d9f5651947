"""How flush jobs are run off the loop: one by one with the time they took, or all that a stop needs.

**Invariant:** a job runs once; what it raises is its caller's to tell the broker.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns

from tidelog.base.limits import CLOSING_THREADS
from tidelog.log.log import FlushJob


def run_timed(job: FlushJob) -> int:
    """How many nanoseconds it took."""
    begun_ns = monotonic_ns()
    job.run()
    return monotonic_ns() - begun_ns


def run_together(jobs: list[FlushJob]) -> None:
    """Return, or raise what the first failure was, when all have ended."""
    with ThreadPoolExecutor(CLOSING_THREADS) as threads:
        begun = [threads.submit(job.run) for job in jobs]
    for future in begun:
        future.result()
