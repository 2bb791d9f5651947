"""Partitions on their way from one log directory of this broker to another (KIP-113).

| step   | on          | what                                                                          |
|--------|-------------|-------------------------------------------------------------------------------|
| seal   | the loop    | the log is rolled, so that all but what comes from here on is sealed          |
| copy   | a thread    | sealed segments that are not there yet go, durably, into a folder `…-future`  |
|        |             | again, until what came meanwhile is small                                     |
| switch | the loop    | the small rest is copied, the folder gets its name, the log is opened in it   |
| leave  | the loop    | once the checkpoints tell of the new home, the old folder is renamed          |
|        | a thread    | its directory is synced; then the folder is removed                           |

A follower's log moves as its leader's does. What is cut from a log while it is copied may be in the copy
already: the move begins anew.

A broker that stops on the way begins with what it had: a folder `…-future` is removed at the start, and of
two folders of one partition, which a crash around the switch leaves, the longer one is right.

**Invariant:** the old folder stays until all that is in it is durable in the new one.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.files import Directory
from tidelog.base.limits import MOVE_REST_SIZE_MAX, MOVE_ROUNDS_MAX
from tidelog.cluster.controller import encode_id
from tidelog.log.checkpoint import LEADER_EPOCHS
from tidelog.log.directory import PARTITION_METADATA, LogDirectory, folder_name, future_folder_name
from tidelog.log.leftovers import base_in_name
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.trust import Kept
from tidelog.replication.partition import Partition

_SMALL_FILES = (PARTITION_METADATA, LEADER_EPOCHS)


class MoveFailed(Exception):
    """A move that ends here; the partition stays where it was."""


class Copy:
    """Files to copy, on a thread of the shell."""

    def __init__(self, source: Directory, target: Directory, files: list[tuple[str, int]]) -> None:
        self._source = source
        self._target = target
        self._files = files
        self.is_cancelled = False  # looked at between two files

    def run(self) -> None:
        """Raises OSError. A file that retention took meanwhile is not part of the log any more."""
        for name, size in self._files:
            if self.is_cancelled:
                return
            with suppress(FileNotFoundError):
                self._source.copy(name, size, self._target)
        self._target.sync()


class Move:
    """One partition and where it goes."""

    def __init__(self, partition: Partition, target: LogDirectory, unique: bytes) -> None:
        self.partition = partition
        self.target = target
        self.name = future_folder_name(partition.topic, partition.index, unique)
        self.is_cancelled = False
        self.is_copying = False
        self.copied_offset = 0  # what is in the future folder already ends here
        self.copy: Copy | None = None
        self._folder: Directory | None = None
        self._copied: dict[str, None] = {}
        self._rounds = 0

    @property
    def folder(self) -> Directory:
        if self._folder is None:
            self._folder = self.target.directory.folder(self.name)
        return self._folder

    @property
    def is_close(self) -> bool:
        """Whether the rest is small enough to be copied at once."""
        active = self.partition.log.active
        has_all = self._rounds > 0 and self.copied_offset == active.base_offset
        return has_all and (active.size <= MOVE_REST_SIZE_MAX or self._rounds >= MOVE_ROUNDS_MAX)

    @property
    def has_folder(self) -> bool:
        return self._folder is not None

    @property
    def final_name(self) -> str:
        return folder_name(self.partition.topic, self.partition.index)

    def seal(self, now_ms: int) -> None:
        """Begin a round: all that is in the log by now will not change any more."""
        log = self.partition.log
        if log.active.size:
            log.roll(now_ms)
        else:
            log.write_snapshot()
        self._rounds += 1
        self.copied_offset = log.active.base_offset

    def next_copy(self) -> Copy:
        log = self.partition.log
        files = []
        for name, size in log.directory.sizes().items():
            base = base_in_name(name)
            if base is not None and base < self.copied_offset and name not in self._copied:
                files.append((name, size))
                self._copied[name] = None
        self.copy = Copy(log.directory, self.folder, files)
        return self.copy

    def switch(self, now_ms: int) -> Log:
        """Bring the rest over and open the log where it is to live; the old one is not touched."""
        old = self.partition.log
        self._copy_rest(old)
        self._open(self.folder, now_ms).close(clean=False)  # before it has the name that it is found by
        target, final = self.target.directory, self.final_name
        target.rename(self.name, final)
        try:
            target.sync()
            entry = (final, encode_id(self.partition.topic_id))
            self.target.manifest.add(*entry)
            log = self._open(target.folder(final), now_ms)
            self.partition.directory.manifest.remove(*entry)  # the old folder is not the log from here on
        except (OSError, MoveFailed):
            target.rename(final, self.name)  # what is removed has no name that a partition may have
            raise
        log.take_over(old)
        log.new_in = target  # whose manifest may not be durable
        return log

    def _open(self, folder: Directory, now_ms: int) -> Log:
        old = self.partition.log
        # One more than where the active segment begins: the one before it is sealed, with its indexes.
        flushed = old.active.base_offset + 1
        # What the copy lacks fails the move: there is nothing to mark.
        log, report = open_log(folder, old.settings, now_ms, flushed, old.start_offset, kept=Kept.LOST)
        if (log.end_offset, log.bases, report.cut_bytes) != (old.end_offset, old.bases, 0):
            log.close(clean=False)
            raise MoveFailed(f"the copy ends at {log.end_offset}, the log at {old.end_offset}")
        return log

    def _copy_rest(self, old: Log) -> None:
        for name, size in old.directory.sizes().items():
            base = base_in_name(name)
            if name in _SMALL_FILES or (base is not None and base >= old.active.base_offset):
                old.directory.copy(name, size, self.folder)
        for name in self.folder.names():
            base = base_in_name(name)
            if base is not None and base < old.bases[0]:  # retention took it while it was copied
                self.folder.remove(name)
        self.folder.sync()


class Moved(NamedTuple):
    """A partition that has a new home, and the old one."""

    partition: Partition
    old_home: LogDirectory


class Moves:
    def __init__(self) -> None:
        self._by_partition: dict[Partition, Move] = {}
        self._queue: deque[Move] = deque()
        self._current: Move | None = None

    def of(self, partition: Partition) -> Move | None:
        return self._by_partition.get(partition)

    def request(self, partition: Partition, target: LogDirectory, unique: bytes) -> Move | None:
        """Move a partition; the move that this one takes the place of, to be thrown away."""
        present = self._by_partition.get(partition)
        if present is not None and present.target is target:
            return None
        replaced = self.cancel(partition)
        if partition.directory is not target:
            move = self._by_partition[partition] = Move(partition, target, unique)
            self._queue.append(move)
        return replaced

    def cancel(self, partition: Partition) -> Move | None:
        """Forget a move; it is returned if its folder can be removed now, else when its copy ends."""
        move = self._by_partition.pop(partition, None)
        if move is None:
            return None
        move.is_cancelled = True
        if move.copy is not None:
            move.copy.is_cancelled = True
        if move.is_copying:
            return None
        if self._current is move:
            self._current = None
        else:
            self._queue.remove(move)
        return move

    def stop(self) -> None:
        """Nobody waits for the rest of a copy."""
        for partition in list(self._by_partition):
            self.cancel(partition)

    def touching(self, directory: LogDirectory) -> list[Partition]:
        """The partitions on their way out of a directory or into it."""
        return [
            partition
            for partition, move in self._by_partition.items()
            if directory in (partition.directory, move.target)
        ]

    def __bool__(self) -> bool:
        return self._current is not None or bool(self._queue)

    def next_move(self) -> Move | None:
        """The move that has files to copy now, of one partition at a time."""
        while self._current is None and self._queue:
            first = self._queue.popleft()
            self._current = None if first.is_cancelled else first
        move = self._current
        if move is None or move.is_copying or move.is_close or not move.partition.is_open:
            return None
        if move.partition.is_cutting:
            return None  # what would be copied may leave next
        move.is_copying = True
        return move

    def on_copied(self, move: Move) -> bool:
        """A copy has ended; whether its move still stands."""
        move.is_copying = False
        if move.is_cancelled and self._current is move:
            self._current = None
        return not move.is_cancelled

    def ready(self) -> Move | None:
        """The move that can be ended now: it is close, and nothing of its partition is under way."""
        move = self._current
        if move is None or move.is_copying or not move.is_close:
            return None
        partition = move.partition
        if not partition.is_open or partition.is_flushing or partition.floor is not None:
            return None
        if partition.is_cutting:
            return None
        # What remains there of a move away from it goes first.
        return None if move.target.directory.exists(move.final_name) else move

    def finish(self, move: Move, now_ms: int) -> Moved:
        """End a move. OSError or MoveFailed leave the partition as it was."""
        assert move.partition.directory is not move.target
        log = move.switch(now_ms)
        self.forget(move)
        moved = Moved(move.partition, move.partition.directory)
        move.partition.log.abandon()
        move.partition.move(log, move.target)
        return moved

    def forget(self, move: Move) -> None:
        if self._by_partition.get(move.partition) is move:  # and not one that was asked for since
            del self._by_partition[move.partition]
        move.is_cancelled = True
        if self._current is move:
            self._current = None
