"""One partition and its role: the doors through which records go in and come out.

| role      | append                      | read                             |
|-----------|-----------------------------|----------------------------------|
| leader    | yes, stamps its epoch       | below the high watermark         |
| follower  | NOT_LEADER_OR_FOLLOWER      | NOT_LEADER_OR_FOLLOWER           |
| offline   | KAFKA_STORAGE_ERROR         | KAFKA_STORAGE_ERROR              |
| deleted   | UNKNOWN_TOPIC_OR_PARTITION  | UNKNOWN_TOPIC_OR_PARTITION       |

With `flush.messages=1` only flushed bytes count (R15): the high watermark follows the fsync.

**Invariant:** the high watermark never falls; nothing at or above it is shown to a reader.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.base.files import FileSlice
from tidelog.log.directory import LogDirectory
from tidelog.log.log import Appended, FlushJob, Log
from tidelog.protocol.errors import ErrorCode

READ_COMMITTED = 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
# What a partition counts since its log was opened, for whoever watches.
COUNTERS = (
    "append_count",
    "record_count",
    "appended_size",
    "refused_count",
    "read_count",
    "failed_read_count",
    "sent_size",
)

_NONE = int(ErrorCode.none)
_UNKNOWN = int(ErrorCode.unknown_topic_or_partition)
_STORAGE = int(ErrorCode.kafka_storage_error)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)
_FENCED = int(ErrorCode.fenced_leader_epoch)
_UNKNOWN_EPOCH = int(ErrorCode.unknown_leader_epoch)


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


class Partition:
    __slots__ = (
        "_flush_job",
        "_unflushed_count",
        "append_count",
        "appended_size",
        "directory",
        "error_code",
        "failed_read_count",
        "high_watermark",
        "in_sync_replicas",
        "index",
        "is_flush_wanted",
        "is_internal",
        "leader_epoch",
        "leader_id",
        "log",
        "read_count",
        "record_count",
        "refused_count",
        "role",
        "sent_size",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, directory: LogDirectory) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.directory = directory
        self.role = Role.FOLLOWER
        self.error_code = _NOT_LEADER  # why this replica serves nobody, or none
        self.leader_id = -1
        self.leader_epoch = -1
        self.in_sync_replicas: list[int] = []
        self.high_watermark = log.start_offset
        self.is_internal = topic in INTERNAL_TOPICS
        self.is_flush_wanted = False
        self._unflushed_count = 0
        self._flush_job: FlushJob | None = None
        self.append_count = 0
        self.record_count = 0
        self.appended_size = 0
        self.refused_count = 0
        self.read_count = 0
        self.failed_read_count = 0
        self.sent_size = 0

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def become_leader(self, leader_id: int, leader_epoch: int, in_sync_replicas: list[int]) -> None:
        self.role = Role.LEADER
        self.error_code = _NONE
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = in_sync_replicas
        # A consumer that read the end of the last leadership, lost since, is told where it ends now.
        self.log.epochs.assign(leader_epoch, self.log.end_offset)
        self.is_flush_wanted = self.log.end_offset > self.log.recovery_point
        self.maybe_advance()

    def move(self, log: Log, directory: LogDirectory) -> None:
        """Go on with a copy of the log in another directory."""
        assert log.end_offset == self.log.end_offset and self._flush_job is None
        self.directory.partition_count -= 1
        directory.partition_count += 1
        self.log = log
        self.directory = directory

    @property
    def is_flushing(self) -> bool:
        return self._flush_job is not None

    def become_offline(self) -> None:
        self.role = Role.OFFLINE
        self.error_code = _STORAGE

    def become_deleted(self) -> None:
        self.role = Role.DELETED
        self.error_code = _UNKNOWN

    def use_settings(self, settings: TopicSettings) -> None:
        """Settings that were changed while the partition is served; they hold from the next request on."""
        self.log.settings = settings
        if self._unflushed_count and self._unflushed_count >= settings.flush_messages:
            self.is_flush_wanted = True
        if self.role is Role.LEADER:
            self.maybe_advance()

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
            self._note_appended(appended, end - start, len(log.segments) != segment_count)
        return appended

    def append_own(self, batch: bytearray, now_ms: int) -> Appended:
        """Append, as leader, a batch that the broker has built; OSError if the disk failed."""
        log = self.log
        segment_count = len(log.segments)
        appended = log.append_own(batch, self.leader_epoch, now_ms)
        self._note_appended(appended, len(batch), len(log.segments) != segment_count)
        return appended

    def _note_appended(self, appended: Appended, size: int, has_rolled: bool) -> None:
        flush_messages = self.log.settings.flush_messages
        record_count = appended.end_offset - appended.base_offset
        self.append_count += 1
        self.record_count += record_count
        self.appended_size += size
        self._unflushed_count += record_count
        if self._unflushed_count >= flush_messages or has_rolled:
            self.is_flush_wanted = True
        if flush_messages != 1:
            self.high_watermark = appended.end_offset

    def maybe_advance(self) -> bool:
        """Move the high watermark to what every in-sync replica has; whether it moved."""
        is_flushed_only = self.log.settings.flush_messages == 1
        reached = self.log.recovery_point if is_flushed_only else self.log.end_offset
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def must_wait_for_flush(self, appended: Appended) -> bool:
        """Whether the answer to an append waits for an fsync."""
        if appended.end_offset <= self.log.recovery_point:
            return False
        flush_messages = self.log.settings.flush_messages
        return flush_messages == 1 or (self.is_flush_wanted and self._unflushed_count >= flush_messages)

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation_level: int,
        current_leader_epoch: int,
        at_least_one: bool,
    ) -> PartitionRead:
        log = self.log
        self.read_count += 1
        error = self.error_code or self.check_epoch(current_leader_epoch)
        if error:
            self.failed_read_count += 1
            return PartitionRead(error, -1, -1, -1, None, None)
        high_watermark = self.high_watermark
        stable = log.last_stable_offset(high_watermark)
        bound = stable if isolation_level == READ_COMMITTED else high_watermark
        if offset < log.start_offset or offset > log.end_offset:
            self.failed_read_count += 1
            return PartitionRead(_OUT_OF_RANGE, high_watermark, stable, log.start_offset, None, None)
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

    def begin_flush(self) -> FlushJob | None:
        """The next fsync, unless one is under way: whoever comes meanwhile shares the one after it (L6)."""
        if self._flush_job is not None or not self.is_flush_wanted or self.role is not Role.LEADER:
            return None
        self._flush_job = self.log.begin_flush()
        self.is_flush_wanted = False
        self._unflushed_count = 0
        return self._flush_job

    def on_flushed(self, now_ms: int) -> bool:
        """The fsync under way has succeeded; whether the high watermark moved."""
        job, self._flush_job = self._flush_job, None
        assert job is not None
        job.release()
        self.log.end_flush(job, now_ms)
        return self.maybe_advance()
