"""Opening a log: what is on the disk, what of it can be trusted, and the state that follows from it (L9).

After a clean stop nothing is scanned but the few batches behind the last index entry. After a crash,
the segments from the recovery point on are read whole: every checksum, every offset; the first batch
that is torn or corrupt is cut off with all that follows, and the indexes are made anew. What was found says
what the log has kept (`trust`).

**Invariant:** a batch that was whole before the crash is whole after it; a segment that ends below the
recovery point is never cut; what a cut says of the log is marked on the disk before it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from tidelog.base.config import TopicSettings
from tidelog.base.files import Directory
from tidelog.log.format.names import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_in_name,
)
from tidelog.log.leftovers import has_leftovers, tidy_leftovers
from tidelog.log.log import Log
from tidelog.log.replay import (
    apply_batch,
    drop_snapshots_above,
    index_batch,
    load_snapshot,
    note_undecided,
    snapshot_offsets,
)
from tidelog.log.replica import close_off_gaps, restart
from tidelog.log.scan import BatchAt, Scan, is_dense, walk_headers
from tidelog.log.segment import Segment
from tidelog.log.trust import Kept, is_broken_off, write_mark


@dataclass(slots=True)
class Recovery:
    """What opening a log found: for the operator's log and for the tests."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    kept: Kept = Kept.WHOLE
    rebuilt: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def open_log(
    directory: Directory,
    settings: TopicSettings,
    now_ms: int,
    recovery_point: int = 0,
    start_offset: int = 0,
    is_clean: bool = False,
    is_cached: bool = False,
    high_watermark: int = 0,
    kept: Kept = Kept.WHOLE,
    broker_epoch: int = 0,
    cleaned_offset: int = 0,
) -> tuple[Log, Recovery]:
    """The log in `directory`, made if it is empty, ready to append to and to read from. What was not flushed
    may be `is_cached`: there only because the machine has run on since it was written. `kept` is what is
    known of the log before it is opened; what it turns out to have lost is marked with the broker's epoch.
    Records below `cleaned_offset` were cleaned: their segments may end in a gap."""
    opening = _Opening(
        directory, settings, now_ms, recovery_point, is_clean, is_cached, high_watermark, kept, broker_epoch
    )
    opening.whole_from = max(recovery_point, cleaned_offset)
    if opening.find_files():
        opening.load_segments(start_offset)
        opening.recover()
    else:
        opening.begin(start_offset)
    log = opening.log
    if start_offset > log.end_offset:  # offsets below it were given once and must not be given again (L1)
        opening.restart_at(start_offset)
    opening.check_end()
    log.open_at(start_offset, log.end_offset if opening.is_clean else recovery_point, now_ms)
    log.clean_to(cleaned_offset)
    return log, opening.report


