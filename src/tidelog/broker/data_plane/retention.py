"""Retention, a piece at a time: old segments leave their logs between the turns of clients.

| piece                                | then                                                            |
|--------------------------------------|-----------------------------------------------------------------|
| what must outlast them is durable    | a few segments are renamed, and unlinked off the loop later     |
| it is not: the log was rolled just   | a flush of the partition is begun; the rest waits for its end   |
| now, or since the last flush         |                                                                 |

**Invariant:** no fsync on the loop, and flushes for retention leave room for those that somebody waits for.
"""

from __future__ import annotations

from collections import deque

from tidelog.base.limits import RETENTION_FLUSHES_MAX, RETENTION_SEGMENTS_MAX, RETENTION_SLICE
from tidelog.base.schedule import Interval
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.kernel import Kernel
from tidelog.broker.waiting import WaitingRoom
from tidelog.log.retention import expired_count
from tidelog.replication.partition import Partition, Role


class Retention:
    def __init__(
        self, kernel: Kernel, disks: Disks, partitions: Partitions, flushing: Flushing, waiting: WaitingRoom
    ) -> None:
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._disks = disks
        self._partitions = partitions
        self._flushing = flushing
        self._waiting = waiting
        self._interval = Interval(kernel.settings.number("log.retention.check.interval.ms"))
        self._queue: deque[Partition] = deque()  # to be looked at
        self._held: dict[Partition, None] = {}  # looked at again when they are flushed

    def tick(self) -> None:
        if self._interval.maybe_restart(self._clock.uptime_ms) and not self._queue:
            self._queue.extend(self._partitions.all())

    @property
    def has_work(self) -> bool:
        return bool(self._queue) and len(self._held) < RETENTION_FLUSHES_MAX

    def work(self) -> None:
        """Look at some partitions, until one has something to remove."""
        for _ in range(min(RETENTION_SLICE, len(self._queue))):
            if self._apply(self._queue.popleft()):
                return

    def on_flushed(self, partition: Partition) -> None:
        """A flush has ended; whether it was the one that the segments wait for, the next look shows."""
        if partition in self._held:
            del self._held[partition]
            self._queue.appendleft(partition)

    def drop(self, partition: Partition) -> None:
        """The partition is gone, or its disk is: its flush will not end well."""
        self._held.pop(partition, None)

    def _apply(self, partition: Partition) -> bool:
        """Remove a few expired segments of a partition; whether there was anything to do."""
        if not partition.is_open or partition.is_cutting or partition.is_swapping:
            return False
        log, now_ms = partition.log, self._clock.now_ms
        # What has expired its leader decides: a follower's log starts where the leader's does.
        is_bound = partition.is_internal or partition.role is Role.FOLLOWER
        try:
            expired = expired_count(log, partition.high_watermark, now_ms, is_bound)
            if not expired:
                return False
            count = min(expired, RETENTION_SEGMENTS_MAX)
            if count == len(log.segments):
                log.roll(now_ms)
            if not log.may_remove(count):
                self._flush(partition)
                return True
            names = log.remove_segments(count)
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return True
        self._waiting.on_moved(partition)  # its log begins later now
        self._outbox.remove_files(partition, names)
        if count < expired:
            self._queue.appendleft(partition)
        return True

    def _flush(self, partition: Partition) -> None:
        self._held[partition] = None
        partition.want_flush()
        self._flushing.maybe_begin(partition)
