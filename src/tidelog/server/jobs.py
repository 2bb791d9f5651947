"""What runs off the loop for the broker, on threads: fsyncs, cold reads, copies, checkpoints, removals.

**Invariant:** whatever ends comes back on the loop, once; after a stop only a failed fsync does. A bug in a
job counts as a failure of its disk: nobody knows how far it came.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from errno import EIO
from typing import Protocol

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import error, warning
from tidelog.base.limits import BACKGROUND_THREADS, COLD_READ_THREADS, FLUSH_THREADS
from tidelog.broker.broker import Broker, Removal
from tidelog.broker.lookups import ColdRead
from tidelog.broker.partitions import Checkpoint
from tidelog.broker.relocation import CopyRequest
from tidelog.log.directory import LogDirectory
from tidelog.log.log import FlushJob
from tidelog.replication.partition import Partition
from tidelog.server.flushing import run_timed
from tidelog.server.pages import read_through
from tidelog.server.report import Report, trace_of
from tidelog.server.vitals import Vitals

PAUSE_S = 1.0  # when there are no descriptors left


class JobsOwner(Protocol):
    """Whose broker it is for."""

    broker: Broker
    report: Report
    vitals: Vitals
    is_stopping: bool

    def set_time(self) -> None: ...

    def settle(self) -> None: ...


class Jobs:
    def __init__(self, owner: JobsOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._flushers = ThreadPoolExecutor(FLUSH_THREADS, thread_name_prefix="tidelog-flush")
        self.threads = ThreadPoolExecutor(BACKGROUND_THREADS, thread_name_prefix="tidelog-io")
        # A disk may take seconds to give a sector up, and all who wait for it hold a thread.
        self.readers = ThreadPoolExecutor(COLD_READ_THREADS, thread_name_prefix="tidelog-cold")
        self._checkpoints: dict[LogDirectory, Checkpoint | None] = {}  # being written, and what comes next
        self._removals: list[Removal] = []

    async def stop(self) -> None:
        """Let what is under way end."""
        await self._loop.run_in_executor(None, self._flushers.shutdown)
        await self._loop.run_in_executor(None, self.threads.shutdown)
        await self._loop.run_in_executor(None, self.readers.shutdown)

    def flush(self, partition: Partition, job: FlushJob) -> None:
        def on_done(future: Future[int]) -> None:
            failure = future.exception()
            took_ns = future.result() if failure is None else 0
            self._loop.call_soon_threadsafe(self._on_flushed, partition, job, failure, took_ns)

        self._flushers.submit(run_timed, job).add_done_callback(on_done)

    def copy(self, request: CopyRequest) -> None:
        def on_done(future: Future[None]) -> None:
            self._loop.call_soon_threadsafe(self._on_copied, request, future.exception())

        self.threads.submit(request.copy.run).add_done_callback(on_done)

    def _on_copied(self, request: CopyRequest, failure: BaseException | None) -> None:
        if not self._owner.is_stopping:
            self._owner.set_time()
            self._owner.broker.relocation.on_copied(request.move, self._as_io(failure))
            self._owner.settle()

    def read_cold(self, read: ColdRead) -> None:
        def on_done(future: Future[None]) -> None:
            self._loop.call_soon_threadsafe(self._on_read, read, future.exception())

        descriptor = read.file.fileno()
        self.readers.submit(read_through, descriptor, read.position, read.size).add_done_callback(on_done)

    def _on_read(self, read: ColdRead, failure: BaseException | None) -> None:
        if not self._owner.is_stopping:
            self._owner.set_time()
            self._owner.broker.lookups.on_read(read, self._as_io(failure))
            self._owner.settle()

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """One at a time in each directory; of those that come meanwhile the last one is written next."""
        directory = checkpoint.directory
        if directory in self._checkpoints:
            self._checkpoints[directory] = checkpoint
            return
        self._checkpoints[directory] = None

        def on_done(future: Future[None]) -> None:
            self._loop.call_soon_threadsafe(self._on_checkpointed, checkpoint, future.exception())

        self.threads.submit(checkpoint.write).add_done_callback(on_done)

    def _on_checkpointed(self, checkpoint: Checkpoint, failure: BaseException | None) -> None:
        following = self._checkpoints.pop(checkpoint.directory)
        if self._owner.is_stopping:
            return
        self._owner.set_time()
        self._owner.broker.on_checkpointed(checkpoint, self._as_io(failure))
        if following is not None:
            self.write_checkpoint(following)
        self._owner.settle()

    def _on_flushed(
        self, partition: Partition, job: FlushJob, reason: BaseException | None, took_ns: int
    ) -> None:
        if self._owner.is_stopping and reason is None:
            return
        failure = self._as_io(reason)
        if failure is not None and failure.errno in TOO_MANY_OPEN and not self._owner.is_stopping:
            # A folder could not be opened to be synced; no fsync has failed, so this may be tried again.
            self._owner.report.tell(
                warning("flush put off", reason=f"{failure.strerror}; raise the limit of open files")
            )
            self._loop.call_later(PAUSE_S, self.flush, partition, job)
            return
        if failure is None:
            self._owner.vitals.fsync_times.observe(took_ns)
        self._owner.set_time()
        self._owner.broker.on_flushed(partition, failure)  # it counts also while stopping: no clean stop then
        if self._owner.is_stopping:
            return
        self._owner.settle()

    def _as_io(self, failure: BaseException | None) -> OSError | None:
        if failure is None or isinstance(failure, OSError):
            return failure
        self._owner.report.tell(error("job failed", traceback=trace_of(failure)))
        return OSError(EIO, f"a job failed: {failure!r}")

    def remove_later(self, removal: Removal) -> None:
        self._removals.append(removal)

    def remove_due(self, now_ms: int) -> None:
        due = [removal for removal in self._removals if removal.due_ms <= now_ms]
        self._removals = [removal for removal in self._removals if removal.due_ms > now_ms]
        for removal in due:
            for name in removal.names:
                self.threads.submit(removal.directory.remove, name)
