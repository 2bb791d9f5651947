"""The groups of one partition of `__consumer_offsets`: which there are, and who of them a request is for.

Each command takes a turn and a ticket, and leaves in the turn's decision what is to be written and who is to
be answered. What is written takes effect by `GroupState.replay`, here and after a restart.

**Invariant:** a request that is refused, or whose decision cannot be written, leaves its group as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.base.decision import Entry, Ticket
from tidelog.base.limits import (
    GROUP_METADATA_SIZE_MAX,
    OFFSETS_LOOKED_AT_MAX,
)
from tidelog.base.timers import Timers
from tidelog.groups import conversion, records
from tidelog.groups.assignors import ASSIGNORS
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Member, Sync, SyncAnswer
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.given import GivenIds
from tidelog.groups.heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.groups.offsets import MINUTE_MS, Commit, Spot, Sweep, is_of_another
from tidelog.groups.patterns import Patterns
from tidelog.groups.records import CommittedOffset
from tidelog.groups.roster import State
from tidelog.groups.state import Group, GroupState
from tidelog.groups.turn import Alarm, GroupTimer, Refused, Topics, Turn
from tidelog.protocol.embedded import read_subscription
from tidelog.protocol.errors import ErrorCode, MalformedRequest

EXPIRY = "offsets expiry"
EXPIRY_PAUSE_MS = 100  # before what is left expires


class CommitAsk(NamedTuple):
    """An OffsetCommit request, as far as its group is concerned."""

    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int  # generation or member epoch; -1 for somebody who is in no group
    retention_ms: int
    knows_epochs: bool  # the version has errors for consumer groups
    commits: list[Commit]


class GroupCoordinator(GroupState):
    def __init__(self, patterns: Patterns, belongs: Callable[[str], bool] | None = None) -> None:
        super().__init__(belongs)
        self.timers: Timers[Alarm] = Timers()
        self._patterns = patterns
        self._expiry = GroupTimer(Alarm(EXPIRY, "", ""))
        self._unexpired: list[str] = []  # groups that have yet to be looked at, of those there were
        self._unlooked: list[Spot] = []  # what is left of the last of them
        self.given = GivenIds()

    def resume(self, turn: Turn) -> None:
        """Everything is loaded: sessions begin."""
        for group in self.groups.values():
            group.resume(turn)
        self._await_expiry(turn)

    def close(self, turn: Turn) -> None:
        """Groups that another partition keeps are served there from now on: none of them changes here."""
        for group_id in self.strangers():
            self._stop_group(turn, group_id)
        turn.decision.entries.append(Entry(records.CLOSED_KEY, records.CLOSED_VALUE))

    def take_in(self, turn: Turn, entries: Iterable[Entry]) -> None:
        """Write what another partition has of groups that belong here. Nobody is served by them until all of
        it is written, so what an earlier attempt has left here is not timed."""
        for entry in entries:
            key = records.read_key(entry.key)
            is_offset = key.kind in (records.OFFSET_0, records.OFFSET)
            if is_offset and (key.name, key.partition) in self.offsets.of(key.group_id):
                continue  # it is the same, or newer
            if not is_offset:
                self._stop_group(turn, key.group_id)
            turn.decision.entries.append(entry)

    def _stop_group(self, turn: Turn, group_id: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.stop(turn, ErrorCode.not_coordinator)
        elif group is not None:
            group.stop(turn)

    def resume_group(self, turn: Turn, group_id: str) -> None:
        """A group has come from another partition: its sessions begin."""
        group = self.groups.get(group_id)
        if group is not None:
            group.resume(turn)

    def _take_back(self, turn: Turn, group_id: str) -> None:
        """A request is refused: if it had decided something by then, its group is what it was."""
        former = turn.formers[group_id]
        if turn.decision.entries:
            turn.decision.entries.clear()
            if not isinstance(former, ClassicGroup):  # which refuses before it changes anything
                self.revert(turn, group_id, former)

    # Classic groups.

    def join(self, turn: Turn, asked: Join, ticket: Ticket) -> None:
        turn.note_former(asked.group_id, self.groups.get(asked.group_id))
        try:
            self._join(turn, asked, ticket)
        except Refused as refusal:
            self._take_back(turn, asked.group_id)
            turn.decision.answer(ticket, JoinAnswer(refusal.code, asked.member_id))

    def _join(self, turn: Turn, asked: Join, ticket: Ticket) -> None:
        least_ms = turn.settings.number("group.min.session.timeout.ms")
        most_ms = turn.settings.number("group.max.session.timeout.ms")
        if not least_ms <= asked.session_timeout_ms <= most_ms:
            raise Refused(ErrorCode.invalid_session_timeout)
        if sum(len(metadata) for _, metadata in asked.protocols) > GROUP_METADATA_SIZE_MAX:
            raise Refused(ErrorCode.message_too_large)
        group = self.groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            self._bury(turn, group)
            group = None
        if isinstance(group, ConsumerGroup):
            group = self._maybe_downgrade(turn, group, asked)
        if isinstance(group, ConsumerGroup):
            answer = conversion.join(turn, group, asked, self._patterns)
            turn.check_size()
            turn.decision.answer(ticket, answer)
            return
        if group is None:
            if asked.member_id:
                raise Refused(ErrorCode.unknown_member_id)
            group = ClassicGroup(asked.group_id, turn.now_ms)
        group.join(turn, asked, ticket)
        self.groups[asked.group_id] = group
        self._bound_pending(turn)

    def _bound_pending(self, turn: Turn) -> None:
        """Of ids that nobody has joined with yet, the oldest go; who has one asks for another."""
        while (excess := turn.given.excess) is not None:
            oldest = self.groups.get(excess[0])
            assert isinstance(oldest, ClassicGroup)
            oldest.on_pending_end(turn, excess[1])
            self._maybe_forget(oldest)

    def _maybe_downgrade(self, turn: Turn, group: ConsumerGroup, asked: Join) -> Group:
        """A classic member that takes the place of the last one with the consumer protocol finds a classic
        group; the place is not kept."""
        replaced = group.static_member(asked.instance_id)
        if asked.member_id or replaced is None or replaced.is_classic:
            return group
        is_alone = len(group.members) == 1 and conversion.may_downgrade(turn)
        if not is_alone and not conversion.must_downgrade(turn, group, [replaced.member_id]):
            return group
        conversion.check_protocols(group, asked)  # so that nothing can refuse it once the group is lowered
        lowered = self.groups[group.group_id] = conversion.downgrade(turn, group, [replaced.member_id])
        return lowered

    def sync(self, turn: Turn, asked: Sync, ticket: Ticket) -> None:
        turn.note_former(asked.group_id, self.groups.get(asked.group_id))
        try:
            group = self._classic_or_consumer(asked.group_id)
            if isinstance(group, ConsumerGroup):
                turn.decision.answer(ticket, conversion.sync(turn, group, asked))
            else:
                group.sync(turn, asked, ticket)
        except Refused as refusal:
            turn.decision.answer(ticket, SyncAnswer(refusal.code))

    def heartbeat(self, turn: Turn, asked: Sync, ticket: Ticket) -> None:
        try:
            group = self._classic_or_consumer(asked.group_id)
            if isinstance(group, ConsumerGroup):
                error = conversion.heartbeat(turn, group, asked)
            else:
                error = group.heartbeat(turn, asked.member_id, asked.instance_id, asked.generation)
        except Refused as refusal:
            error = refusal.code
        turn.decision.answer(ticket, error)

    def _classic_or_consumer(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.unknown_member_id)
        return group

    def leave(self, turn: Turn, group_id: str, leaving: list[Leaving], ticket: Ticket) -> None:
        """Answered with one error for each; all UNKNOWN_MEMBER_ID if there is no such group."""
        group = self.groups.get(group_id)
        turn.note_former(group_id, group)
        if group is None:
            turn.decision.answer(ticket, [ErrorCode.unknown_member_id] * len(leaving))
        elif isinstance(group, ConsumerGroup):
            members, errors = conversion.leaving_members(group, leaving)
            if members:
                self._fence(turn, group, [member.member_id for member in members])
            turn.decision.answer(ticket, errors)
        else:
            turn.decision.answer(ticket, [group.leave(turn, each) for each in leaving])
            self._maybe_forget(group)

    # Consumer groups.

    def consumer_heartbeat(self, turn: Turn, beat: Heartbeat, ticket: Ticket) -> None:
        turn.note_former(beat.group_id, self.groups.get(beat.group_id))
        try:
            self._check_heartbeat(turn, beat)
            group = self._consumer_group(turn, beat)
            if beat.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                answer = self._leave(turn, group, beat)
            else:
                answer = self._beat(turn, group, beat)
        except Refused as refusal:
            self._take_back(turn, beat.group_id)
            answer = HeartbeatAnswer(refusal.code, refusal.message)
        turn.decision.answer(ticket, answer)

    def _beat(self, turn: Turn, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatAnswer:
        try:
            answer = group.heartbeat(turn, beat, self._patterns)
            turn.check_size()
        except Refused:
            if self.groups.get(group.group_id) is not group:  # made for this, and timed: nobody will know it
                group.stop(turn)
            raise
        self._replace(turn, group)
        return answer

    def _leave(self, turn: Turn, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatAnswer:
        member = group.leaving_member(beat)
        if beat.epoch == STATIC_LEAVE_EPOCH:
            group.step_out(turn, member)
        else:
            self._fence(turn, group, [member.member_id])
        return HeartbeatAnswer(ErrorCode.none, None, member.member_id, beat.epoch)

    def _replace(self, turn: Turn, group: ConsumerGroup) -> None:
        """A heartbeat was taken by its group, which may have been a classic one until then."""
        former = self.groups.get(group.group_id)
        if former is not group:
            if isinstance(former, ClassicGroup):
                former.stop(turn, ErrorCode.rebalance_in_progress)
            self.groups[group.group_id] = group
            for member in group.members.values():
                group.renew(turn, member)

    def _check_heartbeat(self, turn: Turn, beat: Heartbeat) -> None:
        if beat.assignor is not None and beat.assignor not in turn.settings.words("group.consumer.assignors"):
            supported = ", ".join(sorted(ASSIGNORS))
            raise Refused(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {supported}.",
            )
        if beat.pattern:
            self._patterns.check(beat.pattern)

    def _consumer_group(self, turn: Turn, beat: Heartbeat) -> ConsumerGroup:
        """The group of a heartbeat: there, made anew, or made of a classic one."""
        group = self.groups.get(beat.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if beat.epoch != JOIN_EPOCH:
            reason = "not found" if group is None else "is not a consumer group"
            text = f"Group {beat.group_id} {reason}."
            raise Refused(ErrorCode.group_id_not_found, text)
        if group is None:
            return ConsumerGroup(beat.group_id)
        if group.is_empty:
            if group.stored is not None:
                turn.write(records.CLASSIC, group.group_id, None)
            return ConsumerGroup(beat.group_id)
        return conversion.upgrade(turn, group)

    def _fence(self, turn: Turn, group: ConsumerGroup, member_ids: list[str]) -> None:
        """Remove members of a consumer group; it becomes a classic one if only such members are left."""
        if conversion.must_downgrade(turn, group, member_ids):
            self.groups[group.group_id] = conversion.downgrade(turn, group, member_ids)
        else:
            group.fence(turn, member_ids)

    # Offsets.

    def commit(self, turn: Turn, asked: CommitAsk, ticket: Ticket) -> None:
        try:
            self._check_commit(turn, asked)
        except Refused as refusal:
            turn.decision.answer(ticket, [refusal.code] * len(asked.commits))
            return
        errors = self.offsets.commit(turn, asked.group_id, asked.commits, asked.retention_ms)
        turn.decision.answer(ticket, errors)

    def _check_commit(self, turn: Turn, asked: CommitAsk) -> None:
        group = self.groups.get(asked.group_id)
        if group is None:
            if asked.epoch >= 0:
                code = ErrorCode.group_id_not_found if asked.knows_epochs else ErrorCode.illegal_generation
                raise Refused(code)
        elif isinstance(group, ClassicGroup):
            group.check_commit(turn, asked.member_id, asked.instance_id, asked.epoch)
        else:
            member = group.members.get(asked.member_id)
            if member is not None and not member.is_classic and not asked.knows_epochs:
                raise Refused(ErrorCode.unsupported_version)
            spots = ((commit.topic, commit.partition) for commit in asked.commits)
            group.check_commit(turn, asked.member_id, asked.epoch, spots)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may ask for offsets; who says nothing of itself may."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
            return ErrorCode.none
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if epoch == member.epoch else ErrorCode.stale_member_epoch

    def delete_offsets(self, turn: Turn, group_id: str, spots: list[Spot], ticket: Ticket) -> None:
        """Answered with the group's error, and one for each partition."""
        group = self.groups.get(group_id)
        if group is None:
            turn.decision.answer(ticket, (ErrorCode.group_id_not_found, []))
            return
        is_busy = isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol
        if is_busy:
            turn.decision.answer(ticket, (ErrorCode.non_empty_group, []))
            return
        errors = []
        subscribed = frozenset(self._subscribed_topics(group))
        for topic, partition in spots:
            if topic in subscribed:
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            if (topic, partition) in self.offsets.of(group_id):
                self.offsets.delete(turn, group_id, [(topic, partition)])
            errors.append(ErrorCode.none)
        turn.decision.answer(ticket, (ErrorCode.none, errors))

    def delete_group(self, turn: Turn, group_id: str, ticket: Ticket) -> None:
        group = self.groups.get(group_id)
        error = ErrorCode.none
        if group is None:
            error = ErrorCode.group_id_not_found
        elif not group.is_empty:
            error = ErrorCode.non_empty_group
        else:
            self._remove(turn, group)
        turn.decision.answer(ticket, error)

    def _remove(self, turn: Turn, group: Group) -> None:
        """With all that it committed; a classic group that was never written is gone with its last offset."""
        turn.note_former(group.group_id, group)
        self.offsets.delete(turn, group.group_id, list(self.offsets.of(group.group_id)))
        self._bury(turn, group)
        if isinstance(group, ClassicGroup):
            group.stop(turn, ErrorCode.group_id_not_found)
            del self.groups[group.group_id]

    def _bury(self, turn: Turn, group: Group) -> None:
        if isinstance(group, ConsumerGroup):
            group.bury(turn)
        elif group.stored is not None:
            turn.write(records.CLASSIC, group.group_id, None)

    def sweep(self, turn: Turn, sweep: Sweep, is_gone: Callable[[str, CommittedOffset], bool]) -> None:
        """Forget some of what was committed for topics that are no more."""
        gone = [(group_id, spot) for group_id, spot, each in sweep.next_piece() if is_gone(spot[0], each)]
        for group_id, spot in gone:
            self.offsets.delete(turn, group_id, [spot])

    def committed(self, topics: Topics, group_id: str, spot: Spot) -> CommittedOffset | None:
        """What a group has committed for a topic; not what it has for another one that had its name."""
        found = self.offsets.of(group_id).get(spot)
        return None if found is None or is_of_another(topics, spot[0], found) else found

    # Time.

    def tick(self, turn: Turn) -> None:
        """Let the next of what is due happen."""
        alarm = self.timers.pop_due(turn.uptime_ms)
        if alarm is None:
            return
        if alarm.kind == EXPIRY:
            is_done = self._expire(turn)
            self._await_expiry(turn, 0 if is_done else EXPIRY_PAUSE_MS)
            return
        group = self.groups.get(alarm.group_id)
        turn.note_former(alarm.group_id, group)
        if isinstance(group, ClassicGroup):
            group.on_alarm(turn, alarm)
            self._maybe_forget(group)
        elif group is not None and group.is_due(alarm):
            self._fence(turn, group, [alarm.member_id])

    def _await_expiry(self, turn: Turn, delay_ms: int = 0) -> None:
        turn.set_timer(self._expiry, delay_ms or turn.settings.number("offsets.retention.check.interval.ms"))

    def _expire(self, turn: Turn) -> bool:
        """Forget what nobody has asked for in time; whether that was all."""
        retention_ms = turn.settings.number("offsets.retention.minutes") * MINUTE_MS
        self._unexpired = self._unexpired or list(self.groups)
        looked_at = 0
        while self._unexpired and looked_at < OFFSETS_LOOKED_AT_MAX:
            group = self.groups.get(self._unexpired[-1])
            if group is None:
                self._unexpired.pop()
                self._unlooked = []
                continue
            spots = self._unlooked or list(self.offsets.of(group.group_id))
            piece, self._unlooked = spots[:OFFSETS_LOOKED_AT_MAX], spots[OFFSETS_LOOKED_AT_MAX:]
            looked_at += len(piece) + 1
            self._expire_piece(turn, group, piece, retention_ms)
            if not self._unlooked:
                self._unexpired.pop()
        return not self._unexpired

    def _expire_piece(self, turn: Turn, group: Group, piece: list[Spot], retention_ms: int) -> None:
        gone = list(self._expired(turn, group, piece, retention_ms))
        is_last = not self._unlooked and len(gone) == len(self.offsets.of(group.group_id))
        if group.is_empty and is_last:
            self._remove(turn, group)
        else:
            self.offsets.delete(turn, group.group_id, gone)

    def _expired(self, turn: Turn, group: Group, spots: list[Spot], retention_ms: int) -> Iterator[Spot]:
        since_ms = -1
        if isinstance(group, ClassicGroup):
            if group.members and (not group.uses_consumer_protocol or group.state is not State.STABLE):
                return iter(())
            since_ms = group.state_ms if group.stored is not None and group.is_empty else -1
        subscribed = frozenset(self._subscribed_topics(group))
        return self.offsets.expired(
            group.group_id, spots, turn.now_ms, retention_ms, since_ms, lambda topic: topic in subscribed
        )

    @staticmethod
    def _subscribed_topics(group: Group) -> Iterator[str]:
        if isinstance(group, ConsumerGroup):
            yield from group.subscribed_topics()
        else:
            for member in group.members.values():
                yield from _topics_of(member)

    def _maybe_forget(self, group: ClassicGroup) -> None:
        """A group that nobody is in, or is about to join, and that the journal has nothing of."""
        is_known = group.stored is not None or group.group_id in self.offsets.group_ids()
        if group.state is State.EMPTY and not group.pending and not is_known:
            self.groups.pop(group.group_id, None)


def _topics_of(member: Member) -> tuple[str, ...]:
    try:
        return read_subscription(member.protocols[0][1]).topics if member.protocols else ()
    except MalformedRequest:
        return ()
