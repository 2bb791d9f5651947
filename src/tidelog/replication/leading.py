"""All that this broker leads: what the fetches of followers show, and the ISRs that should change by that.

| a follower's fetch shows that                         | then                                              |
|-------------------------------------------------------|---------------------------------------------------|
| it has all before an offset                           | the high watermark may move                       |
| it is outside, and has all that is committed          | it may join, before more is committed             |
| it is outside, and lacks only what was just committed | the high watermark waits for one more fetch of it |
| its log is longer than this one, or differs           | nothing: the answer says where to cut             |

**Invariant:** times and facts come in; what has moved, and what to ask the store for, go out. A follower that
may join holds the high watermark until its joining is pending.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.cluster.facts import PartitionFacts
from tidelog.cluster.image import Image
from tidelog.protocol.fetch import FetchPartition
from tidelog.replication.leader import Leadership
from tidelog.replication.partition import Partition


class IsrChange(NamedTuple):
    """A partition as it should be, for the store to confirm."""

    partition: Partition
    leadership: Leadership
    path: str
    facts: PartitionFacts


class Leading:
    def __init__(self, image: Image, lag_max_ms: int) -> None:
        self._image = image
        self._lag_max_ms = lag_max_ms
        self._under_review: dict[Partition, None] = {}  # their ISRs may have to change
        self._admissions: dict[Partition, None] = {}  # somebody can join now
        self._awaiting: dict[Partition, None] = {}  # the high watermark waits for a follower that will join

    def on_fetch(
        self, partition: Partition, node_id: int, broker_epoch: int, asked: FetchPartition, now_ms: int
    ) -> bool:
        """A follower has all before the offset that it asks for, unless its log is longer than this one or
        differs from somewhere on. Whether the partition has moved by that."""
        leadership, offset = partition.leadership, asked.fetch_offset
        if leadership is None or offset > partition.log.end_offset:
            return False
        if partition.parting(offset, asked.last_fetched_epoch) is not None:
            return False
        end_offset = partition.counted_end_offset
        progress = leadership.on_fetch(node_id, broker_epoch, offset, end_offset, now_ms)
        if progress is None:
            return False
        has_moved = progress.start_offset != asked.log_start_offset
        progress.start_offset = asked.log_start_offset
        if leadership.may_admit(node_id, partition.high_watermark):
            self._admissions[partition] = None  # before anything more is committed that it lacks
            return has_moved
        is_awaited = leadership.awaited == node_id
        has_advanced = partition.end_await() if is_awaited else partition.maybe_advance()
        if leadership.may_await(node_id, now_ms):
            partition.begin_await(node_id, now_ms)
            self._awaiting[partition] = None
        return has_moved or has_advanced

    def review(self, partition: Partition) -> None:
        """The ISR of a partition may have to change."""
        self._under_review[partition] = None

    def drop(self, partition: Partition) -> None:
        """The partition is not led here any more."""
        self._under_review.pop(partition, None)

    def take_admissions(self) -> list[Partition]:
        """Partitions that somebody can join now; they are under review from here on."""
        admissions, self._admissions = self._admissions, {}
        self._under_review |= admissions
        return list(admissions)

    def end_awaits(self, now_ms: int) -> list[Partition]:
        """Partitions whose high watermark has waited long enough for a follower."""
        ended: list[Partition] = []
        for partition in list(self._awaiting):
            leadership = partition.leadership
            if leadership is not None and leadership.is_await_over(now_ms):
                partition.end_await()
                ended.append(partition)
            if leadership is None or leadership.awaited is None:
                del self._awaiting[partition]
        return ended

    def wants_flushed(self, partition: Partition) -> bool:
        return self._image.has_recovery and partition.log.settings.flush_messages == 1

    def decide(self, now_ms: int) -> list[IsrChange]:
        """The partitions under review whose ISR should change."""
        under_review, self._under_review = self._under_review, {}
        decided: list[IsrChange] = []
        for partition in under_review:
            leadership, topic = partition.leadership, self._image.topics_by_id.get(partition.topic_id)
            if leadership is None or topic is None:
                continue
            facts = leadership.propose(
                now_ms,
                self._lag_max_ms,
                partition.min_insync,
                partition.counted_end_offset,
                partition.high_watermark,
                self.wants_flushed(partition),
            )
            if facts is not None:
                decided.append(IsrChange(partition, leadership, topic.path(partition.index), facts))
        return decided

    def begin(self, change: IsrChange) -> bool:
        """The store is asked for a change: it is pending. Whether the high watermark moved."""
        change.leadership.begin_change(change.facts)
        return change.partition.note_rules()

    def refuse(self, change: IsrChange, version: int) -> bool:
        """The store has the partition at a version; at the one that a pending change was to replace, the
        change has not happened. Whether the high watermark moved."""
        partition, leadership, _, facts = change
        if partition.leadership is not leadership or leadership.pending is not facts:
            return False
        if version != facts.version:
            return False
        leadership.abandon()
        self.review(partition)
        return partition.note_rules()
