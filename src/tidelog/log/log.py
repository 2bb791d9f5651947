"""One partition's log: an ordered list of segments of which the last one grows.

`append` is the write path of a leader; `read` names a range of a file. Whatever may block for long
(fsync, unlinking) leaves as a job for the shell to run and comes back as an event.

**Invariant:** offsets are given once and never change; what a failed write left behind is never read,
because the log takes nothing and gives nothing once it has failed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.base.files import Directory, File, FileSlice
from tidelog.log.admission import admit
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.flush import FlushJob
from tidelog.log.format.names import (
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import AbortedTransaction
from tidelog.log.manifest import MANIFEST
from tidelog.log.producers import EndedTransaction, Producers
from tidelog.log.scan import Damage
from tidelog.log.segment import Segment, check_gap
from tidelog.log.transactions import AbortedIndex, Undecided
from tidelog.protocol.batch import (
    ATTRIBUTES_POSITION,
    LAST_DELTA_AND_TIMESTAMP,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    read_header,
    stamp,
    stamp_append_time,
)

_OWN_SUFFIXES = [suffix for suffix in SEGMENT_SUFFIXES if suffix != SNAPSHOT_SUFFIX]


class Appended(NamedTuple):
    base_offset: int
    end_offset: int
    append_time_ms: int  # -1 unless the topic uses LogAppendTime
    is_duplicate: bool


class Log:
    """Made by `recovery.open_log`, which finds out what is on the disk. Its fields are read by others, and
    set by its own methods alone."""

    def __init__(self, directory: Directory, settings: TopicSettings) -> None:
        self.directory = directory
        self.settings = settings
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.aborted: dict[int, AbortedIndex] = {}
        self.epochs = LeaderEpochs(directory)
        self.producers = Producers()
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.cleaned_offset = 0  # records below it were cleaned; 0: none
        self.change_count = 0  # how often its end was cut, or segments were replaced by a cleaned one
        self.is_swapping = False
        self.last_flush_ms = 0
        self.is_folder_unsynced = True  # files were made or renamed in it since the last flush
        self.new_in: Directory | None = None  # where this log's folder was made, if no flush has been since
        self._unsynced_names: list[str] = []  # small files replaced since the last flush
        self._undecided = Undecided()
        self._ends: list[tuple[int, int, Segment]] = []  # the last two that somebody has read to, and where
        self._flush_job: FlushJob | None = None

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def append(self, view: memoryview, start: int, end: int, leader_epoch: int, now_ms: int) -> Appended:
        """Append the batch in `view[start:end]`, stamping it there; RefusedBatch, or OSError if it failed."""
        header, view, start, end = admit(view, start, end, self.settings, now_ms)
        if header.producer_id >= 0:
            repeated = self.producers.check(header)
            if repeated is not None:
                time_ms = repeated.timestamp if self.settings.uses_append_time else NO_TIMESTAMP
                return Appended(repeated.base_offset, repeated.last_offset + 1, time_ms, True)
        append_time_ms = NO_TIMESTAMP
        max_timestamp = header.max_timestamp
        if self.settings.uses_append_time:
            append_time_ms = max_timestamp = now_ms
            stamp_append_time(view, start, end, header.attributes, now_ms)
        base_offset = self.end_offset
        stamp(view, start, base_offset, leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        self.write_batch(view[start:end], leader_epoch, base_offset, last_offset, max_timestamp, now_ms)
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, max_timestamp)
        return Appended(base_offset, last_offset + 1, append_time_ms, False)

    def append_own(self, batch: bytearray, leader_epoch: int, now_ms: int) -> Appended:
        """Append a batch that the broker itself has built: it is what it should be. One of a transaction
        changes its producer as it will on the followers."""
        view = memoryview(batch)
        last_offset_delta, max_timestamp = LAST_DELTA_AND_TIMESTAMP.unpack_from(view)
        base_offset = self.end_offset
        stamp(view, 0, base_offset, leader_epoch)
        last_offset = base_offset + last_offset_delta
        self.write_batch(view, leader_epoch, base_offset, last_offset, max_timestamp, now_ms)
        if batch[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT:
            self.producers.update(read_header(batch), base_offset, max_timestamp)
        return Appended(base_offset, last_offset + 1, NO_TIMESTAMP, False)

    def write_batch(
        self, data: memoryview, epoch: int, base_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> None:
        """Put a batch that is checked and stamped at the end of the log."""
        settings = self.settings
        active = self.segments[-1]
        if active.size and (
            active.is_full(len(data), last_offset, settings.segment_bytes)
            or active.is_old(timestamp, now_ms, settings)
        ):
            active = self.roll(now_ms)
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, base_offset)
        active.append(data, last_offset, timestamp, settings)
        self.end_offset = last_offset + 1

    def write_markers(self, batches: list[bytearray], epoch: int, now_ms: int) -> None:
        """Put control batches of one record each, which are stamped, at the end of the log: in one write."""
        settings, active = self.settings, self.segments[-1]
        size, last_offset = sum(map(len, batches)), self.end_offset + len(batches) - 1
        is_full = active.is_full(size, last_offset, settings.segment_bytes)
        if active.size and (is_full or active.is_old(now_ms, now_ms, settings)):
            active = self.roll(now_ms)
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, self.end_offset)
        active.append_markers(batches, self.end_offset, now_ms, settings)
        self.end_offset = last_offset + 1

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next one at the log end offset."""
        self.active.seal()
        self.write_snapshot()
        return self.add_segment(self.end_offset, 0, now_ms)

    def add_segment(self, base_offset: int, size: int, now_ms: int) -> Segment:
        segment = Segment(self.directory, base_offset, size, now_ms)
        if size == 0:
            segment.open()  # its name alone says where the log goes on, should all others be removed
        self.segments.append(segment)
        self.bases.append(base_offset)
        self.is_folder_unsynced = True
        return segment

    def load_segment(self, base_offset: int, size: int, has_aborted: bool, now_ms: int) -> None:
        """A segment that was found, the next one in order; with the index of its aborted transactions."""
        self.add_segment(base_offset, size, now_ms)
        if has_aborted:
            self.aborted[base_offset] = AbortedIndex(self.directory, base_offset)

    def end_at(self, offset: int) -> None:
        """The log was found whole up to that offset, or is to go on there."""
        self.end_offset = offset

    def open_at(self, start_offset: int, recovery_point: int, now_ms: int) -> None:
        """The files are what they should be: from now on it is a log to append to."""
        self.start_offset = max(start_offset, self.bases[0])
        self.recovery_point = min(recovery_point, self.end_offset)
        self.last_flush_ms = now_ms

    def clean_to(self, offset: int) -> None:
        """Records below that offset were cleaned; none, if it is above the end, thus of another log."""
        self.cleaned_offset = offset if offset <= self.end_offset else 0

    def hold(self, is_swapping: bool) -> None:
        """A swap is prepared, or is over: no sealed segment may change between the two."""
        self.is_swapping = is_swapping

    def use_settings(self, settings: TopicSettings) -> None:
        self.settings = settings

    def note_made_in(self, directory: Directory) -> None:
        """The folder of this log was made there; the next flush makes that durable."""
        self.new_in = directory

    def note_replaced(self, name: str) -> None:
        """A small file of this folder was replaced; the next flush makes it durable."""
        self._unsynced_names.append(name)

    def write_snapshot(self) -> None:
        """The producers' state at the log end offset; not fsynced here, the next flush does that."""
        name = file_name(self.end_offset, SNAPSHOT_SUFFIX)
        self.directory.replace_whole(name, self.producers.encode(), durable=False)
        self._unsynced_names.append(name)

    def read(
        self, offset: int, bound_offset: int, max_bytes: int, at_least_one: bool = True
    ) -> FileSlice | None:
        """Batches from the one that holds `offset`, ending below `bound_offset`; None if there are none.

        At least the first batch is whole if `at_least_one` (KIP-74); the last one may be cut. Damage if what
        must be there cannot be read: it is never passed over (R17). Unready if finding it takes longer than a
        request may.
        """
        reads_to_end = bound_offset >= self.end_offset
        if reads_to_end and (tail := self._read_tail(offset, max_bytes)) is not None:
            return tail
        place = max(bisect_right(self.bases, offset) - 1, 0)
        while place < len(self.segments) and offset < bound_offset:
            segment = self.segments[place]
            found = segment.locate(offset)
            if found is not None:
                if found.base_offset > offset:
                    segment.check_offset(found, self._end_of(place))
                if found.base_offset >= bound_offset or (found.size > max_bytes and not at_least_one):
                    return None
                size = self._position_of(place, bound_offset, found.position) - found.position
                wanted = max(max_bytes, found.size)
                if reads_to_end and size <= wanted:
                    self._note_end()
                return FileSlice(segment.file, found.position, min(size, wanted)) if size > 0 else None
            place += 1
            if place < len(self.segments) and offset < self.bases[place]:
                self._check_gap(place)
                offset = self.bases[place]
        return None

    def _read_tail(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Fast path: a read that starts where an earlier one reached the end needs no index look-up."""
        segment = self.segments[-1]
        for end_offset, position, ended_in in self._ends:
            size = segment.size - position
            if end_offset == offset and ended_in is segment and 0 < size <= max_bytes:
                self._note_end()
                return FileSlice(segment.file, position, size)
        return None

    def _note_end(self) -> None:
        """Two are kept: of two followers the second one asks for what the first one has just been given."""
        if not self._ends or self._ends[0][0] != self.end_offset:
            segment = self.segments[-1]
            self._ends = [(self.end_offset, segment.size, segment), *self._ends[:1]]

    def _end_of(self, place: int) -> int:
        """The offset that no record of that segment reaches."""
        return self.bases[place + 1] if place + 1 < len(self.bases) else self.end_offset

    def _check_gap(self, place: int) -> None:
        if not self.settings.may_have_gaps:
            check_gap(*self.segments[place - 1 : place + 1])

    def _position_of(self, place: int, bound_offset: int, start: int) -> int:
        """Where readable bytes of that segment, from `start` on, end if records from `bound_offset` on must
        not be seen: no later than where it is damaged."""
        segment = self.segments[place]
        if bound_offset >= self._end_of(place):
            return segment.size
        try:
            found = segment.locate(bound_offset)
        except Damage as damage:
            if damage.position <= start:
                raise
            return damage.position
        return found.position if found is not None else segment.size

    def end_of(self, records: FileSlice) -> int:
        """An offset that no record of a slice of this log reaches: where its segment ends."""
        for place, segment in enumerate(self.segments[:-1]):
            if segment.file is records.file:
                return self.bases[place + 1]
        return self.end_offset

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that a reader of [start, end) needs to know, in the order of their starts."""
        place = max(bisect_right(self.bases, start_offset) - 1, 0)
        found: list[AbortedTransaction] = []
        for base in self.bases[place:]:
            index = self.aborted.get(base)
            if index is not None and index.collect(start_offset, end_offset, found):
                break
        return sorted(found, key=lambda entry: entry.first_offset)

    def note_ended(self, ended: EndedTransaction, base: int, is_indexed: bool) -> None:
        """A marker is in the segment at `base`: it counts once it is committed. An abort goes into the index,
        unless it is there already."""
        if ended.is_aborted and not is_indexed:
            first_open = self.producers.first_open_offset()
            stable = first_open if first_open is not None else ended.last_offset + 1
            if base not in self.aborted:
                self.aborted[base] = AbortedIndex(self.directory, base)
            self.aborted[base].append(
                AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)
            )
        self._undecided.note(ended.last_offset, ended.first_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset whose transaction is undecided, or decided by a marker not yet committed."""
        first_open = self.producers.first_open_offset()
        stable = high_watermark if first_open is None else min(high_watermark, first_open)
        if self._undecided.ends:
            stable = self._undecided.least(stable, high_watermark)
        return max(stable, self.start_offset)  # records of an open transaction may have been deleted

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments go when retention next looks."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.cut_start(offset)

    def begin_flush(self, is_last: bool = False) -> FlushJob:
        """All that is written and not yet durable, as a job. Sealed segments take their indexes along, and
        if it is the last flush so does the active one."""
        files: list[File] = []
        for segment in self.segments[self._first_unflushed() :]:
            segment.open()
            files += [segment.file] if segment is self.active and not is_last else segment.open_files()
        for index in self.aborted.values():
            files += index.files()
        replaced = self._open_replaced()
        is_unsynced = self.is_folder_unsynced or bool(replaced) or is_last
        folders = [(self.directory, "")] if is_unsynced else []
        if self.new_in is not None:
            folders += [(self.new_in, MANIFEST)] if self.new_in.exists(MANIFEST) else []
            folders.append((self.new_in, ""))
        job = FlushJob(self.end_offset, files + replaced, folders, len(self._unsynced_names))
        self.is_folder_unsynced = False
        self._flush_job = job
        for file in replaced:
            file.close()
        return job

    def _open_replaced(self) -> list[File]:
        """The snapshots and the epochs written since the last flush: a recovery that begins at the new
        recovery point will not read the batches that they were made from."""
        if self.epochs.is_unwritten:
            self.epochs.write()
        if self.epochs.is_unsynced:
            self.epochs.is_unsynced = False
            self._unsynced_names.append(LEADER_EPOCHS)
        return [self.directory.open(name) for name in self._unsynced_names if self.directory.exists(name)]

    def _first_unflushed(self) -> int:
        """A segment sealed at the recovery point counts: it was flushed without its last index entries."""
        return max(bisect_left(self.bases, self.recovery_point) - 1, 0)

    def end_flush(self, job: FlushJob, now_ms: int) -> None:
        first = self._first_unflushed()
        self.recovery_point = max(self.recovery_point, job.end_offset)
        for segment in self.segments[first : bisect_right(self.bases, self.recovery_point) - 1]:
            segment.trim()
        del self._unsynced_names[: job.replaced_count]
        self.new_in = None
        self._flush_job = None
        self.last_flush_ms = now_ms

    def may_remove(self, count: int) -> bool:
        """Whether what must outlast the oldest `count` segments is durable: the snapshot that knows their
        producers, with the name of the segment behind it, and their leader epochs. If not, flush first."""
        outlasting = (file_name(self.bases[count], SNAPSHOT_SUFFIX), LEADER_EPOCHS)
        return not self.epochs.is_unsynced and not any(name in self._unsynced_names for name in outlasting)

    def remove_segments(self, count: int) -> list[str]:
        """Take the oldest `count` segments out of the log, which `may_remove` has allowed; the names their
        files now have, for removal. After a crash they may be back."""
        removed: list[str] = []
        for segment in self.segments[:count]:
            segment.close()
            removed += self._remove(segment)
        del self.segments[:count], self.bases[:count]
        self.advance_start(max(self.start_offset, self.bases[0]))
        return removed

    def set_aside(self, old: Sequence[Segment]) -> list[str]:
        """Close segments that a cleaned one replaces; the names of their files now. Its snapshot stays."""
        renamed: list[str] = []
        for segment in old:
            segment.close()
            renamed += self._remove(segment, _OWN_SUFFIXES if segment is old[0] else SEGMENT_SUFFIXES)
        return renamed

    def replace_segments(self, place: int, count: int, size: int, now_ms: int) -> None:
        """A cleaned segment is where those were that were set aside, from that place on."""
        base_offset = self.bases[place]
        self.segments[place : place + count] = [Segment(self.directory, base_offset, size, now_ms)]
        del self.bases[place + 1 : place + count]
        if self.directory.exists(file_name(base_offset, TRANSACTION_INDEX_SUFFIX)):
            self.aborted[base_offset] = AbortedIndex(self.directory, base_offset)
        self.change_count += 1
        self.is_folder_unsynced = True

    def _remove(self, segment: Segment, suffixes: Sequence[str] = SEGMENT_SUFFIXES) -> list[str]:
        """Give the files of a closed segment the names that mark them for removal."""
        index = self.aborted.pop(segment.base_offset, None)
        if index is not None:
            index.close()
        renamed = []
        for suffix in suffixes:
            name = file_name(segment.base_offset, suffix)
            if self.directory.exists(name):
                self.directory.rename(name, name + DELETED_SUFFIX)
                renamed.append(name + DELETED_SUFFIX)
        return renamed

    def cut_to(self, end_offset: int) -> None:
        """The log ends there now: what is known of records at and above it is forgotten. A flush under way
        makes nothing durable of what will be written there."""
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.change_count += 1
        self._undecided.cut_end(end_offset)
        self._ends = []
        for index in self.aborted.values():
            index.cut_end(end_offset)
        if self._flush_job is not None:
            self._flush_job.end_offset = min(self._flush_job.end_offset, end_offset)
        self.epochs.cut_end(end_offset)

    def drop_segments(self, place: int) -> list[str]:
        """Segments from `place` on are not part of the log any more, durably after the next flush; the names
        that their files now have. They leave from the top: a crash in between leaves no hole."""
        renamed: list[str] = []
        for segment in reversed(self.segments[place:]):
            segment.abandon()
            renamed += self._remove(segment)
        del self.segments[place:], self.bases[place:]
        self.is_folder_unsynced = True
        return renamed

    def restart_at(self, offset: int, now_ms: int) -> list[str]:
        """Empty the log and begin at `offset`; the renamed files, for removal."""
        renamed = self.drop_segments(0)
        self.forget_producers()
        self.cut_to(0)
        self.add_segment(offset, 0, now_ms)
        self.start_offset = self.end_offset = offset
        return renamed

    def forget_producers(self) -> None:
        """What is known of them is about to be read again."""
        self.producers = Producers()

    def forget_aborted(self, base_offset: int) -> None:
        """The aborted transactions of that segment are about to be read again."""
        index = self.aborted.pop(base_offset, None)
        if index is not None:
            index.reset()

    def take_over(self, other: Log) -> None:
        """Go on where a log of the same content has been: what it knows and no file does, and a leader epoch
        that has no record yet."""
        if other.epochs.latest > self.epochs.latest:
            self.epochs.assign(other.epochs.latest, self.end_offset)
        self.producers = other.producers
        self._undecided = other._undecided
        self._flush_job = other._flush_job
        self.recovery_point = other.recovery_point
        self.cleaned_offset = other.cleaned_offset
        self.last_flush_ms = other.last_flush_ms

    def abandon(self) -> None:
        """Release the files of a log that nobody will open again; nothing more is written."""
        for segment in self.segments:
            segment.abandon()
        for index in self.aborted.values():
            index.close()

    def begin_close(self) -> FlushJob:
        """The last flush: once it has run, and `end_close` is called, opening the log scans nothing."""
        self.active.seal()
        self.write_snapshot()
        return self.begin_flush(is_last=True)

    def end_close(self, job: FlushJob) -> None:
        job.release()
        self.recovery_point = self.end_offset
        self.close(clean=False)

    def close(self, clean: bool) -> None:
        """Release the files; if `clean`, everything is made durable first, so that opening scans nothing."""
        if clean:
            job = self.begin_close()
            job.run()
            self.end_close(job)
        for segment in self.segments:
            segment.close()
        for index in self.aborted.values():
            index.close()
