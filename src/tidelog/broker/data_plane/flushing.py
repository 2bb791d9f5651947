"""Flushes of partitions: jobs out, results in (L6, L10).

**Invariant:** a partition has one flush under way at most. If a flush failed, nothing that it covered is ever
acknowledged.
"""

from __future__ import annotations

from collections import OrderedDict

from tidelog.base.limits import FLUSHES_MAX
from tidelog.broker.clock import Clock
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.outbox import Job, JobKind, Outbox
from tidelog.broker.signal import Signal
from tidelog.log.flush import FlushJob
from tidelog.replication.partition import Partition, Role


class Flush(Job):
    """One fsync of a partition's log, for all who wait for it."""

    __slots__ = ("_flushing", "_job", "partition")

    kind = JobKind.FLUSH

    def __init__(self, flushing: Flushing, partition: Partition, job: FlushJob) -> None:
        self._flushing = flushing
        self.partition = partition
        self._job = job

    def run(self) -> None:
        self._job.run()

    def on_done(self, failure: OSError | None) -> None:
        self._flushing.on_done(self.partition, failure)


class Flushing:
    def __init__(self, clock: Clock, outbox: Outbox, disks: Disks) -> None:
        self._clock = clock
        self._outbox = outbox
        self._disks = disks
        self.under_way_count = 0
        self._queue: OrderedDict[Partition, None] = OrderedDict()  # whose flush waits for others' end
        self.flushed: Signal[Partition] = Signal()

    def maybe_begin(self, partition: Partition) -> None:
        """Begin a flush if one is wanted; if many are under way, when one of them has ended. Each keeps its
        files open, and after a crash every partition wants one."""
        if self.under_way_count >= FLUSHES_MAX:
            self._queue[partition] = None
            return
        try:
            job = partition.begin_flush()
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            self._queue[partition] = None  # unless it is offline now, it is tried again
            return
        if job is not None:
            self.under_way_count += 1
            self._outbox.effects.append(Flush(self, partition, job))

    def begin_queued(self) -> None:
        for _ in range(min(FLUSHES_MAX - self.under_way_count, len(self._queue))):
            self.maybe_begin(self._queue.popitem(last=False)[0])

    def on_done(self, partition: Partition, failure: OSError | None) -> None:
        self.under_way_count -= 1
        # A topic's folder is renamed when it is deleted; an fsync that no longer finds it says nothing.
        if failure is not None and partition.role is not Role.DELETED:
            self._disks.fail(partition.directory, failure, is_flush=True)
        else:
            partition.on_flushed(self._clock.now_ms)
            self.flushed.emit(partition)
            self.maybe_begin(partition)
        self.begin_queued()
