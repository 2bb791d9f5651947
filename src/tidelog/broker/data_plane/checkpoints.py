"""Which checkpoints are on the disk: who waits for one, and which names the last one may still have.

Checkpoints are keyed by the names of topics, as in Kafka. A topic that is deleted and made again under its
name must not inherit the offsets of the first, so it is not opened before they are gone from the disk too.

**Invariant:** what waits goes on once every working directory has a checkpoint that was taken after it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.base.limits import TRIMS_KEPT_MS
from tidelog.base.schedule import Interval
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.kernel import Kernel
from tidelog.broker.outbox import Job, JobKind
from tidelog.broker.standing import Standing
from tidelog.log.directory import LogDirectory
from tidelog.log.format.checkpoint import Offsets
from tidelog.log.trust import StorePosition
from tidelog.replication.partition import Role


class Checkpoint(Job):
    """Where the logs of a directory stand, to be written off the loop."""

    __slots__ = (
        "_checkpoints",
        "cleaned_offsets",
        "directory",
        "high_watermarks",
        "number",
        "recovery_points",
        "start_offsets",
        "store_position",
    )

    kind = JobKind.CHECKPOINT

    def __init__(
        self, checkpoints: Checkpoints, number: int, directory: LogDirectory, store_position: StorePosition
    ) -> None:
        self._checkpoints = checkpoints
        self.number = number
        self.directory = directory
        self.store_position = store_position
        self.recovery_points: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.start_offsets: Offsets = {}
        self.cleaned_offsets: Offsets = {}

    @property
    def lane(self) -> LogDirectory:
        return self.directory

    def run(self) -> None:
        self.directory.write_store_position(self.store_position)
        self.directory.write_checkpoints(
            self.recovery_points, self.high_watermarks, self.start_offsets, self.cleaned_offsets
        )

    def on_done(self, failure: OSError | None) -> None:
        self._checkpoints.on_done(self, failure)


class Checkpoints:
    def __init__(self, kernel: Kernel, standing: Standing, disks: Disks, partitions: Partitions) -> None:
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._standing = standing
        self._disks = disks
        self._partitions = partitions
        self._interval = Interval(kernel.settings.number("log.flush.offset.checkpoint.interval.ms"))
        self._trims = Interval(TRIMS_KEPT_MS)
        self._written: dict[LogDirectory, int] = dict.fromkeys(disks.directories, 0)
        self._number = 0
        self._stale_names: dict[str, int] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.is_wanted = False  # sooner than at its time

    def tick(self) -> None:
        uptime_ms = self._clock.uptime_ms
        is_wanted = self.is_wanted and self._trims.maybe_restart(uptime_ms)
        if self._interval.maybe_restart(uptime_ms) or is_wanted or self._is_urgent:
            self._write()

    def write_urgent(self) -> None:
        if self._is_urgent:
            self._write()

    def _write(self) -> None:
        self._number += 1
        self.is_wanted = False
        self._outbox.effects += [self.of(directory, self._number) for directory in self._disks.working]

    def of(self, directory: LogDirectory, number: int = 0) -> Checkpoint:
        """Where the logs of a directory stand now."""
        taken = Checkpoint(self, number, directory, self._standing.store_position)
        for partition in self._partitions.in_directory(directory):
            key = (partition.topic, partition.index)
            if partition.role is Role.OFFLINE:  # what was known of it at the start still holds
                if key in directory.start_offsets:
                    taken.start_offsets[key] = directory.start_offsets[key]
                if key in directory.cleaned_offsets:
                    taken.cleaned_offsets[key] = directory.cleaned_offsets[key]
                continue
            log, floor = partition.log, partition.floor
            recovery_point, high_watermark, start_offset, cleaned_offset = (
                offset if floor is None else min(floor, offset)
                for offset in (
                    log.recovery_point,
                    partition.high_watermark,
                    log.start_offset,
                    log.cleaned_offset,
                )
            )
            taken.recovery_points[key] = recovery_point
            taken.high_watermarks[key] = high_watermark
            if start_offset > log.bases[0]:
                taken.start_offsets[key] = start_offset
            if cleaned_offset > 0:
                taken.cleaned_offsets[key] = max(cleaned_offset, start_offset)
        return taken

    @property
    def _is_urgent(self) -> bool:
        """Somebody waits for one that is not being taken yet."""
        return any(number > self._number for number, _ in self._waiting)

    def want(self) -> None:
        self.is_wanted = True

    def forget(self, names: Iterable[str]) -> None:
        """Topics that are there no more; the files may still have their offsets."""
        for name in names:
            self._stale_names[name] = self._number + 1
            self.is_wanted = True

    def is_stale(self, name: str) -> bool:
        return name in self._stale_names

    def wait_for_name(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` when no disk has the offsets of the topic that had this name."""
        self._waiting.append((self._stale_names[name], then))

    def wait(self, then: Callable[[], None]) -> None:
        """Call `then` when a checkpoint that is taken from now on is on every disk."""
        self._waiting.append((self._number + 1, then))
        self.is_wanted = True

    def on_done(self, checkpoint: Checkpoint, failure: OSError | None) -> None:
        directory = checkpoint.directory
        if failure is not None:
            self._disks.fail(directory, failure)
            self.want()
            return
        self._written[directory] = max(self._written[directory], checkpoint.number)
        self.release()

    def release(self) -> None:
        """Let go on what waits for nothing any more; a directory that has failed is not waited for."""
        written = [self._written[home] for home in self._disks.directories if home.failure is None]
        reached = min(written, default=self._number)
        for name in [name for name, number in self._stale_names.items() if number <= reached]:
            del self._stale_names[name]
        ready = [then for number, then in self._waiting if number <= reached]
        self._waiting = [entry for entry in self._waiting if entry[0] > reached]
        for then in ready:
            then()
