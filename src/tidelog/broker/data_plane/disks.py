"""The log directories of this broker, and what follows when one of them fails.

**Invariant:** a directory that has failed is offline for the life of the process, with everything in it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import error
from tidelog.base.files import File
from tidelog.broker.kernel import Kernel
from tidelog.broker.outbox import Job, JobKind
from tidelog.broker.signal import Signal
from tidelog.broker.standing import Standing
from tidelog.cluster.controller import encode_id
from tidelog.log.directory import LogDirectory
from tidelog.log.trust import Kept, Life

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
Failures = list[tuple[LogDirectory, OSError]]


class NoteRemoval(Job):
    """After a power cut the note of a failed directory must not be back."""

    __slots__ = ("_directory",)

    kind = JobKind.SLOW_DISK

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory

    def run(self) -> None:
        self._directory.forget_note()

    def on_done(self, failure: OSError | None) -> None:
        """A disk that refuses this has failed already; what it had is stated in the store."""


class NextNotes(Job):
    """Notes of the next session, beside those in use. `failed` are the directories that they name as such."""

    __slots__ = ("_boot_id", "_directories", "_disks", "epoch", "failed", "failures", "then", "written")

    kind = JobKind.SLOW_DISK

    def __init__(
        self, disks: Disks, boot_id: str, epoch: int, failed: list[str], then: Callable[[], None]
    ) -> None:
        self._disks = disks
        self._directories = disks.working
        self._boot_id = boot_id
        self.epoch = epoch
        self.failed = failed
        self.then = then
        self.written: list[LogDirectory] = []
        self.failures: Failures = []

    def run(self) -> None:
        for directory in self._directories:
            try:
                directory.write_next_note(self._boot_id, self.epoch, self.failed)
                self.written.append(directory)
            except OSError as failure:
                self.failures.append((directory, failure))

    def on_done(self, failure: OSError | None) -> None:
        self._disks.use_next_notes(self)


class NoteSync(Job):
    """The notes that were renamed are to last."""

    __slots__ = ("_directories", "_disks", "_failures", "_then")

    kind = JobKind.SLOW_DISK

    def __init__(self, disks: Disks, then: Callable[[], None]) -> None:
        self._disks = disks
        self._directories = disks.working
        self._then = then
        self._failures: Failures = []

    def run(self) -> None:
        for directory in self._directories:
            try:
                directory.directory.sync()
            except OSError as failure:
                self._failures.append((directory, failure))

    def on_done(self, failure: OSError | None) -> None:
        if failure is not None:  # a bug: nobody knows how far it came
            self._failures = [(directory, failure) for directory in self._directories]
        self._disks.fail_all(self._failures)
        self._then()


class Disks:
    def __init__(self, kernel: Kernel, standing: Standing, directories: Sequence[LogDirectory]) -> None:
        self._kernel = kernel
        self._standing = standing
        self.directories = list(directories)
        self.failed: Signal[LogDirectory] = Signal()
        self.are_all_failed = False
        self.failed_ms = 0  # when the last one did

    @property
    def working(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def claim(self, cluster_id: str, life: Life) -> bool:
        """Check that the directories are ours, and what they have kept; whether all were closed cleanly."""
        kernel = self._kernel
        for directory in self.directories:
            directory.peek(kernel.boot_id, life)
        for directory in self.directories:
            directory.open(cluster_id, kernel.node_id, encode_id(kernel.entropy(16)))
        failed = {each for directory in self.directories for each in directory.failed_before}
        for directory in self.directories:
            if directory.directory_id in failed:
                directory.kept = Kept.LOST
        return all(directory.was_clean for directory in self.directories)

    def vouch(self, epoch: int) -> None:
        """Leave word of what each directory has kept up to that epoch, while the machine runs."""
        self._standing.vouched_epoch = epoch
        self.fail_all(self._write_notes())

    def vouch_later(self, epoch: int, then: Callable[[], None]) -> None:
        """The same for who is served meanwhile; `then` is called when it is durable, and until then nothing
        counts on it."""
        notes = NextNotes(self, self._kernel.boot_id, epoch, self._failed_ids(), then)
        self._kernel.outbox.effects.append(notes)

    def use_next_notes(self, notes: NextNotes) -> None:
        """Unless a disk has failed meanwhile: then each note has to say so."""
        self.fail_all(notes.failures)
        if self._failed_ids() != notes.failed:
            self.vouch_later(notes.epoch, notes.then)
            return
        self._standing.vouched_epoch = notes.epoch
        for directory in notes.written:
            if directory.failure is None:
                try:
                    directory.use_next_note(notes.epoch)
                except OSError as failure:
                    self.fail(directory, failure)
        self._kernel.outbox.effects.append(NoteSync(self, notes.then))

    def _write_notes(self) -> Failures:
        """Say in each directory who uses it, and which ones have failed."""
        failures: Failures = []
        for directory in self.working:
            try:
                directory.write_note(self._kernel.boot_id, self._standing.vouched_epoch, self._failed_ids())
            except OSError as failure:
                failures.append((directory, failure))
        return failures

    def _failed_ids(self) -> list[str]:
        """Of directories that have failed; of those of the last life that is said until the store knows."""
        lost = [each.directory_id for each in self.directories if each.is_lost]
        return [*dict.fromkeys([*lost, *(name for each in self.directories for name in each.failed_before)])]

    def fail_all(self, failures: Failures) -> None:
        for directory, failure in failures:
            self.fail(directory, failure)

    def on_unreadable(self, file: File, failure: OSError) -> None:
        """Bytes that an answer has promised cannot be read: the disk has failed."""
        for directory in self.directories:
            if file.folder.startswith(directory.path.rstrip("/") + "/"):
                self.fail(directory, failure)

    def fail(self, directory: LogDirectory, failure: OSError, is_flush: bool = False) -> None:
        """Take a log directory offline for good. It may have lost what was written, unless that was before
        this process wrote anything, or the disk is full for a write."""
        outbox = self._kernel.outbox
        if failure.errno in TOO_MANY_OPEN:  # the process has too many files open; the disk is well
            reason = f"{failure.strerror}; raise the limit of open files"
            outbox.tell(error("file open failed", directory=directory.path, reason=reason))
            return
        is_kept = failure.errno in FULL_DISK and not is_flush
        is_lost = self._standing.has_registered and not is_kept
        # An error without a number says again what has failed before.
        is_worse = is_lost and not directory.is_lost and failure.errno is not None
        if directory.failure is None or is_worse:
            self.failed_ms = self._kernel.clock.uptime_ms
            directory.fail(str(failure), is_lost)
            if is_lost:
                outbox.effects.append(NoteRemoval(directory))
                self._write_notes()
            outbox.tell(error("directory offline", directory=directory.path, reason=str(failure)))
        self.are_all_failed = not self.working
        self.failed.emit(directory)