class _Opening:
    def __init__(
        self,
        directory: Directory,
        settings: TopicSettings,
        now_ms: int,
        recovery_point: int,
        is_clean: bool,
        is_cached: bool,
        high_watermark: int,
        kept: Kept,
        broker_epoch: int,
    ) -> None:
        self.log = Log(directory, settings)
        self.report = Recovery(kept=kept)
        self._before = kept
        self._broker_epoch = broker_epoch
        self._directory = directory
        self._now_ms = now_ms
        self._recovery_point = recovery_point
        self.is_clean = is_clean
        self._was_stopped = is_clean  # whatever is found then
        self._is_cached = is_cached
        self._high_watermark = high_watermark
        self.whole_from = recovery_point  # a gap between segments above it is a loss
        self._sizes: dict[str, int] = {}
        self._replay_from = 0
        self._is_dense = True  # no scanned segment has lost records to compaction

    def find_files(self) -> bool:
        """Look what there is, without what was left behind; False if there is nothing."""
        self._sizes = self._directory.sizes()
        if has_leftovers(self._sizes.keys()):
            tidy_leftovers(self._directory)
            self._sizes = self._directory.sizes()
        return bool(self._sizes)

    def begin(self, start_offset: int) -> None:
        """A new folder: there is nothing to find out."""
        self.log.add_segment(start_offset, 0, self._now_ms)
        self.log.end_at(start_offset)
        self.is_clean = self.is_clean and start_offset == self._recovery_point

    def load_segments(self, start_offset: int) -> None:
        found = (offset_in_name(name, LOG_SUFFIX) for name in self._sizes)
        bases = sorted(base for base in found if base is not None)
        for base in bases:
            has_aborted = file_name(base, TRANSACTION_INDEX_SUFFIX) in self._sizes
            self.log.load_segment(base, self._sizes[file_name(base, LOG_SUFFIX)], has_aborted, self._now_ms)
        if not bases:
            self.log.add_segment(start_offset, 0, self._now_ms)
        if not self.log.epochs.load() and bases:
            self.log.epochs.rebuild(
                (batch.header.leader_epoch, batch.header.base_offset)
                for segment in self.log.segments
                for batch in walk_headers(segment.file, 0, segment.size)
            )

    def recover(self) -> None:
        log = self.log
        log.end_at(log.bases[-1])
        if not (self.is_clean and self._tail_is_whole()):
            self.is_clean = False
        scan_from = len(log.segments) if self.is_clean else self._first_unflushed()
        offset_max = log.end_offset if self.is_clean else log.bases[scan_from]
        snapshots = snapshot_offsets(self._sizes)
        drop_snapshots_above(log, snapshots, offset_max)
        damaged = [base for base, index in log.aborted.items() if index.is_damaged]
        self._replay_from = load_snapshot(log, snapshots, min([offset_max, *damaged]), self.report.problems)
        for segment in log.segments[:scan_from]:
            self._check_indexes(segment)
        note_undecided(log, snapshots, max(self._high_watermark, log.bases[0]), self._replay_from)
        for place, segment in enumerate(log.segments[:scan_from]):
            end_offset = log.bases[place + 1] if place + 1 < len(log.bases) else log.end_offset
            if end_offset > self._replay_from:
                self._replay(segment, note_aborts=segment.base_offset in damaged)
        if not self.is_clean:
            log.end_at(log.bases[scan_from])
            self._scan_segments(scan_from)
            if not self._is_dense:
                close_off_gaps(log, self._now_ms)
                self._directory.sync()
            if log.end_offset > log.bases[0]:
                log.write_snapshot()
        self._drop_old_snapshots()
        # After a clean stop the file is what the log knew: also of an epoch that has no record yet.
        log.epochs.cut_end(log.end_offset + self.is_clean)

    def restart_at(self, start_offset: int) -> None:
        """The log ends below where it must start: empty it and begin there."""
        self._note_cut()
        self._report_dropped(0, f"the log starts at {start_offset}")
        restart(self.log, start_offset, self._now_ms)
        self.log.epochs.write(durable=True)  # with all that has changed in the folder

    def check_end(self) -> None:
        """What was flushed, or was committed and cannot have been lost by a power cut, must be there."""
        is_flushed = self._before is Kept.WHOLE or self.log.settings.flush_messages == 1
        reached = max(self._recovery_point, self._high_watermark if is_flushed else 0)
        if self.log.end_offset < reached:
            self._note_loss(Kept.LOST)

    def _note_cut(self) -> None:
        """The log is about to be cut to its end as it is now: only a power cut excuses that, and only of what
        was not flushed."""
        is_excused = self._before is not Kept.WHOLE and self.log.end_offset >= self._recovery_point
        self._note_loss(Kept.TORN if is_excused else Kept.LOST)

    def _note_loss(self, kept: Kept) -> None:
        if kept > self.report.kept:
            self.report.kept = kept
            write_mark(self._directory, kept, self._broker_epoch)

    def _tail_is_whole(self) -> bool:
        """After a clean stop: the batches behind the last index entry end where the file ends."""
        active = self.log.active
        if not self._indexes_are_sane(active):
            return False
        entry = active.offset_index.last()
        scan = Scan(active.file, entry[1] if entry else 0, active.size, active.base_offset)
        for batch, _ in scan.batches():
            self.log.end_at(batch.header.last_offset + 1)
        return scan.problem is None and self.log.end_offset == self._recovery_point

    def _first_unflushed(self) -> int:
        """Of a segment that ends at the recovery point the records were flushed, perhaps not the indexes."""
        return max(bisect_left(self.log.bases, self._recovery_point) - 1, 0)

    def _drop_old_snapshots(self) -> None:
        """Kept are those that a segment begins with, and the one at the end of the log."""
        for offset in snapshot_offsets(self._sizes):
            if offset not in self.log.bases and offset != self.log.end_offset:
                self._directory.remove(file_name(offset, SNAPSHOT_SUFFIX))

    def _check_indexes(self, segment: Segment) -> None:
        """A sealed segment's indexes: there, of whole entries, with a last entry that can be."""
        if self._indexes_are_sane(segment):
            segment.close()
            return
        self.report.rebuilt.append(segment.offset_index.name)
        segment.reset_indexes()
        scan = Scan(segment.file, 0, segment.size, segment.base_offset)
        for batch, _ in scan.batches():
            index_batch(self.log, segment, batch)
        segment.seal()
        for file in segment.open_files():
            file.sync()
        if scan.problem:
            self.report.problems.append(f"{file_name(segment.base_offset, LOG_SUFFIX)}: {scan.problem}")

    def _indexes_are_sane(self, segment: Segment) -> bool:
        settings, time_index = self.log.settings, segment.time_index
        return (
            segment.offset_index.is_sane(
                segment.size, max(settings.index_interval_bytes, settings.max_message_bytes)
            )
            and time_index.name in self._sizes
            and time_index.is_sane(segment.size, segment.first_timestamp)
        )

    def _replay(self, segment: Segment, note_aborts: bool) -> None:
        """Producers and transactions of a segment that is trusted, from where the snapshot ends."""
        if note_aborts:
            self.report.rebuilt.append(self.log.aborted[segment.base_offset].name)
            self.log.forget_aborted(segment.base_offset)
        for batch, data in Scan(segment.file, 0, segment.size, segment.base_offset).batches():
            if batch.header.last_offset >= self._replay_from:
                self._apply(batch, data, note_aborts, segment.base_offset)

    def _scan_segments(self, first: int) -> None:
        log = self.log
        for place in range(first, len(log.segments)):
            segment = log.segments[place]
            if segment.base_offset < log.end_offset or (place > first and self._is_gap(place)):
                self._drop_from(place, f"segment {segment.base_offset} does not follow {log.end_offset}")
                return
            log.end_at(segment.base_offset)
            if not self._scan_segment(place, segment):
                self._drop_from(place + 1, "the segment before it was cut")
                return
            if place + 1 < len(log.segments):
                segment.seal()
                log.write_snapshot()

    def _is_gap(self, place: int) -> bool:
        """Whether records are missing before a segment that neither retention nor compaction took: their file
        never reached the disk, or its end did not, so what follows is not the log that was written.
        Compaction is known by the cleaner's checkpoint and by the gaps that it leaves within segments, and
        whoever was stopped lost nothing: a log that Kafka has compacted may come to us."""
        log = self.log
        if not (log.bases[place] > log.end_offset >= self.whole_from and self._is_dense):
            return False
        if not log.settings.is_compacted:
            return True
        return not self._was_stopped and all(
            is_dense(segment.file, segment.size, segment.base_offset) for segment in log.segments[place:]
        )

    def _scan_segment(self, place: int, segment: Segment) -> bool:
        """Read one segment whole; False if its end had to be cut off."""
        log = self.log
        segment.reset_indexes()
        log.forget_aborted(segment.base_offset)
        must_follow = place == len(log.segments) - 1 and not log.settings.is_compacted
        last_epoch = -1
        scan = Scan(segment.file, 0, segment.size, segment.base_offset)
        for batch, data in scan.batches():
            header = batch.header
            base_offset = header.base_offset
            is_next = base_offset == log.end_offset
            is_astray = must_follow and not is_next and _is_astray(segment, batch, last_epoch)
            if base_offset < log.end_offset or is_astray:
                scan.problem = f"a batch at {scan.position} has offset {base_offset}, not {log.end_offset}"
                break
            if not is_next or header.record_count != header.last_offset_delta + 1:
                self._is_dense = False
            last_epoch = header.leader_epoch
            index_batch(log, segment, batch)
            log.epochs.assign(batch.header.leader_epoch, base_offset)
            if batch.header.last_offset >= self._replay_from:
                self._apply(batch, data, True, segment.base_offset)
            log.end_at(batch.header.last_offset + 1)
        self.report.scanned_bytes += scan.position
        if self._is_cached:
            segment.file.rewrite(scan.position)
        if scan.problem is None:
            return True
        self.report.problems.append(f"{file_name(segment.base_offset, LOG_SUFFIX)}: {scan.problem}")
        self.report.cut_bytes += segment.size - scan.position
        if not self._is_broken_off(place, segment, scan.position):
            self._note_cut()
        segment.truncate(scan.position)
        segment.file.sync()  # or the next crash might bring back what is cut, behind what is written now
        return False

    def _is_broken_off(self, place: int, segment: Segment, position: int) -> bool:
        """Whether what is cut is a write of the last life that its kill broke off."""
        is_last = place == len(self.log.segments) - 1 and not self._was_stopped
        end = self.log.end_offset
        return (
            is_last
            and self._before is Kept.WHOLE
            and end >= self._recovery_point
            and is_broken_off(segment.file, position, segment.size, end)
        )

    def _apply(self, batch: BatchAt, data: memoryview, note_aborts: bool, base: int) -> None:
        problem = apply_batch(self.log, batch.header, data, base, note_aborts)
        if problem is not None:
            self.report.problems.append(problem)

    def _drop_from(self, place: int, why: str) -> None:
        """Segments behind a cut are not part of the log any more."""
        if place < len(self.log.segments):
            self._note_cut()
        self._report_dropped(place, why)
        self.log.drop_segments(place)
        self._directory.sync()

    def _report_dropped(self, place: int, why: str) -> None:
        for segment in self.log.segments[place:]:
            self.report.problems.append(f"{file_name(segment.base_offset, LOG_SUFFIX)} dropped: {why}")
            self.report.cut_bytes += segment.size


def _is_astray(segment: Segment, batch: BatchAt, last_epoch: int) -> bool:
    """Whether a batch behind a gap in the last segment has no right to its offset, which no checksum covers.
    Records may be missing if the topic was compacted once, whatever its policy is now: then the next batch
    follows this one."""
    header = batch.header
    behind = next(walk_headers(segment.file, batch.position + header.size, segment.size), None)
    is_followed = behind is not None and behind.header.base_offset > header.last_offset
    return not is_followed or header.leader_epoch < last_epoch
