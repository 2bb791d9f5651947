"""The plan of one heartbeat: the changes of its consumer group, before any of them is replayed.

**Invariant:** changes nothing of the group except its memory of the topics already checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Protocol

from tidelog.groups import records
from tidelog.groups.assignors import ASSIGNORS, Subscriber
from tidelog.groups.patterns import Patterns
from tidelog.groups.reconcile import ConsumerMember, Goal
from tidelog.groups.records import MemberValue, PatternValue, Target, TargetValue
from tidelog.groups.turn import Turn

FIRST_EPOCH = 2  # the first epoch of a group, as in Kafka


class Planned(Protocol):
    """The group of a plan, as the journal has it."""

    group_id: str
    epoch: int
    metadata_hash: int
    target_epoch: int
    target_ms: int

    @property
    def members(self) -> Mapping[str, ConsumerMember]: ...

    @property
    def static_ids(self) -> Mapping[str, str]: ...

    @property
    def targets(self) -> Mapping[str, Target]: ...

    @property
    def patterns(self) -> Mapping[str, PatternValue]: ...

    def is_due_for_patterns(self, turn: Turn) -> bool: ...

    def note_patterns(self, turn: Turn) -> None: ...

    def has_new_topics(self, turn: Turn) -> bool: ...

    def note_topics(self, turn: Turn) -> None: ...

    def write_epoch(self, turn: Turn, epoch: int, metadata_hash: int) -> None: ...


class Plan:
    """The changes that one heartbeat makes to its group, before they are replayed."""

    def __init__(self, group: Planned, turn: Turn, before: ConsumerMember, member: ConsumerMember) -> None:
        self.group = group
        self.turn = turn
        self.before = before
        self.member = member
        self.members = {**group.members, member.member_id: member}
        static_id = group.static_ids.get(member.value.instance_id or "")
        if static_id is not None and static_id != member.member_id:
            del self.members[static_id]  # the static member is being replaced
        self.targets = dict(group.targets)
        if static_id is not None and static_id in self.targets and static_id != member.member_id:
            self.targets[member.member_id] = self.targets.pop(static_id)
        self.patterns = dict(group.patterns)
        self.epoch = group.epoch
        self._must_raise = group.epoch == 0

    def topics_of(self, member: ConsumerMember) -> Iterable[str]:
        return topics_of(member.value, self.patterns)

    def record_subscription(self, is_joining: bool) -> bool:
        """Write the member's data if they have changed; return whether its subscription has changed."""
        before, after = self.before.value, self.member.value
        if before != after or is_joining:
            self.turn.write(records.MEMBER, self.group.group_id, after, self.member.member_id)
        has_other_topics = before.topics is not after.topics and set(before.topics) != set(after.topics)
        self._must_raise = self._must_raise or has_other_topics or is_joining
        return has_other_topics or (before.pattern or "") != (after.pattern or "")

    def resolve_patterns(self, patterns: Patterns) -> None:
        """Match the members' patterns against the topics, if either has changed."""
        group, turn = self.group, self.turn
        if not self.patterns and not self.before.value.pattern and not self.member.value.pattern:
            return
        used = dict.fromkeys(member.value.pattern for member in self.members.values() if member.value.pattern)
        for pattern in [pattern for pattern in self.patterns if pattern not in used]:
            turn.write(records.PATTERN, group.group_id, None, pattern)
            del self.patterns[pattern]
        is_stale = group.is_due_for_patterns(turn)
        for pattern in used:
            known = self.patterns.get(pattern)
            if known is not None and not is_stale:
                continue
            topics = patterns.match(pattern, turn.topics)
            if known is None or known.topics != topics:
                found = PatternValue(topics, max(turn.topics.epoch, 0), turn.now_ms)
                turn.write(records.PATTERN, group.group_id, found, pattern)
                self.patterns[pattern] = found
                self._must_raise = True
        if is_stale:
            group.note_patterns(turn)
        if (self.before.value.pattern or "") != (self.member.value.pattern or ""):
            self._must_raise = True

    def maybe_raise_epoch(self) -> None:
        group, turn = self.group, self.turn
        if not self._must_raise and not group.has_new_topics(turn):
            return
        names = dict.fromkeys(name for member in self.members.values() for name in self.topics_of(member))
        metadata_hash = hash_of(turn, names)
        group.note_topics(turn)
        if self._must_raise or metadata_hash != group.metadata_hash:
            self.epoch = max(self.epoch + 1, FIRST_EPOCH)
            group.write_epoch(turn, self.epoch, metadata_hash)

    def maybe_assign(self) -> Goal:
        """The member's target: a new one if the epoch requires it and the last one is not too recent."""
        group, turn = self.group, self.turn
        member_id = self.member.member_id
        interval_ms = turn.settings.of_group(group.group_id, "consumer.assignment.interval.ms")
        is_too_soon = group.target_epoch > 0 and 0 <= turn.now_ms - group.target_ms < interval_ms
        if self.epoch <= group.target_epoch or is_too_soon:
            return Goal(group.target_epoch, self.targets.get(member_id, {}))
        names = turn.settings.words("group.consumer.assignors")
        assign = ASSIGNORS[assignor_of(self.members.values(), names[0])]
        counts: dict[bytes, int] = {}
        subscribers = {each.member_id: self._subscriber(each, counts) for each in self.members.values()}
        targets = assign(subscribers, counts)
        for each_id in self.members:
            target = targets.get(each_id, {})
            if each_id not in self.targets or target != self.targets[each_id]:
                turn.write(records.TARGET_MEMBER, group.group_id, target, each_id)
        turn.write(records.TARGET, group.group_id, TargetValue(self.epoch, turn.now_ms))
        return Goal(self.epoch, targets.get(member_id, {}))

    def _subscriber(self, member: ConsumerMember, counts: dict[bytes, int]) -> Subscriber:
        topics = self.turn.topics
        ids = []
        for name in self.topics_of(member):
            topic_id = topics.id_of(name)
            if topic_id is not None:
                counts[topic_id] = topics.partition_count(name)
                ids.append(topic_id)
        return Subscriber(tuple(ids), member.value.instance_id, self.targets.get(member.member_id, {}))


def assignor_of(members: Iterable[ConsumerMember], default: str) -> str:
    """The assignor that most members ask for."""
    votes: dict[str, int] = {}
    for member in members:
        if member.value.assignor is not None:
            votes[member.value.assignor] = votes.get(member.value.assignor, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else default


def topics_of(value: MemberValue, patterns: Mapping[str, PatternValue]) -> Iterable[str]:
    """The names of the topics that a member subscribes to; some may not exist."""
    found = patterns.get(value.pattern) if value.pattern else None
    return dict.fromkeys((*value.topics, *(found.topics if found is not None else ())))


def hash_of(turn: Turn, names: Iterable[str]) -> int:
    """A number that changes when one of the topics is created, deleted or grows; 0 for no topics."""
    digest = blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic_id = turn.topics.id_of(name)
        if topic_id is not None:
            is_empty = False
            digest.update(topic_id + turn.topics.partition_count(name).to_bytes(4, "big"))
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
