"""Partitions on their way from one log directory of this broker to another (KIP-113).

| step   | on       | what                                                       | fsyncs on the loop        |
|--------|----------|------------------------------------------------------------|---------------------------|
| round  | the loop | the log is rolled if its active segment is not small       |                           |
|        | a thread | a folder `…-future` gets, durably, what it lacks: sealed   |                           |
|        |          | segments, the active one's log as far as it goes now, the  |                           |
|        |          | snapshot at its base, the small files                      |                           |
|        |          | again, until what came meanwhile is small                  |                           |
| switch | the loop | the rest of the active segment's log goes to the copy      | of that log, if it has    |
|        |          |                                                            | more                      |
|        |          | the copy is opened: it is the log, or the move ends here   |                           |
|        |          | the folder gets its name                                   | of the new directory      |
|        |          | the new directory lists it                                 | if it said that it left   |
|        |          | the log is opened; the old directory says that it left     | of that line              |
| leave  | the loop | once the checkpoints tell of the new home, the old folder  |                           |
|        |          | is renamed                                                 |                           |
|        | a thread | its directory is synced; then the folder is removed        |                           |

The active segment's indexes are made when the copy is opened, and again by recovery until a flush has them:
it reads the segment that holds the recovery point whole. A follower's log moves as its leader's does. What is
cut from a log while it is copied may be in the copy already: the move begins anew. A roll, retention or a new
leader epoch takes another round.

A broker that stops on the way begins with what it had: a folder `…-future` is removed at the start, and of
two folders of one partition, which a crash around the switch leaves, the longer one is right. The log does
not grow before the old directory says that it has left. If that line cannot be written, the log is not cut
before the copy has given its name back; if nobody knows whether it is durable, the old directory has failed.

*Rejected*: the new name on the thread, before the switch. The log would grow beside a folder that passes for
it if the old directory is lost.

**Invariant:** the old folder stays until all that is in it is durable in the new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.files import Directory
from tidelog.base.limits import MOVE_REST_SIZE_MAX, MOVE_ROUNDS_MAX, MOVE_SEALS_MAX
from tidelog.cluster.controller import encode_id
from tidelog.log.directory import LogDirectory
from tidelog.log.format.names import (
    LEADER_EPOCHS,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    base_in_name,
    file_name,
    folder_name,
    future_folder_name,
)
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.trust import Kept
from tidelog.replication.partition import Partition

_SMALL_FILES = (PARTITION_METADATA, LEADER_EPOCHS)
_OF_ACTIVE = (LOG_SUFFIX, SNAPSHOT_SUFFIX)  # what is copied of the active segment


class MoveFailed(Exception):
    """A move that ends here; the partition stays where it was."""


class Part(NamedTuple):
    """What a copy lacks of a file."""

    name: str
    start: int
    size: int  # of the file as far as it is copied


class Shape(NamedTuple):
    """What a copy must have in common with its log before the rest is appended to it."""

    first_base: int
    active_base: int
    latest_epoch: int


def _shape_of(log: Log) -> Shape:
    return Shape(log.bases[0], log.bases[-1], log.epochs.latest)


class Copy:
    """What a copy lacks, to be brought over by a thread of the shell; with nothing, a folder to be synced."""

    def __init__(
        self,
        source: Directory,
        target: Directory,
        parts: Sequence[Part] = (),
        contents: Mapping[str, bytes] | None = None,
        gone: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._target = target
        self._parts = parts
        self._contents = contents or {}
        self._gone = gone
        self.is_cancelled = False  # looked at between two files

    def run(self) -> None:
        """Raises OSError. A file that retention took meanwhile is not part of the log any more."""
        target = self._target
        for name in self._gone:
            target.remove(name)
        for name, content in self._contents.items():
            target.replace_whole(name, content, durable=False)
            target.sync(name)
        for name, start, size in self._parts:
            if self.is_cancelled:
                return
            with suppress(FileNotFoundError):
                self._source.copy(name, size, target, start)
        target.sync()


class Move:
    """One partition and where it goes."""

    def __init__(self, partition: Partition, target: LogDirectory, unique: bytes) -> None:
        self.partition = partition
        self.target = target
        self.name = future_folder_name(partition.topic, partition.index, unique)
        self.is_cancelled = False
        self.is_copying = False
        self.has_final_name = False
        self.unsure: OSError | None = None  # why the old directory may not say that the partition has left
        self.copied_offset = 0  # what is in the future folder already ends here
        self.copy: Copy | None = None
        self._folder: Directory | None = None
        self._copied: dict[str, int] = {}  # how much of which file
        self._contents: dict[str, bytes] = {}  # of the small files
        self._shape: Shape | None = None
        self._rounds = 0

    @property
    def folder(self) -> Directory:
        if self._folder is None:
            self._folder = self.target.directory.folder(self.name)
        return self._folder

    @property
    def is_close(self) -> bool:
        """Whether the rest is small enough to be copied at once."""
        log = self.partition.log
        if self._shape != _shape_of(log):
            return False
        rest = log.active.size - self._copied[_log_name(log)]
        return rest <= MOVE_REST_SIZE_MAX or self._rounds >= MOVE_ROUNDS_MAX

    @property
    def has_folder(self) -> bool:
        return self._folder is not None

    @property
    def final_name(self) -> str:
        return folder_name(self.partition.topic, self.partition.index)

    @property
    def copied_size(self) -> int:
        return sum(size for name, size in self._copied.items() if name.endswith(LOG_SUFFIX))

    def begin_round(self, now_ms: int) -> None:
        """What is sealed will not change any more. The active segment, read again at the switch, is to be
        small."""
        log = self.partition.log
        if not self._rounds and not log.active.size:
            log.write_snapshot()
        elif not self._rounds or (log.active.size > MOVE_REST_SIZE_MAX and self._rounds < MOVE_SEALS_MAX):
            log.roll(now_ms)
        self._rounds += 1

    def next_copy(self) -> Copy:
        log = self.partition.log
        self._shape = _shape_of(log)
        self.copied_offset = log.end_offset
        gone = [name for name in self._copied if (base_in_name(name) or 0) < log.bases[0]]
        for name in gone:
            del self._copied[name]
        self.copy = Copy(log.directory, self.folder, self._take_parts(log), self._take_contents(log), gone)
        return self.copy

    def _take_parts(self, log: Log) -> list[Part]:
        parts = []
        for name, size in log.directory.sizes().items():
            base = base_in_name(name)
            if base is None or not log.bases[0] <= base <= log.bases[-1]:
                continue
            if base == log.bases[-1] and not name.endswith(_OF_ACTIVE):
                continue
            start = self._copied.get(name)
            if start is None or (name.endswith(LOG_SUFFIX) and start < size):
                parts.append(Part(name, start or 0, size))
                self._copied[name] = size
        return parts

    def _take_contents(self, log: Log) -> dict[str, bytes]:
        """They are replaced as a whole, perhaps while the thread is at work: read here."""
        found = {name: log.directory.read_whole(name) for name in _SMALL_FILES}
        changed = {
            name: content
            for name, content in found.items()
            if content is not None and content != self._contents.get(name)
        }
        self._contents |= changed
        return changed

    def switch(self, now_ms: int) -> Log:
        """Bring the rest over and open the log where it is to live; the old one is not touched. OSError or
        MoveFailed: it is the log still, and the copy may have a name to give back."""
        old, name = self.partition.log, _log_name(self.partition.log)
        if self._copied[name] < old.active.size:
            old.directory.copy(name, old.active.size, self.folder, self._copied[name])
        self._open(self.folder, now_ms).close(clean=False)  # before it has the name that it is found by
        target, entry = self.target, (self.final_name, encode_id(self.partition.topic_id))
        target.directory.rename(self.name, self.final_name)
        self.has_final_name = True
        target.directory.sync()
        target.manifest.add(*entry)
        log = self._open(target.directory.folder(self.final_name), now_ms)
        try:
            log.take_over(old)
            self.unsure = self.partition.directory.manifest.remove(*entry)
        except OSError:
            log.abandon()
            raise
        log.note_made_in(target.directory)  # whose manifest may not be durable
        return log  # the old folder is not the log from here on

    def take_back(self) -> None:
        """The log is where it was: the copy must not have its name."""
        self.target.directory.rename(self.final_name, self.name)
        self.has_final_name = False

    def _open(self, folder: Directory, now_ms: int) -> Log:
        old = self.partition.log
        # One more than where the active segment begins: the one before it is sealed, with its indexes.
        flushed = old.active.base_offset + 1
        # What the copy lacks fails the move: there is nothing to mark.
        # It takes over what the old one knows of transactions: none of that is looked for.
        log, report = open_log(
            folder,
            old.settings,
            now_ms,
            flushed,
            old.start_offset,
            high_watermark=old.end_offset,
            kept=Kept.LOST,
        )
        if (log.end_offset, _sizes_of(log), report.cut_bytes) != (old.end_offset, _sizes_of(old), 0):
            log.close(clean=False)
            raise MoveFailed(f"the copy ends at {log.end_offset}, the log at {old.end_offset}")
        return log


def _log_name(log: Log) -> str:
    return file_name(log.active.base_offset, LOG_SUFFIX)


def _sizes_of(log: Log) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.size) for segment in log.segments]


class Moved(NamedTuple):
    """A partition that has a new home, and the old one; if it has failed to move, the one that it has not."""

    partition: Partition
    old_home: LogDirectory
    has_failed: bool = False


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
        if move.partition.is_cutting or move.partition.is_swapping:
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
        if partition.is_cutting or partition.is_swapping:
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
