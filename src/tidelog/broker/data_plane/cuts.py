"""Logs that have something their leader does not have, on the way to where it ends.

| step                                        | waits for                                            |
|---------------------------------------------|------------------------------------------------------|
| the leader says where to cut                | a checkpoint, if less will be flushed than was       |
| a flush is under way, or a swap prepared    | its end                                              |
| whole segments leave                        | a turn of the loop, then a flush                     |
| the last segment is cut                     | a turn of the loop, then a flush                     |
| the follower asks for more, or another role |                                                      |

A cut walks the segment that is the last one then, so each has a turn of its own: after the loss of a leader
thousands may be due at once.

**Invariant:** nothing is appended to a log between a cut and the flush that makes it durable, and no fsync is
on the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.base.events import warning
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.kernel import Kernel
from tidelog.log.replica import end_below
from tidelog.replication.fetcher import Fetcher
from tidelog.replication.follower import BeginAt, Cut
from tidelog.replication.partition import Partition, Role


class Cutting(NamedTuple):
    """A log that was cut, and is being flushed."""

    step: Cut | BeginAt
    end_before: int  # where the log ended
    has_renamed: bool  # a segment has left it


class Cuts:
    def __init__(
        self,
        kernel: Kernel,
        disks: Disks,
        checkpoints: Checkpoints,
        relocation: Relocation,
        flushing: Flushing,
        on_end: Callable[[Partition], None],
    ) -> None:
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._disks = disks
        self._checkpoints = checkpoints
        self._relocation = relocation
        self._flushing = flushing
        self._on_end = on_end  # a log was cut, durably
        self._planned: dict[Partition, Cut | BeginAt] = {}
        self._due: dict[Partition, tuple[int, Cut | BeginAt]] = {}  # when a flush or a swap has ended
        self._cutting: dict[Partition, Cutting] = {}
        self._ready: deque[Callable[[], None]] = deque()  # steps that wait for a turn
        self.count = 0  # of logs that had something the leader did not

    def is_pending(self, partition: Partition) -> bool:
        return partition in self._planned or partition in self._cutting

    def drop(self, partition: Partition) -> None:
        """The partition leads, follows under another epoch, or is gone: what was said counts no more."""
        if self._planned.pop(partition, None) is not None:
            partition.cancel_cut()
        self._due.pop(partition, None)
        self._cutting.pop(partition, None)

    def plan(self, fetcher: Fetcher, cuts: list[tuple[Partition, Cut | BeginAt]]) -> None:
        """If a cut lowers the recovery point or the high watermark, write the checkpoints first. Otherwise
        a crash would treat records appended after the cut as flushed, miss what was cut, or pick the folder
        that the log has just left because it is longer."""
        for partition, step in cuts:
            log, epoch = partition.log, partition.leader_epoch
            try:
                floor = end_below(log, step.offset) if isinstance(step, Cut) else log.end_offset
            except OSError as failure:
                self._disks.fail(partition.directory, failure)
                continue
            self._planned[partition] = step
            fetcher.hold(partition)
            is_leaving = self._relocation.is_leaving(partition)
            known = log.recovery_point, log.start_offset, partition.high_watermark, log.cleaned_offset
            kept_offset = max(known)
            if floor >= kept_offset and not is_leaving:
                self._ready.append(partial(self._carry_out, partition, epoch, step))
                continue
            partition.plan_cut(floor)
            self._wait_for_checkpoint(partial(self._carry_out, partition, epoch, step))
        self._checkpoints.write_urgent()

    def _wait_for_checkpoint(self, then: Callable[[], None]) -> None:
        self._checkpoints.wait(partial(self._ready.append, then))

    @property
    def has_work(self) -> bool:
        return bool(self._ready)

    def work(self) -> None:
        """One step of one cut."""
        self._ready.popleft()()

    def on_swapped(self, partition: Partition) -> None:
        """Compaction has done with its segments."""
        if partition in self._due:
            self._ready.append(partial(self._carry_out, partition, *self._due.pop(partition)))

    def on_flushed(self, partition: Partition) -> None:
        cutting = self._cutting.get(partition)
        if cutting is not None:
            self._ready.append(partial(self._go_on, partition, cutting))
        else:
            self.on_swapped(partition)

    def _carry_out(self, partition: Partition, epoch: int, step: Cut | BeginAt) -> None:
        """Unless the leader was asked again meanwhile: what it said last is what counts, and counts once."""
        if self._planned.get(partition) is not step:
            return
        if self._relocation.is_leaving(partition):
            self._wait_for_checkpoint(partial(self._carry_out, partition, epoch, step))
        elif partition.role is not Role.FOLLOWER or partition.leader_epoch != epoch:
            del self._planned[partition]  # somebody else leads by now, and will say what to do
            partition.cancel_cut()
        elif partition.is_flushing or partition.is_swapping:
            self._due[partition] = epoch, step
        else:
            del self._planned[partition]
            self._cut(partition, Cutting(step, partition.log.end_offset, False))

    def _cut(self, partition: Partition, cutting: Cutting) -> None:
        """Cut, or go on with it, and flush what was done."""
        step = cutting.step
        try:
            act = partition.cut if isinstance(step, Cut) else partition.begin_at
            names = act(step.offset, self._clock.now_ms)
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return
        self._outbox.remove_files(partition, names)
        cutting = self._cutting[partition] = cutting._replace(has_renamed=cutting.has_renamed or bool(names))
        if partition.is_cutting:
            self._flushing.maybe_begin(partition)
        else:  # an epoch is forgotten in which nothing was written
            self._end(partition, cutting)

    def _go_on(self, partition: Partition, cutting: Cutting) -> None:
        """What was cut so far is durable."""
        if self._cutting.get(partition) is not cutting or partition.is_flushing:
            return  # the end of that flush brings it here again
        log, step = partition.log, cutting.step
        try:
            is_whole = not isinstance(step, Cut) or end_below(log, step.offset) >= log.end_offset
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return
        if is_whole:
            self._end(partition, cutting)
        else:
            self._cut(partition, cutting)

    def _end(self, partition: Partition, cutting: Cutting) -> None:
        before, end = cutting.end_before, partition.log.end_offset
        del self._cutting[partition]
        partition.end_cut()
        if cutting.has_renamed or end != before:
            self._relocation.begin_anew(partition)
        if end != before:
            self.count += 1
            name = f"{partition.topic}-{partition.index}"
            self._outbox.tell(warning("log truncated", partition=name, before=before, after=end))
        self._on_end(partition)
