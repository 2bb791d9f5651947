"""The memory of a state machine: records that it decides are appended to a partition, and replayed from it.

| phase   | what happens                                                   | requests get                 |
|---------|----------------------------------------------------------------|------------------------------|
| loading | the log is read in slices; the last value of each key counts   | COORDINATOR_LOAD_IN_PROGRESS |
| serving | decisions are appended, replayed, and answered when committed  | their answer                 |
| failed  | the log could not be read                                      | COORDINATOR_NOT_AVAILABLE    |

So that loading stays short, a journal that has grown to many times what its machine keeps is written anew at
its end, a little at a time while it serves; when that is on disk, the log starts there. Nothing else takes
records out. A key with a pending entry is left out, for its value would stand behind the entry: it is
*owed*, and written in the turn of its marker. The log starts later when nothing is owed.

**Invariant:** the machine's state is what a replay of the log gives. A record is taken out only when all that
it stands for is on disk behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tidelog.base.decision import Entry, Writer
from tidelog.base.limits import (
    BATCH_HEADER_SIZE,
    JOURNAL_BATCH_SIZE,
    JOURNAL_ENTRIES_APPLIED,
    JOURNAL_GROWTH_MAX,
    JOURNAL_KEY_SIZE_MAX,
    JOURNAL_RECORDS_KEPT,
    JOURNAL_SLICE_SIZE,
)
from tidelog.base.pending import Pending
from tidelog.log.markers import End, Marked
from tidelog.log.pages import Unready
from tidelog.log.replica import note_damage
from tidelog.protocol.errors import CorruptBatch, ErrorCode, RefusedBatch
from tidelog.protocol.records import Marker, build_pairs
from tidelog.replication.journal_reader import JournalReader
from tidelog.replication.partition import Partition

_RECORD_OVERHEAD = 32  # bytes of a record besides its key and value, at most
_NOBODY = Writer(-1, -1)


class JournalState(Protocol):
    """What a journal is the memory of."""

    pending: Pending

    @property
    def record_count(self) -> int:
        """About how many records its state takes."""
        ...

    def replay(self, entry: Entry) -> None: ...

    def stored(self) -> Iterator[list[Entry]]:
        """Its whole state as records, in pieces; it may change between two of them."""
        ...

    def stored_at(self, key: bytes) -> Entry | None:
        """The record of a key, if it has a value."""
        ...


class Journal:
    def __init__(self, partition: Partition, machine: JournalState) -> None:
        self.partition = partition
        self.machine = machine
        self.is_loaded = False
        self.failure: str | None = None
        self._reader = JournalReader(partition.log.start_offset, machine.pending)
        self._unapplied: Iterator[tuple[bytes, bytes]] | None = None
        self._pieces: Iterator[list[Entry]] | None = None  # of what is being written anew
        self._anew_offset = 0  # where that began
        self._anew_end_offset: int | None = None  # and where it ended
        self._owed: set[bytes] = set()  # keys that are left out until their transactions have ended

    # Loading.

    def load(self) -> None:
        """Read or apply the next slice; `is_loaded`, or `failure`, when there is no more. OSError if the disk
        failed."""
        try:
            if self._unapplied is None:
                self._read()
            else:
                self._apply(self._unapplied)
        except Unready as lookup:
            lookup.step()
        except CorruptBatch as problem:
            partition, offset = self.partition, self._reader.next_offset
            self.failure = f"{partition.topic}-{partition.index} at offset {offset}: {problem}"
            note_damage(partition.log, offset)

    def _read(self) -> None:
        log = self.partition.log
        found = log.read(self._reader.next_offset, log.end_offset, JOURNAL_SLICE_SIZE)
        if found is None:
            self._unapplied = iter(self._reader.latest.items())
            return
        try:
            self._reader.take(found.read())
        finally:
            found.release()

    def _apply(self, unapplied: Iterator[tuple[bytes, bytes]]) -> None:
        for _ in range(JOURNAL_ENTRIES_APPLIED):
            following = next(unapplied, None)
            if following is None:
                self._reader.latest = {}
                self._unapplied = None
                self.is_loaded = True
                return
            self.machine.replay(Entry(*following))

    @property
    def is_half_loaded(self) -> bool:
        """Whether all was read, and not all is applied: what is appended now would be missed."""
        return self._unapplied is not None and self.failure is None

    # Serving.

    def take(self, entries: list[Entry], writer: Writer | None = None) -> None:
        """Let entries take effect that are yet to be written; those of a transaction are pending.
        RefusedBatch, with nothing changed, if one of them could not be."""
        size_max = self.partition.log.settings.max_message_bytes
        small = size_max - BATCH_HEADER_SIZE - _RECORD_OVERHEAD
        for entry in entries:
            if len(entry[0]) + len(entry[1] or b"") > small and len(build_pairs([entry], 0)) > size_max:
                raise RefusedBatch(ErrorCode.message_too_large, f"a record is larger than {size_max} bytes")
        pending = self.machine.pending
        if writer is not None:
            pending.add(writer.producer_id, entries)
            return
        if pending:
            pending.overwrite(entry.key for entry in entries)
        replay = self.machine.replay
        for entry in entries:
            replay(entry)

    def write(self, entries: list[Entry], now_ms: int, writer: Writer | None = None) -> int:
        """Append what has been taken; where the log ends now. OSError if the disk failed.

        One batch, unless there is more than a batch should have.
        """
        for batch in self._batches(entries, now_ms, writer or _NOBODY):
            self.partition.append_own(batch, now_ms)
        if self._owed and writer is None:
            self._owed.difference_update(entry.key for entry in entries)
            self._maybe_end_anew()
        return self.partition.log.end_offset

    def append_markers(self, ends: list[End], now_ms: int) -> list[Marked]:
        """End transactions: the answer to each. OSError if the disk failed."""
        marked = self.partition.append_markers(ends, now_ms)
        if self.is_loaded:
            self._end_transactions(ends, marked, now_ms)
        return marked

    def _end_transactions(self, ends: list[End], marked: list[Marked], now_ms: int) -> None:
        producers, pending = self.partition.log.producers, self.machine.pending
        for end, done in zip(ends, marked, strict=True):
            if done.code or producers.is_open(end.producer_id):
                continue  # a repeated end leaves the next transaction open
            for entry in pending.end(end.producer_id, end.marker is Marker.COMMIT):
                self.machine.replay(entry)
        free = self._owed - pending.keys() if self._owed else None
        if free:
            stored = map(self.machine.stored_at, sorted(free))
            entries = [entry for entry in stored if entry is not None]
            self._owed -= free
            if entries:
                self.write(entries, now_ms)
            self._maybe_end_anew()

    def _batches(self, entries: list[Entry], now_ms: int, writer: Writer = _NOBODY) -> list[bytearray]:
        size_max = min(JOURNAL_BATCH_SIZE, self.partition.log.settings.max_message_bytes - BATCH_HEADER_SIZE)
        batches = [build_pairs(entries, now_ms, writer)]
        if len(batches[0]) <= size_max or len(entries) == 1:
            return batches
        batches.clear()
        piece: list[Entry] = []
        size = 0
        for entry in entries:
            entry_size = len(entry.key) + len(entry.value or b"") + _RECORD_OVERHEAD
            if piece and size + entry_size > size_max:
                batches.append(build_pairs(piece, now_ms, writer))
                piece, size = [], 0
            piece.append(entry)
            size += entry_size
        batches.append(build_pairs(piece, now_ms, writer))
        return batches

    @property
    def record_size_max(self) -> int:
        """Of a value that can be kept, with some room for its key."""
        return self.partition.log.settings.max_message_bytes - JOURNAL_KEY_SIZE_MAX

    def is_committed(self, offset: int) -> bool:
        return self.partition.high_watermark >= offset

    # Keeping it short.

    @property
    def is_long(self) -> bool:
        """Whether it has much more than its machine keeps, and nothing is being done about that."""
        log = self.partition.log
        if self._pieces is not None or self._anew_end_offset is not None or self._owed:
            return False
        count = log.end_offset - log.start_offset
        if count <= JOURNAL_RECORDS_KEPT:
            return False
        return count > JOURNAL_RECORDS_KEPT + JOURNAL_GROWTH_MAX * self.machine.record_count

    @property
    def is_being_written_anew(self) -> bool:
        return self._pieces is not None

    def write_anew(self, now_ms: int) -> None:
        """Begin, or go on, to write what the machine keeps at the end of the log. OSError if that failed."""
        if self._pieces is None:
            self._pieces = self.machine.stored()
            self._anew_offset = self.partition.log.end_offset
            self._owed = self.machine.pending.keys()
        # If it fails a piece is missing, and all of it is written once more, another time.
        pieces, self._pieces = self._pieces, None
        owed, self._owed = self._owed, set()
        is_unfinished = self._write_pieces(pieces, owed, now_ms)
        self._owed = owed
        if is_unfinished:
            self._pieces = pieces
        else:
            self._maybe_end_anew()

    def _write_pieces(self, pieces: Iterator[list[Entry]], owed: set[bytes], now_ms: int) -> bool:
        """Whether there may be more."""
        size = 0
        pending = self.machine.pending.keys()
        while size < JOURNAL_SLICE_SIZE:
            piece = next(pieces, None)
            if piece is None:
                return False
            if pending:
                owed.update(entry.key for entry in piece if entry.key in pending)
                piece = [entry for entry in piece if entry.key not in pending]
            if piece:
                for batch in self._batches(piece, now_ms):
                    self.partition.append_own(batch, now_ms)
                    size += len(batch)
        return True

    def _maybe_end_anew(self) -> None:
        """When all pieces are written, and nothing is owed."""
        if self._pieces is None and not self._owed:
            self._anew_end_offset = self.partition.log.end_offset
            self.partition.want_flush()

    def take_start(self) -> int | None:
        """Where the log can start now that what it keeps is on disk, once; None if it is not yet."""
        end_offset, log = self._anew_end_offset, self.partition.log
        if end_offset is None or min(log.recovery_point, self.partition.high_watermark) < end_offset:
            return None
        first_open = log.producers.first_open_offset()
        if first_open is not None and first_open < self._anew_offset:
            return None
        self._anew_end_offset = None
        return self._anew_offset
