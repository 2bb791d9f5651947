"""The offsets that groups have committed, and when they may go.

| group         | an offset goes `offsets.retention.minutes` after         |
|---------------|----------------------------------------------------------|
| has members   | its commit, if the group does not subscribe to the topic |
| had members   | its commit, or the last of a classic group's left        |
| never had any | its commit                                               |

**Invariant:** what is here is what the journal's last record of each key says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tidelog.groups.facts import offset_entry
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode

Spot = tuple[str, int]  # topic, partition
MINUTE_MS = 60_000
_NO_ERROR = ErrorCode.none
_new = tuple.__new__  # of a named tuple, at a third of what calling its class costs


class Commit(NamedTuple):
    """One partition of an OffsetCommit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes


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
        """Another partition keeps the group."""
        self._by_group.pop(group_id, None)

    def commit(self, turn: Turn, group_id: str, commits: list[Commit], retention_ms: int) -> list[ErrorCode]:
        """Write what may be written; for each partition its error or none."""
        now_ms = turn.now_ms
        expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
        errors = [_NO_ERROR] * len(commits)
        entries = turn.decision.entries
        for place, (topic, partition, offset, leader_epoch, metadata, topic_id) in enumerate(commits):
            if metadata and not self._is_taken(turn, metadata):
                errors[place] = ErrorCode.offset_metadata_too_large
                continue
            value = _new(CommittedOffset, (offset, leader_epoch, metadata, now_ms, expire_ms, topic_id))
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

    def delete_topics(self, turn: Turn, is_gone: Callable[[str, bytes], bool]) -> None:
        """Forget what was committed for topics that are no more."""
        for group_id, spots in self._by_group.items():
            gone = [spot for spot, committed in spots.items() if is_gone(spot[0], committed.topic_id)]
            self.delete(turn, group_id, gone)

    def expired(
        self, group_id: str, now_ms: int, retention_ms: int, since_ms: int, is_kept: Callable[[str], bool]
    ) -> Iterator[Spot]:
        """The spots whose time is over; `since_ms`: when the group last had members, or -1."""
        for spot, committed in self.of(group_id).items():
            if is_kept(spot[0]):
                continue
            due_ms = committed.expire_ms
            if due_ms < 0:
                due_ms = max(committed.commit_ms, since_ms) + retention_ms
            if now_ms >= due_ms:
                yield spot


def no_offset() -> CommittedOffset:
    """What a partition has that nobody committed to."""
    return CommittedOffset(-1, -1, "", -1, -1, NO_ID)
