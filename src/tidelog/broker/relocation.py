"""The wiring of moves: from a broker's events to copies, the switch, and the end of the old folder.

**Invariant:** a folder is removed under a name that no partition has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import error, info
from tidelog.broker.moves import Copy, Move, Moved, MoveFailed, Moves
from tidelog.log.directory import LogDirectory, folder_name
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class CopyRequest(NamedTuple):
    """A part of a move to be done off the loop; `Relocation.on_copied` hears of it. Of one that has ended the
    old home is synced, and nothing copied."""

    move: Move | Moved
    copy: Copy


class Relocation:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.moves = Moves()
        self._leaving: dict[Moved, str | None] = {}  # whose old folder has its name still, or might again

    def move(self, partition: Partition, target: LogDirectory) -> None:
        self._throw_away(self.moves.request(partition, target, self._broker.entropy(16)))
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
        if move is not None and move.has_folder and move.target.failure is None:
            self._broker.remove_later(move.target.directory, move.name, 0)

    def advance(self) -> None:
        """End the move that is close enough, begin the next copy."""
        ready = self.moves.ready()
        if ready is not None:
            try:
                moved = self.moves.finish(ready, self._broker.now_ms)
            except (OSError, MoveFailed) as failure:
                self._end(ready, str(failure))
            else:
                self._leaving[moved] = None
                self._broker.checkpoints.wait(lambda: self._leave(moved))
        begun = self.moves.next_move()
        if begun is None:
            return
        try:
            begun.seal(self._broker.now_ms)
        except OSError as failure:
            self._broker.fail_directory(begun.partition.directory, failure)
            self._end(begun, str(failure))
            return
        try:
            self._broker.effects.append(CopyRequest(begun, begun.next_copy()))
        except OSError as failure:
            self._end(begun, str(failure))

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
        broker, partition = self._broker, moved.partition
        try:
            directory, name = broker.partitions.leave(partition, moved.old_home, broker.entropy(16))
        except OSError as failure:
            if failure.errno in TOO_MANY_OPEN:
                broker.checkpoints.wait(lambda: self._leave(moved))
            else:
                self._leaving.pop(moved, None)
            broker.fail_directory(moved.old_home, failure)
            return
        if name is None:  # it has come back, or left twice before the checkpoints told of the first time
            if self._leaving.get(moved) is None:
                self._end_leaving(moved)
            return
        self._leaving[moved] = name
        broker.effects.append(CopyRequest(moved, Copy(directory, directory, [])))

    def _on_left(self, moved: Moved, failure: OSError | None) -> None:
        """The old home was synced, or could not be."""
        broker, directory = self._broker, moved.old_home.directory
        if failure is None:
            self._end_leaving(moved)
        elif failure.errno in TOO_MANY_OPEN:
            copy = Copy(directory, directory, [])
            broker.checkpoints.wait(lambda: broker.effects.append(CopyRequest(moved, copy)))
            broker.fail_directory(moved.old_home, failure)
        else:
            self._leaving.pop(moved, None)
            broker.fail_directory(moved.old_home, failure)

    def _end_leaving(self, moved: Moved) -> None:
        broker, partition = self._broker, moved.partition
        name = self._leaving.pop(moved, None)
        if name is not None:  # under it nobody would take the folder for the partition after a crash
            delay_ms = partition.log.settings.file_delete_delay_ms
            broker.remove_later(moved.old_home.directory, name, delay_ms)
        folder, path = folder_name(partition.topic, partition.index), partition.directory.path
        broker.events.append(info("partition moved", partition=folder, directory=path))

    def _end(self, move: Move, reason: str) -> None:
        """Give up: the partition stays where it is, and what was copied goes."""
        self.moves.forget(move)
        self._throw_away(move)
        if reason:
            folder = folder_name(move.partition.topic, move.partition.index)
            self._broker.events.append(error("partition not moved", partition=folder, reason=reason))
