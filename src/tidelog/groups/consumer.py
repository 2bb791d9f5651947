"""A group of the consumer protocol (KIP-848): the coordinator assigns, each member follows at its own pace.

| state       | when                                       | a heartbeat                              |
|-------------|--------------------------------------------|------------------------------------------|
| EMPTY       | it has no members                          | of epoch 0 joins                         |
| ASSIGNING   | its epoch is ahead of its target's         | computes the target, if enough time has  |
|             |                                            | passed since the last one                |
| RECONCILING | a member has not reached its target        | takes that member one step (`reconcile`) |
| STABLE      | all members have reached their targets     | renews the session                       |

The epoch is raised when a member joins, leaves or changes its subscription, or a topic of the group changes.
A member sends its own epoch: a greater epoch, or one before the previous, is fenced; 0 joins (again), -1
leaves, -2 is a static member that will return. A member is also fenced if it is silent for the session
timeout, or does not revoke its partitions within its rebalance timeout.

**Invariant:** a partition is assigned to one member at a time; a member's epoch never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from tidelog.base.decision import Entry
from tidelog.base.limits import MATCHES_AT_ONCE_MAX, PATTERNS_PAUSE_LONG_MS, PATTERNS_PAUSE_MS
from tidelog.groups import records
from tidelog.groups.facts import write_entry
from tidelog.groups.heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
    believed,
    check_epoch,
    has_same,
    is_all_of,
    updated,
)
from tidelog.groups.patterns import Patterns
from tidelog.groups.plan import Plan, topics_of
from tidelog.groups.reconcile import ConsumerMember, Goal, MemberState, Reported, reconcile
from tidelog.groups.records import (
    ConsumerValue,
    CurrentValue,
    MemberValue,
    Owned,
    PatternValue,
    Target,
    TargetValue,
)
from tidelog.groups.turn import Alarm, GroupTimer, Refused, Turn
from tidelog.protocol.errors import ErrorCode

SESSION, REBALANCE, REJOIN, SYNC = "session", "rebalance", "rejoin", "sync"


class State(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


_BLANK = MemberValue(None, None, "", "", (), None, -1, None, None)


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target_epoch = 0
        self.target_ms = 0
        self.targets: dict[str, Target] = {}
        self.patterns: dict[str, PatternValue] = {}
        self.static_ids: dict[str, str] = {}  # member id by instance id
        self.owners: dict[
            bytes, dict[int, str]
        ] = {}  # the member that has a partition, assigned or being revoked
        self._unheard: set[str] = set()  # members that may not know their latest assignment
        self._timers: dict[tuple[str, str], GroupTimer] = {}  # by kind and member
        self._topics_epoch = -1  # the epoch of the topics at the last check
        self._resolved_epoch = -1  # the epoch of the topics when patterns were last matched, and the time
        self._resolved_ms = 0

    # Queries.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    def subscribed_topics(self) -> Iterable[str]:
        members = self.members.values()
        return dict.fromkeys(name for member in members for name in topics_of(member.value, self.patterns))

    def check_commit(
        self, turn: Turn, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]
    ) -> None:
        """Raise Refused unless the member may commit; anybody may commit to an empty group."""
        if epoch < 0 and self.is_empty:
            return
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.unknown_member_id)
        if epoch == member.epoch:
            return
        stale = ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch
        if epoch > member.epoch:
            raise Refused(stale)
        # The epoch is outdated; a commit for partitions owned continuously since then is accepted (KIP-1251).
        for topic, index in partitions:
            topic_id = turn.topics.id_of(topic)
            owned = member.assigned.get(topic_id or b"", {})
            given = owned.get(index, member.revoking.get(topic_id or b"", {}).get(index))
            if given is None or epoch < given:
                raise Refused(stale)

    # Replay: each record sets the state of its key, in any order.

    def replay_group(self, value: ConsumerValue) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def replay_target(self, value: TargetValue) -> None:
        self.target_epoch, self.target_ms = value.epoch, value.assigned_ms

    def replay_target_member(self, member_id: str, target: Target | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replay_member(self, member_id: str, value: MemberValue | None) -> None:
        known = self.members.get(member_id)
        instance_id = known.value.instance_id if known is not None else None
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        if value is None:
            if known is not None:
                self._move(known, {}, {})
                del self.members[member_id]
            self._unheard.discard(member_id)
            return
        self.members[member_id] = (known or ConsumerMember(member_id, value))._replace(value=value)
        if value.instance_id is not None:
            self.static_ids[value.instance_id] = member_id

    def replay_current(self, member_id: str, current: CurrentValue | None) -> None:
        if current is None and member_id not in self.members:
            return
        known = self.members.get(member_id, ConsumerMember(member_id, _BLANK))
        if current is None:
            current = CurrentValue(LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, {}, {})
        self._move(known, current.assigned, current.revoking)
        self.members[member_id] = ConsumerMember(
            member_id,
            known.value,
            current.epoch,
            current.previous_epoch,
            MemberState(current.state),
            current.assigned,
            current.revoking,
        )

    def _move(self, member: ConsumerMember, assigned: Owned, revoking: Owned) -> None:
        """Update the owners: the member's assigned and revoking partitions have changed."""
        member_id = member.member_id
        for topic_id in dict.fromkeys((*member.assigned, *member.revoking, *assigned, *revoking)):
            before, after = member.assigned.get(topic_id, {}), assigned.get(topic_id, {})
            had, has = member.revoking.get(topic_id, {}), revoking.get(topic_id, {})
            if before is not after:
                had, has = {**before, **had}, {**after, **has}
            if had.keys() == has.keys():
                continue
            owners = self.owners.setdefault(topic_id, {})
            for index in had:
                if index not in has and index not in after and owners.get(index) == member_id:
                    del owners[index]
            owners.update({index: member_id for index in has if index not in had})
            if not owners:
                del self.owners[topic_id]

    def replay_pattern(self, pattern: str, value: PatternValue | None) -> None:
        if value is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = value

    def write_tombstones(self, turn: Turn) -> None:
        """Write the tombstones of all records of the group."""
        for member_id in self.members:
            self._write_removal(turn, member_id)
        for pattern in self.patterns:
            turn.write(records.PATTERN, self.group_id, None, pattern)
        turn.write(records.TARGET, self.group_id, None)
        turn.write(records.CONSUMER, self.group_id, None)
        self.stop(turn)

    def entries(self) -> list[Entry]:
        """All records of the group, for a rewrite of the journal."""
        group_id, members = self.group_id, self.members.values()
        epoch = ConsumerValue(self.epoch, self.metadata_hash)
        target = TargetValue(self.target_epoch, self.target_ms)
        return [
            *(write_entry(records.MEMBER, group_id, each.value, each.member_id) for each in members),
            write_entry(records.CONSUMER, group_id, epoch),
            *(write_entry(records.PATTERN, group_id, found, text) for text, found in self.patterns.items()),
            *(write_entry(records.TARGET_MEMBER, group_id, part, who) for who, part in self.targets.items()),
            write_entry(records.TARGET, group_id, target),
            *(write_entry(records.CURRENT, group_id, each.current, each.member_id) for each in members),
        ]

    def resume(self, turn: Turn) -> None:
        """The group has been loaded: restart the session and the revocation timeout of every member. A member
        may not have received its last assignment."""
        self._unheard.update(self.members)
        for member in self.members.values():
            self.renew(turn, member)
            if member.state is MemberState.UNREVOKED:
                kind = REJOIN if member.is_classic else REBALANCE
                self.set_timer(turn, kind, member.member_id, member.value.rebalance_timeout_ms)

    # Heartbeats.

    def heartbeat(self, turn: Turn, beat: Heartbeat, patterns: Patterns) -> HeartbeatAnswer:
        self._check_room(turn, beat)
        known = self._speaking_member(turn, beat)
        before = known or ConsumerMember(beat.member_id or turn.new_member_id(), _BLANK)
        value = updated(before.value, beat)
        member = before if value is before.value else before._replace(value=value)
        is_known = member is known and self.members.get(member.member_id) is member
        reported = believed(beat, before, before.member_id in self._unheard)
        if not is_known or not self._is_shared_out(turn):
            member = self.follow(turn, before, member, reported, patterns, is_joining=known is None)
        elif not member.is_reconciled(self.target_epoch):
            goal = Goal(self.target_epoch, self.targets.get(member.member_id, {}))
            member = self._take_step(turn, member, goal, self.patterns, False, reported)
        self.renew(turn, member)
        has_moved = member.assigned is not before.assigned and not has_same(member, before)
        must_tell = beat.epoch == JOIN_EPOCH or beat.is_full or has_moved
        self._mark_told(member, beat.reported, must_tell)
        return HeartbeatAnswer(
            ErrorCode.none,
            None,
            member.member_id,
            member.epoch,
            turn.settings.of_group(self.group_id, "consumer.heartbeat.interval.ms"),
            member.assigned if must_tell or member.member_id in self._unheard else None,
        )

    def _mark_told(self, member: ConsumerMember, reported: Reported, is_told: bool) -> None:
        """Record whether the member knows its assignment. Answers get lost, and not every client repeats its
        full state: the assignment is sent until the member reports it."""
        if reported is not None and is_all_of(reported, member.assigned):
            self._unheard.discard(member.member_id)
        elif is_told:
            self._unheard.add(member.member_id)

    def _is_shared_out(self, turn: Turn) -> bool:
        """Whether the target is current and no topic has changed: true of almost all heartbeats."""
        return (
            self.epoch == self.target_epoch
            and not self.has_new_topics(turn)
            and not (self.patterns and self.is_due_for_patterns(turn))
        )

    def has_new_topics(self, turn: Turn) -> bool:
        return turn.topics.epoch != self._topics_epoch

    def note_topics(self, turn: Turn) -> None:
        self._topics_epoch = turn.topics.epoch

    def is_due_for_patterns(self, turn: Turn) -> bool:
        if turn.topics.epoch == self._resolved_epoch:
            return False
        is_much = len(self.patterns) * turn.topics.count > MATCHES_AT_ONCE_MAX
        pause_ms = PATTERNS_PAUSE_LONG_MS if is_much else PATTERNS_PAUSE_MS
        return self._resolved_epoch < 0 or turn.uptime_ms - self._resolved_ms >= pause_ms

    def note_patterns(self, turn: Turn) -> None:
        self._resolved_epoch, self._resolved_ms = turn.topics.epoch, turn.uptime_ms

    def forget_checks(self) -> None:
        """Forget the last check of the topics, because its result was not written: check again at the next
        heartbeat."""
        self._topics_epoch = self._resolved_epoch = -1

    def _check_room(self, turn: Turn, beat: Heartbeat) -> None:
        if beat.member_id in self.members or beat.instance_id in self.static_ids:
            return
        size_max = turn.settings.number("group.consumer.max.size")
        if len(self.members) >= size_max:
            raise Refused(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def _speaking_member(self, turn: Turn, beat: Heartbeat) -> ConsumerMember | None:
        """The member that sent a heartbeat; None if it is new. Raises Refused if the ids do not match."""
        if beat.instance_id is None:
            if beat.epoch == JOIN_EPOCH:
                return self.members.get(beat.member_id)
            known = self._checked_dynamic(beat)
            check_epoch(known, beat)
            return known
        static = self.static_member(beat.instance_id)
        if beat.epoch != JOIN_EPOCH:
            static = self._checked_static(beat)
            check_epoch(static, beat)
            return static
        if static is None or static.member_id == beat.member_id:
            return static
        if not static.is_classic and static.epoch != STATIC_LEAVE_EPOCH:
            raise Refused(
                ErrorCode.unreleased_instance_id,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group "
                f"because the instance id is owned by {static.member_id} member.",
            )
        return self.replace(turn, static, beat.member_id or turn.new_member_id())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_ids.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def _checked_dynamic(self, beat: Heartbeat) -> ConsumerMember:
        member = self.members.get(beat.member_id)
        if member is None:
            raise Refused(
                ErrorCode.unknown_member_id,
                f"Member {beat.member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _checked_static(self, beat: Heartbeat) -> ConsumerMember:
        static = self.static_member(beat.instance_id)
        if static is None:
            raise Refused(ErrorCode.unknown_member_id, f"Instance id {beat.instance_id} is unknown.")
        if static.member_id != beat.member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by member "
                f"{static.member_id}.",
            )
        return static

    def replace(self, turn: Turn, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member by its new process, which gets its partitions."""
        self._write_removal(turn, old.member_id)
        self._stop_timers(turn, old.member_id)
        member = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        turn.write(records.MEMBER, self.group_id, member.value, member_id)
        turn.write(records.TARGET_MEMBER, self.group_id, self.targets.get(old.member_id, {}), member_id)
        self._write_current(turn, member)
        return member

    def follow(
        self,
        turn: Turn,
        before: ConsumerMember,
        member: ConsumerMember,
        reported: Reported,
        patterns: Patterns,
        is_joining: bool,
    ) -> ConsumerMember:
        """Write the member's changes, raise the epoch and compute a new target if required, and take the
        member one step."""
        plan = Plan(self, turn, before, member)
        has_changed = plan.record_subscription(is_joining)
        plan.resolve_patterns(patterns)
        plan.maybe_raise_epoch()
        goal = plan.maybe_assign()
        if has_changed or not member.is_reconciled(goal.epoch):
            return self._take_step(turn, member, goal, plan.patterns, has_changed, reported)
        return member

    def _take_step(
        self,
        turn: Turn,
        member: ConsumerMember,
        goal: Goal,
        patterns: Mapping[str, PatternValue],
        has_changed: bool,
        reported: Reported,
    ) -> ConsumerMember:
        ids = [turn.topics.id_of(name) for name in topics_of(member.value, patterns)]
        subscribed = frozenset(topic_id for topic_id in ids if topic_id is not None)
        stepped = reconcile(member, goal, subscribed, has_changed, reported, self.owners)
        if stepped != member:
            self._write_current(turn, stepped)
            self._time_revocation(turn, stepped)
        return stepped

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether other members still have partitions of the member's target."""
        target = self.targets.get(member.member_id, {})
        return any(
            self.owners.get(topic_id, {}).get(index, member.member_id) != member.member_id
            for topic_id, indexes in target.items()
            for index in indexes
        )

    def _time_revocation(self, turn: Turn, member: ConsumerMember) -> None:
        if member.state is not MemberState.UNREVOKED:
            self.stop_timer(turn, REBALANCE, member.member_id)
        elif not member.is_classic:  # a classic member rejoins instead
            self.set_timer(turn, REBALANCE, member.member_id, member.value.rebalance_timeout_ms)

    def _write_current(self, turn: Turn, member: ConsumerMember) -> None:
        turn.write(records.CURRENT, self.group_id, member.current, member.member_id)

    def _write_removal(self, turn: Turn, member_id: str) -> None:
        for kind in (records.CURRENT, records.TARGET_MEMBER, records.MEMBER):
            turn.write(kind, self.group_id, None, member_id)

    # Leaving.

    def leaving_member(self, beat: Heartbeat) -> ConsumerMember:
        """The member that a heartbeat removes; raises Refused if it is not in the group."""
        if beat.instance_id is not None:
            return self._checked_static(beat)
        return self._checked_dynamic(beat)

    def leave_for_restart(self, turn: Turn, member: ConsumerMember) -> None:
        """A static member leaves and will return within its session: its partitions are kept."""
        self._write_current(turn, member._replace(epoch=STATIC_LEAVE_EPOCH, revoking={}))
        self.stop_timer(turn, REBALANCE, member.member_id)

    def fence(self, turn: Turn, member_ids: Collection[str]) -> None:
        """Remove members; the others get their partitions."""
        for member_id in member_ids:
            self._write_removal(turn, member_id)
            self._stop_timers(turn, member_id)
        if self.patterns:
            left = [member for member in self.members.values() if member.member_id not in member_ids]
            kept = {member.value.pattern for member in left}
            for pattern in [pattern for pattern in self.patterns if pattern not in kept]:
                turn.write(records.PATTERN, self.group_id, None, pattern)
        self.write_epoch(turn, self.epoch + 1, self.metadata_hash)

    def is_due(self, alarm: Alarm) -> bool:
        """Whether an alarm is still valid: its cause has not changed since it was set."""
        member = self.members.get(alarm.member_id)
        if member is None:
            return False
        if alarm.kind == REBALANCE:
            return member.state is MemberState.UNREVOKED and not member.is_classic
        return alarm.kind == SESSION or member.is_classic

    def write_epoch(self, turn: Turn, epoch: int, metadata_hash: int) -> None:
        turn.write(records.CONSUMER, self.group_id, ConsumerValue(epoch, metadata_hash))

    # Timers.

    def renew(self, turn: Turn, member: ConsumerMember) -> None:
        """Restart the member's session."""
        if member.value.classic is not None:
            timeout_ms = member.value.classic.session_timeout_ms
        else:
            timeout_ms = turn.settings.of_group(self.group_id, "consumer.session.timeout.ms")
        self.set_timer(turn, SESSION, member.member_id, timeout_ms)

    def set_timer(self, turn: Turn, kind: str, member_id: str, delay_ms: int) -> None:
        timer = self._timers.get((kind, member_id))
        if timer is None:
            timer = self._timers[kind, member_id] = GroupTimer(Alarm(kind, self.group_id, member_id))
        turn.set_timer(timer, delay_ms)

    def set_timer_once(self, turn: Turn, kind: str, member_id: str, delay_ms: int) -> None:
        """Set a timer unless it is running."""
        timer = self._timers.get((kind, member_id))
        if timer is None or not timer.is_set:
            self.set_timer(turn, kind, member_id, delay_ms)

    def stop_timer(self, turn: Turn, kind: str, member_id: str) -> None:
        timer = self._timers.pop((kind, member_id), None)
        if timer is not None:
            turn.timers.stop(timer)

    def _stop_timers(self, turn: Turn, member_id: str) -> None:
        for kind in (SESSION, REBALANCE, REJOIN, SYNC):
            self.stop_timer(turn, kind, member_id)

    def stop(self, turn: Turn) -> None:
        for timer in self._timers.values():
            turn.timers.stop(timer)
        self._timers.clear()
