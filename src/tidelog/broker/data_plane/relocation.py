"""The wiring of moves: from a broker's events to copies, the switch, and the end of the old folder.

**Invariant:** a folder is removed under a name that no partition has.
"""

from __future__ import annotations

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import error, info
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.moves import Copy, Move, Moved, MoveFailed, Moves
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.kernel import Kernel
from tidelog.broker.outbox import Job, JobKind
from tidelog.log.directory import LogDirectory
from tidelog.log.format.names import folder_name
from tidelog.replication.partition import Partition


class CopyRequest(Job):
    """A part of a move to be done off the loop. Of a move that has ended the old home is synced, and nothing
    copied."""

    __slots__ = ("_relocation", "copy", "move")

    kind = JobKind.COPY

    def __init__(self, relocation: Relocation, move: Move | Moved, copy: Copy) -> None:
        self._relocation = relocation
        self.move = move
        self.copy = copy

    def run(self) -> None:
        self.copy.run()

    def on_done(self, failure: OSError | None) -> None:
        self._relocation.on_copied(self.move, failure)


class Relocation:
    def __init__(
        self, kernel: Kernel, disks: Disks, partitions: Partitions, checkpoints: Checkpoints
    ) -> None:
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._entropy = kernel.entropy
        self._disks = disks
        self._partitions = partitions
        self._checkpoints = checkpoints
        self.moves = Moves()
        self._leaving: dict[Moved, str | None] = {}  # whose old folder has its name still, or might again

    def move(self, partition: Partition, target: LogDirectory) -> None:
        self._throw_away(self.moves.request(partition, target, self._entropy(16)))
        self.advance()

    def cancel(self, partition: Partition) -> None:
        self._throw_away(self.moves.cancel(partition))

    def begin_anew(self, partition: Partition) -> None:
        """The log was cut: what has been copied of it may be what it has no more."""
        move = self.moves.of(partition)
        if move is not None:
            self.cancel(partition)
            self.move(partition, move.target)

    def is_leaving(self, partition: Partition) -> bool:
        """Whether a crash would find two folders of it, and take the longer one for right."""
        return any(moved.partition is partition for moved in self._leaving)

    def cancel_touching(self, directory: LogDirectory) -> None:
        for partition in self.moves.touching(directory):
            self.cancel(partition)

    def _throw_away(self, move: Move | None) -> None:
        if move is None or not move.has_folder or move.target.failure is not None:
            return
        if move.has_final_name:
            self._take_back(move)
        else:
            self._outbox.remove_later(move.target.directory, move.name, 0)

    def _take_back(self, move: Move) -> None:
        """A switch has failed late: what a crash would take for the partition's folder goes as an old one."""
        directory = move.target.directory
        try:
            move.take_back()
        except OSError as failure:
            self._disks.fail(move.target, failure)
            return
        moved = Moved(move.partition, move.target, has_failed=True)
        self._leaving[moved] = move.name
        self._outbox.effects.append(CopyRequest(self, moved, Copy(directory, directory)))

    def advance(self) -> None:
        """End the move that is close enough, begin the next copy."""
        ready = self.moves.ready()
        if ready is not None:
            self._finish(ready)
        begun = self.moves.next_move()
        if begun is None:
            return
        try:
            begun.begin_round(self._clock.now_ms)
        except OSError as failure:
            self._disks.fail(begun.partition.directory, failure)
            self._end(begun, str(failure))
            return
        try:
            self._outbox.effects.append(CopyRequest(self, begun, begun.next_copy()))
        except OSError as failure:
            self._end(begun, str(failure))

    def _finish(self, move: Move) -> None:
        try:
            moved = self.moves.finish(move, self._clock.now_ms)
        except (OSError, MoveFailed) as failure:
            self._end(move, str(failure))
            return
        if move.unsure is None:
            self._leaving[moved] = None
            self._checkpoints.wait(lambda: self._leave(moved))
        else:  # the next start does not trust that directory
            self._disks.fail(moved.old_home, move.unsure)
            self._end_leaving(moved)

    def on_copied(self, move: Move | Moved, failure: OSError | None) -> None:
        if isinstance(move, Moved):
            self._on_left(move, failure)
            return
        stands = self.moves.on_copied(move)
        if not stands or failure is not None:
            self._end(move, str(failure) if stands else "")
        self.advance()

    def _leave(self, moved: Moved) -> None:
        """The checkpoints tell where the log starts in its new home: the old folder may go."""
        partition = moved.partition
        try:
            directory, name = self._partitions.leave(partition, moved.old_home, self._entropy(16))
        except OSError as failure:
            if failure.errno in TOO_MANY_OPEN:
                self._checkpoints.wait(lambda: self._leave(moved))
            else:
                self._leaving.pop(moved, None)
            self._disks.fail(moved.old_home, failure)
            return
        if name is None:  # it has come back, or left again before the first move's checkpoint
            if self._leaving.get(moved) is None:
                self._end_leaving(moved)
            return
        self._leaving[moved] = name
        self._outbox.effects.append(CopyRequest(self, moved, Copy(directory, directory)))

    def _on_left(self, moved: Moved, failure: OSError | None) -> None:
        """The old home was synced, or could not be."""
        directory = moved.old_home.directory
        if failure is None:
            self._end_leaving(moved)
        elif failure.errno in TOO_MANY_OPEN:
            copy = Copy(directory, directory)
            self._checkpoints.wait(lambda: self._outbox.effects.append(CopyRequest(self, moved, copy)))
            self._disks.fail(moved.old_home, failure)
        else:
            self._leaving.pop(moved, None)
            self._disks.fail(moved.old_home, failure)

    def _end_leaving(self, moved: Moved) -> None:
        partition = moved.partition
        name = self._leaving.pop(moved, None)
        if name is not None:  # under it nobody would take the folder for the partition after a crash
            delay_ms = partition.log.settings.file_delete_delay_ms
            self._outbox.remove_later(moved.old_home.directory, name, delay_ms)
        if not moved.has_failed:
            folder, path = folder_name(partition.topic, partition.index), partition.directory.path
            self._outbox.tell(info("partition moved", partition=folder, directory=path))

    def _end(self, move: Move, reason: str) -> None:
        """Give up: the partition stays where it is, and what was copied goes."""
        self.moves.forget(move)
        self._throw_away(move)
        if reason:
            folder = folder_name(move.partition.topic, move.partition.index)
            self._outbox.tell(error("partition move failed", partition=folder, reason=reason))
