"""Jobs of a broker, run where they are asked for."""

from __future__ import annotations

from tidelog.broker.outbox import Job


def outcome_of(job: Job) -> OSError | None:
    """Run a job; how it failed, if it did."""
    try:
        job.run()
    except OSError as failure:
        return failure
    return None


def run_job(job: Job) -> None:
    job.on_done(outcome_of(job))
