"""The committed offsets of groups, and their expiry.

| group         | an offset expires `offsets.retention.minutes` after              |
|---------------|------------------------------------------------------------------|
| has members   | its commit, if the group does not subscribe to the topic         |
| had members   | its commit, or the departure of a classic group's last member    |
| never had any | its commit                                                       |

**Invariant:** the offset here is the journal's last record of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tidelog.base.decision import Writer
from tidelog.base.limits import OFFSETS_LOOKED_AT_MAX
from tidelog.groups.facts import offset_entry
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Topics, Turn
from tidelog.protocol.errors import ErrorCode

Spot = tuple[str, int]  # topic, partition
MINUTE_MS = 60_000
_NO_ERROR = ErrorCode.none
_new = tuple.__new__  # of a named tuple, at a third of the cost of calling its class


class Commit(NamedTuple):
    """One partition of an OffsetCommit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes


class CommitAsk(NamedTuple):
    """An OffsetCommit request, without its partitions."""

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int  # generation or member epoch; -1 for a client that is not a member
    retention_ms: int
    knows_epochs: bool  # the version has errors for consumer groups
    commits: list[Commit]


class TransactionCommit(NamedTuple):
    """A TxnOffsetCommit request."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int  # or member epoch; -1 if the producer does not say for which member it commits
    commits: list[Commit]
    writer: Writer


class Sweep:
    """A walk over all offsets in pieces, while offsets are added and deleted. New offsets may be skipped."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._group_ids = list(offsets.group_ids())
        self._group_id = ""
        self._spots: list[Spot] = []

    @property
    def is_over(self) -> bool:
        return not self._group_ids and not self._spots

    def next_piece(self) -> Iterator[tuple[str, Spot, CommittedOffset]]:
        looked_at = 0
        while looked_at < OFFSETS_LOOKED_AT_MAX and not self.is_over:
            if not self._spots:
                self._group_id = self._group_ids.pop()
                self._spots = list(self._offsets.of(self._group_id))
                looked_at += 1
            room = max(OFFSETS_LOOKED_AT_MAX - looked_at, 1)
            piece = self._spots[-room:]
            del self._spots[-room:]
            looked_at += len(piece)
            known = self._offsets.of(self._group_id)
            for spot in piece:
                if spot in known:
                    yield self._group_id, spot, known[spot]


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[Spot, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def of(self, group_id: str) -> dict[Spot, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def group_ids(self) -> Collection[str]:
        return self._by_group.keys()

    def replay(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        spots = self._by_group.get(group_id)
        if committed is not None:
            if spots is None:
                spots = self._by_group[group_id] = {}
            spots[topic, partition] = committed
        elif spots is not None and spots.pop((topic, partition), None) is not None and not spots:
            del self._by_group[group_id]

    def forget(self, group_id: str) -> None:
        """Drop a group that another partition keeps."""
        self._by_group.pop(group_id, None)

    def commit(self, turn: Turn, group_id: str, commits: list[Commit], retention_ms: int) -> list[ErrorCode]:
        """Write the accepted commits; return an error code or none for each partition."""
        now_ms = turn.now_ms
        expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
        origin = turn.topics.origin
        errors = [_NO_ERROR] * len(commits)
        entries = turn.decision.entries
        for place, (topic, partition, offset, leader_epoch, metadata, topic_id) in enumerate(commits):
            if metadata and not self._is_taken(turn, metadata):
                errors[place] = ErrorCode.offset_metadata_too_large
                continue
            if retention_ms >= 0:  # a record with an expiry time has no field for the topic id
                topic_id, origin = NO_ID, b""
            value = _new(
                CommittedOffset, (offset, leader_epoch, metadata, now_ms, expire_ms, topic_id, origin)
            )
            entries.append(offset_entry(group_id, topic, partition, value))
        return errors

    @staticmethod
    def _is_taken(turn: Turn, metadata: str) -> bool:
        if len(metadata) > turn.settings.number("offset.metadata.max.bytes"):
            return False
        return len(metadata.encode(errors="replace")) <= turn.record_size_max

    def delete(self, turn: Turn, group_id: str, spots: Collection[Spot]) -> None:
        for topic, partition in spots:
            turn.decision.entries.append(offset_entry(group_id, topic, partition, None))

    def expired(
        self,
        group_id: str,
        spots: list[Spot],
        now_ms: int,
        retention_ms: int,
        since_ms: int,
        is_kept: Callable[[str], bool],
    ) -> Iterator[Spot]:
        """The expired offsets; `since_ms`: when the group last had members, or -1."""
        known = self.of(group_id)
        for spot in spots:
            committed = known.get(spot)
            if committed is None or is_kept(spot[0]):
                continue
            due_ms = committed.expire_ms
            if due_ms < 0:
                due_ms = max(committed.commit_ms, since_ms) + retention_ms
            if now_ms >= due_ms:
                yield spot


def is_of_another(topics: Topics, name: str, committed: CommittedOffset) -> bool:
    """Whether an offset belongs to an earlier topic of the same name. Without a topic of that name the offset
    stays: nobody can read with it. An id allocated by another cluster proves nothing."""
    if committed.origin != topics.origin:
        return False
    return topics.id_of(name) not in (None, committed.topic_id)


def no_offset() -> CommittedOffset:
    """The answer for a partition without a committed offset."""
    return CommittedOffset(-1, -1, "", -1, -1, NO_ID)
