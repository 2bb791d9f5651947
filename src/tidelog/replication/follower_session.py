"""The fetch session of one follower, as its leader has it.

A follower that has all of a partition says nothing new of it by its fetches: the partition is settled, and
the follower counts as caught up for as long as its session is used, until the partition moves.

**Invariant:** a settled partition is one of which the follower has everything, committed, as a member of the
ISR. A high watermark alone wakes a follower only if consumers read from it.
"""

from __future__ import annotations

from typing import TypeVar

from tidelog.base.limits import FOLLOWER_SILENT_MS_MAX
from tidelog.protocol.fetch import FetchRequest
from tidelog.replication.fetch_session import FetchSession, SessionPartition, Waiting
from tidelog.replication.partition import Partition
from tidelog.replication.watches import Watches

W = TypeVar("W", bound=Waiting)


class FollowerSession(FetchSession[W]):
    __slots__ = ("_replica_epoch", "_silent_ms_max", "_steady_ms", "replica_id", "serves_readers")

    def __init__(
        self, session_id: int, uses_topic_ids: bool, now_ms: int, replica_id: int, watches: Watches[W]
    ) -> None:
        super().__init__(session_id, uses_topic_ids, now_ms, watches)
        self.replica_id = replica_id
        self._replica_epoch = -1
        self._silent_ms_max = FOLLOWER_SILENT_MS_MAX
        self._steady_ms = now_ms  # since when it has been used all the time
        self.serves_readers = False  # it has consumers of its own, who wait for the high watermark

    def update(self, request: FetchRequest) -> None:
        super().update(request)
        if request.replica_epoch != self._replica_epoch:  # under a new epoch every offset counts again
            self._replica_epoch = request.replica_epoch
            self.due |= dict.fromkeys(self.partitions)

    def note_use(self, wait_ms: int, now_ms: int) -> None:
        """It is about to be used again, by a request that may be kept waiting so long."""
        if now_ms - self.used_ms > self._silent_ms_max:
            self._steady_ms = now_ms
        self._silent_ms_max = max(FOLLOWER_SILENT_MS_MAX, 2 * wait_ms)

    def is_steady(self, now_ms: int) -> bool:
        """Whether it has been used all the time, until just now."""
        silent_ms_max = self._silent_ms_max
        return now_ms - self.used_ms <= silent_ms_max <= now_ms - self._steady_ms

    def note_moved(self, partition: Partition) -> None:
        """A settled partition has moved: up to its last fetch the follower had everything."""
        if self._key_of(partition) not in self.due and partition.leadership is not None:
            partition.leadership.renew(self.replica_id, self.used_ms)
        super().note_moved(partition)

    def woken_by(self, partition: Partition) -> W | None:
        known = self.partitions.get(self._key_of(partition))
        if known is None or self.serves_readers or self.is_behind(known, partition):
            return self.waiting
        return None

    def is_behind(self, known: SessionPartition, partition: Partition) -> bool:
        """Whether the follower would learn more than a high watermark by an answer."""
        asked, log, leadership = known.request, partition.log, partition.leadership
        return (
            leadership is None
            or self.replica_id not in leadership.followers
            or asked.fetch_offset != log.end_offset
            or asked.current_leader_epoch != partition.leader_epoch
            or known.log_start_offset < log.start_offset
            or partition.error_code != 0
            or partition.parting(asked.fetch_offset, asked.last_fetched_epoch) is not None
        )
