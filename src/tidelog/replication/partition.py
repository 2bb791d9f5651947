"""One partition and its role: the doors through which records go in and come out.

| role      | append                      | read by consumers                | by replicas     |
|-----------|-----------------------------|----------------------------------|-----------------|
| leader    | yes, stamps its epoch       | below the high watermark         | to the log's end|
| follower  | what the leader has         | the same, if they ask a follower | no              |
| offline   | KAFKA_STORAGE_ERROR         | KAFKA_STORAGE_ERROR              | the same        |
| deleted   | UNKNOWN_TOPIC_OR_PARTITION  | UNKNOWN_TOPIC_OR_PARTITION       | the same        |

With `flush.messages=1` only flushed bytes count (R15): the high watermark follows the fsync, and a follower
asks for more when it has flushed what it has.

**Invariant:** the high watermark never falls, unless an unclean election has lost records; nothing at or
above it is shown to a consumer.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.base.files import FileSlice
from tidelog.base.limits import MARKER_SIZE
from tidelog.cluster.elections import min_insync
from tidelog.cluster.facts import NOBODY, UNFLUSHED, PartitionFacts
from tidelog.cluster.image import Image
from tidelog.log.directory import LogDirectory
from tidelog.log.flush import FlushJob
from tidelog.log.log import Appended, Log
from tidelog.log.markers import End, Marked, append_markers
from tidelog.log.replica import append_replica, restart, truncate
from tidelog.log.trust import Kept
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.counters import PartitionCounters
from tidelog.replication.leader import Leadership
from tidelog.replication.unflushed import Unflushed

READ_COMMITTED = 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")

_NONE = int(ErrorCode.none)
_UNKNOWN = int(ErrorCode.unknown_topic_or_partition)
_STORAGE = int(ErrorCode.kafka_storage_error)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)
_FENCED = int(ErrorCode.fenced_leader_epoch)
_UNKNOWN_EPOCH = int(ErrorCode.unknown_leader_epoch)
_NOT_AVAILABLE = int(ErrorCode.offset_not_available)


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    DELETED = "deleted"


class PartitionRead(NamedTuple):
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileSlice | None
    aborted: list[tuple[int, int]] | None
    is_cut: bool = False  # there is more to read, though less than was asked for is given
    diverging_epoch: tuple[int, int] | None = None  # where the logs of a reader and of this replica part


class Partition:
    __slots__ = (
        "_is_free",
        "counters",
        "directory",
        "error_code",
        "facts",
        "floor",
        "high_watermark",
        "index",
        "is_cutting",
        "is_flushed",
        "is_internal",
        "kept",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "role",
        "topic",
        "topic_id",
        "unflushed",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        directory: LogDirectory,
        high_watermark: int = 0,
        kept: Kept = Kept.WHOLE,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.directory = directory
        self.kept = kept  # since its last life, until the store knows; or until its disk failed
        self.role = Role.FOLLOWER
        self.error_code = _NOT_LEADER  # why this replica takes nobody's records, or none
        self.facts: PartitionFacts | None = None
        self.leader_id = NOBODY
        self.leader_epoch = -1
        self.leadership: Leadership | None = None
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        self.is_internal = topic in INTERNAL_TOPICS
        self.unflushed = Unflushed()
        self.is_flushed = False  # only flushed bytes count (R15)
        self._is_free = False  # what is appended is committed: nobody else is waited for
        self.floor: int | None = None  # pending truncation offset; checkpoints record nothing above it
        self.is_cutting = False  # it was cut, and is not flushed since: nothing may be appended
        self.counters = PartitionCounters()

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def is_open(self) -> bool:
        return self.role is Role.LEADER or self.role is Role.FOLLOWER

    @property
    def in_sync_replicas(self) -> list[int]:
        return self.facts.in_sync_replicas if self.facts is not None else []

    # Roles.

    def become_leader(self, node_id: int, image: Image, facts: PartitionFacts, now_ms: int) -> None:
        """Lead under the epoch of `facts`, or go on leading under it with what the store has now."""
        is_same = self.role is Role.LEADER and facts.leader_epoch == self.leader_epoch
        if is_same and self.leadership is not None:
            self.leadership.on_facts(facts, now_ms)
        else:
            self.role = Role.LEADER
            self.error_code = _NONE
            self.floor = None
            self.leader_id = node_id
            self.leader_epoch = facts.leader_epoch
            # A consumer that read the end of the last leadership, lost since, is told where it ends now.
            self.log.epochs.assign(facts.leader_epoch, self.log.end_offset)
            self.leadership = Leadership(node_id, image, facts, self.log.end_offset, now_ms)
            self.unflushed.is_wanted = self.log.end_offset > self.log.recovery_point
        self.facts = facts
        self._note_mode()
        self.note_rules()

    def become_follower(self, facts: PartitionFacts) -> None:
        self.role = Role.FOLLOWER
        self.error_code = _NOT_LEADER
        self.leader_id = facts.leader
        self.leader_epoch = facts.leader_epoch
        self.facts = facts
        self.leadership = None
        self._is_free = False
        self._note_mode()

    def _note_mode(self) -> None:
        """The setting decides, and as long as the store says so what it was."""
        is_kept = self.facts is not None and self.facts.flush != UNFLUSHED
        self.is_flushed = is_kept or self.log.settings.flush_messages == 1
        if self.is_flushed and self.unflushed.count:
            self.unflushed.want()

    @property
    def min_insync(self) -> int:
        """How many replicas must have a record for it to be committed, and for acks=all to be taken (R6)."""
        return min_insync(self.facts.replicas, self.log.settings) if self.facts is not None else 1

    @property
    def is_under_minimum(self) -> bool:
        """Whether too few replicas are in sync for acks=all (R6)."""
        leadership = self.leadership
        if leadership is None or self._is_free:
            return False
        return leadership.counted() < self.min_insync

    @property
    def is_at_minimum(self) -> bool:
        """Whether one replica less in sync would be too few for acks=all (R6)."""
        return self.leadership is not None and self.leadership.counted() == self.min_insync

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark has come to where this leadership began (KIP-207)."""
        return self.leadership is None or self.high_watermark >= self.leadership.start_offset

    def note_rules(self) -> bool:
        """What the high watermark goes by has changed; whether it moved."""
        leadership = self.leadership
        self._is_free = False
        if leadership is not None and leadership.is_alone:
            reached = leadership.committed(0, self.min_insync)
            self._is_free = reached == 0 and not self.is_flushed and leadership.awaited is None
        return self.maybe_advance()

    def begin_await(self, node_id: int, now_ms: int) -> None:
        """Let the high watermark wait for one fetch of a follower that only lacks the newest records."""
        assert self.leadership is not None
        self.leadership.begin_await(node_id, now_ms)
        self.note_rules()

    def end_await(self) -> bool:
        """The follower that was waited for has fetched, or took too long; whether the watermark moved."""
        assert self.leadership is not None
        self.leadership.awaited = None
        return self.note_rules()

    def move(self, log: Log, directory: LogDirectory) -> None:
        """Go on with a copy of the log in another directory."""
        assert log.end_offset == self.log.end_offset and not self.unflushed.is_under_way
        self.directory.partition_count -= 1
        directory.partition_count += 1
        self.log = log
        self.directory = directory

    @property
    def is_flushing(self) -> bool:
        return self.unflushed.is_under_way

    @property
    def is_swapping(self) -> bool:
        return self.log.is_swapping

    @property
    def is_flush_wanted(self) -> bool:
        return self.unflushed.is_wanted

    def want_flush(self) -> None:
        self.unflushed.want()

    def become_offline(self) -> None:
        self._end(Role.OFFLINE, _STORAGE)

    def become_deleted(self) -> None:
        self._end(Role.DELETED, _UNKNOWN)

    def become_moved(self) -> None:
        """It is on other brokers now, which requests that still wait here are told."""
        self._end(Role.DELETED, _NOT_LEADER)

    def _end(self, role: Role, error_code: int) -> None:
        self.role = role
        self.error_code = error_code
        self.leadership = None
        self._is_free = False

    def use_settings(self, settings: TopicSettings) -> None:
        """Settings that were changed while the partition is served; they hold from the next request on."""
        self.log.use_settings(settings)
        self._note_mode()
        if self.unflushed.count and self.unflushed.count >= settings.flush_messages:
            self.unflushed.want()
        if self.role is Role.LEADER:
            self.note_rules()

    def trim(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments go when retention next looks."""
        assert offset <= self.high_watermark
        self.log.advance_start(offset)

    def check_epoch(self, current_leader_epoch: int) -> int:
        """The error for a client that believes in another leadership, or none (KIP-320)."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return _NONE
        return _FENCED if current_leader_epoch < self.leader_epoch else _UNKNOWN_EPOCH

    def append(self, view: memoryview, start: int, end: int, now_ms: int) -> Appended:
        """Append as leader; RefusedBatch if the batch may not go in, OSError if the disk failed."""
        log = self.log
        segment_count = len(log.segments)
        appended = log.append(view, start, end, self.leader_epoch, now_ms)
        if not appended.is_duplicate:
            count = appended.end_offset - appended.base_offset
            self.counters.note_appended(count, end - start)
            self._note_grown(count, len(log.segments) != segment_count)
        return appended

    def append_own(self, batch: bytearray, now_ms: int) -> Appended:
        """Append, as leader, a batch that the broker has built; OSError if the disk failed."""
        log = self.log
        segment_count = len(log.segments)
        appended = log.append_own(batch, self.leader_epoch, now_ms)
        count = appended.end_offset - appended.base_offset
        self.counters.note_appended(count, len(batch))
        self._note_grown(count, len(log.segments) != segment_count)
        return appended

    def append_markers(self, ends: list[End], now_ms: int) -> list[Marked]:
        """End transactions, as leader: the answer to each. OSError if the disk failed."""
        log = self.log
        before, segment_count = log.end_offset, len(log.segments)
        marked = append_markers(log, ends, self.leader_epoch, now_ms)
        count = log.end_offset - before
        if count:
            self.counters.note_appended(count, count * MARKER_SIZE)
            self._note_grown(count, len(log.segments) != segment_count)
        return marked

    def _note_grown(self, record_count: int, has_rolled: bool) -> None:
        unflushed = self.unflushed
        unflushed.count += record_count
        if unflushed.count >= self.log.settings.flush_messages or has_rolled or self.is_flushed:
            unflushed.is_wanted = True
        if self._is_free:
            self.high_watermark = self.log.end_offset

    @property
    def counted_end_offset(self) -> int:
        """How far this replica's log counts: to its end or, where only flushed bytes do, to what is
        flushed."""
        log = self.log
        return log.recovery_point if self.is_flushed else log.end_offset

    def maybe_advance(self) -> bool:
        """Move the high watermark to what every in-sync replica has; whether it moved."""
        leadership = self.leadership
        end_offset = self.counted_end_offset
        if leadership is None or leadership.least_end_offset(end_offset) <= self.high_watermark:
            return False
        reached = leadership.committed(end_offset, self.min_insync)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    # Following.

    def take(
        self,
        records: memoryview,
        high_watermark: int,
        start_offset: int,
        now_ms: int,
        may_have_gaps: bool = False,
    ) -> bool:
        """Append what the leader has sent; whether anything moved. CorruptBatch, or OSError."""
        assert not self.is_cutting
        log = self.log
        before, segment_count = log.end_offset, len(log.segments)
        start_before = log.start_offset
        try:
            if records:
                append_replica(log, records, now_ms, may_have_gaps)
        finally:
            if log.end_offset != before:
                self._note_grown(log.end_offset - before, len(log.segments) != segment_count)
        if start_offset > log.start_offset:
            log.advance_start(min(start_offset, log.end_offset))
        known = max(min(high_watermark, log.end_offset), log.start_offset)
        has_moved = log.end_offset != before or known > self.high_watermark
        has_moved = has_moved or log.start_offset != start_before
        self.high_watermark = max(self.high_watermark, known)
        return has_moved

    def cut(self, offset: int, now_ms: int) -> list[str]:
        """Drop what the leader does not have, or a first part of it; names of files to remove. Nothing may be
        appended until a flush that begins now has ended."""
        before = self.log.end_offset
        names = truncate(self.log, offset, now_ms)
        self.log.epochs.cut_end(self.log.end_offset)  # one that began there and has no record yet
        if names or self.log.end_offset != before:
            self._note_cut()
        return names

    def begin_at(self, offset: int, now_ms: int) -> list[str]:
        """Drop everything and begin where the leader's log begins; names of files to remove. As after a cut,
        a flush comes next."""
        names = restart(self.log, offset, now_ms)
        self.high_watermark = offset
        self._note_cut()
        return names

    def _note_cut(self) -> None:
        assert not self.is_flushing, "a flush that began before would pass for the one that comes now"
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        self.is_cutting = True
        self.unflushed.want()

    def plan_cut(self, offset: int) -> None:
        """The log will be cut: checkpoints record nothing above the offset from here on."""
        self.floor = offset

    def cancel_cut(self) -> None:
        self.floor = None

    def end_cut(self) -> None:
        self.is_cutting = False
        self.floor = None

    @property
    def is_caught_by_flush(self) -> bool:
        """Whether a follower must flush what it has before it asks for more."""
        return self.counted_end_offset < self.log.end_offset

    def must_wait_for_flush(self, appended: Appended) -> bool:
        """Whether the answer to an append waits for an fsync."""
        if appended.end_offset <= self.log.recovery_point:
            return False
        flush_messages = self.log.settings.flush_messages
        return flush_messages == 1 or (self.unflushed.is_wanted and self.unflushed.count >= flush_messages)

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation_level: int,
        current_leader_epoch: int,
        at_least_one: bool,
        from_follower: bool = False,
    ) -> PartitionRead:
        log = self.log
        error = self.error_code
        if error and from_follower and self.role is Role.FOLLOWER and self.leader_id != NOBODY:
            error = _NONE
        error = error or self.check_epoch(current_leader_epoch)
        if error:
            return PartitionRead(error, -1, -1, -1, None, None)
        high_watermark = self.high_watermark
        stable = log.last_stable_offset(high_watermark)
        bound = stable if isolation_level == READ_COMMITTED else high_watermark
        if offset < log.start_offset or offset > log.end_offset:
            is_ahead = self.role is Role.FOLLOWER and offset > log.end_offset
            code = _NOT_AVAILABLE if is_ahead else _OUT_OF_RANGE
            return PartitionRead(code, high_watermark, stable, log.start_offset, None, None)
        records = log.read(offset, bound, max_bytes, at_least_one) if offset < bound else None
        aborted = None
        if isolation_level == READ_COMMITTED:
            aborted = []
            if records is not None and log.aborted:
                found = log.aborted_between(offset, min(bound, log.end_of(records)))
                aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        # A slice goes to the end of a segment at most; what follows is in the next one, not in the future.
        is_cut = records is not None and records.size < max_bytes and records.file is not log.active.file
        return PartitionRead(_NONE, high_watermark, stable, log.start_offset, records, aborted, is_cut)

    def read_replica(
        self, offset: int, max_bytes: int, current_leader_epoch: int, last_epoch: int, at_least_one: bool
    ) -> PartitionRead:
        """What a follower gets: all that is there, or where its log and this one part (R8)."""
        log = self.log
        error = self.error_code or self.check_epoch(current_leader_epoch)
        if error:
            return PartitionRead(error, -1, -1, -1, None, None)
        high_watermark, start_offset = self.high_watermark, log.start_offset
        if offset < start_offset:
            return PartitionRead(_OUT_OF_RANGE, high_watermark, -1, start_offset, None, None)
        parting = self.parting(offset, last_epoch)
        if parting is not None or offset > log.end_offset:
            parting = parting or (self.leader_epoch, log.end_offset)
            return PartitionRead(_NONE, high_watermark, -1, start_offset, None, None, False, parting)
        end_offset = log.end_offset
        records = log.read(offset, end_offset, max_bytes, at_least_one) if offset < end_offset else None
        is_cut = records is not None and records.size < max_bytes and records.file is not log.active.file
        return PartitionRead(_NONE, high_watermark, -1, start_offset, records, None, is_cut)

    def parting(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the last that a reader has in common with this log; None if that is all."""
        if last_epoch < 0 or (last_epoch == self.log.epochs.latest and offset <= self.log.end_offset):
            return None
        epoch, end_offset = self.log.epochs.end_of(last_epoch, self.log.end_offset)
        return None if epoch == last_epoch and end_offset >= offset else (epoch, end_offset)

    def begin_flush(self) -> FlushJob | None:
        """The next fsync, unless one is under way: later requests share the one after it (L6)."""
        return self.unflushed.begin(self.log) if self.is_open else None

    def on_flushed(self, now_ms: int) -> bool:
        """The fsync under way has succeeded; whether the high watermark moved."""
        self.unflushed.end(self.log, now_ms)
        return self.maybe_advance()
