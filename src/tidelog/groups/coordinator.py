"""The groups of one partition of `__consumer_offsets`, and the commands that clients send to them.

Each command gets a turn and a ticket, and puts into the turn's decision the records to write and the answers
to send. A written record takes effect by `GroupState.replay`, at run time as after a restart.

**Invariant:** a request that is refused, or whose decision cannot be written, leaves its group unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidelog.base.decision import Entry, Ticket
from tidelog.base.limits import EXPIRY_PAUSE_MS, GROUP_METADATA_SIZE_MAX, OFFSETS_LOOKED_AT_MAX
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
from tidelog.groups.offsets import MINUTE_MS, CommitAsk, Spot, Sweep, TransactionCommit, is_of_another
from tidelog.groups.patterns import Patterns
from tidelog.groups.records import CommittedOffset
from tidelog.groups.roster import State
from tidelog.groups.state import Group, GroupState
from tidelog.groups.turn import Alarm, GroupTimer, Refused, Topics, Turn
from tidelog.protocol.embedded import read_subscription
from tidelog.protocol.errors import ErrorCode, MalformedRequest

EXPIRY = "offsets expiry"


class GroupCoordinator(GroupState):
    def __init__(self, patterns: Patterns, belongs: Callable[[str], bool] | None = None) -> None:
        super().__init__(belongs)
        self.timers: Timers[Alarm] = Timers()
        self._patterns = patterns
        self._expiry = GroupTimer(Alarm(EXPIRY, "", ""))
        self._unexpired: list[str] = []  # groups that the current expiry pass has not reached yet
        self._unchecked: list[Spot] = []  # the unchecked offsets of the last group
        self.given = GivenIds()

    def resume(self, turn: Turn) -> None:
        """Loading is complete: start the sessions."""
        for group in self.groups.values():
            group.resume(turn)
        self._await_expiry(turn)

    def close(self, turn: Turn) -> None:
        """Close this shard to groups that another partition keeps now: none of them changes here any more."""
        for group_id in self.strangers():
            self._stop_group(turn, group_id)
        turn.decision.entries.append(Entry(records.CLOSED_KEY, records.CLOSED_VALUE))

    def stop(self, turn: Turn) -> None:
        """The partition has another leader: fail the waiting members."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.stop(turn, ErrorCode.not_coordinator)

    def undo(self, turn: Turn, refused: Turn, code: ErrorCode) -> None:
        """A turn's decision cannot be written: revert its groups to their state in the journal."""
        for group_id, former in refused.formers.items():
            self.revert(turn, group_id, former, code)

    def take_in(self, turn: Turn, entries: Iterable[Entry]) -> None:
        """Write another partition's records of groups that belong here. These groups are served only when all
        of their records are written, so leftovers of an earlier attempt have no timers."""
        for entry in entries:
            key = records.read_key(entry.key)
            is_offset = key.kind in (records.OFFSET_0, records.OFFSET)
            if is_offset and (key.name, key.partition) in self.offsets.of(key.group_id):
                continue  # the present record is the same, or newer
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
        """A group has arrived from another partition: start its sessions."""
        group = self.groups.get(group_id)
        if group is not None:
            group.resume(turn)

    def _revert(self, turn: Turn, group_id: str) -> None:
        """A request is refused: revert its group if the request had changed it."""
        former = turn.formers[group_id]
        if turn.decision.entries:
            turn.decision.entries.clear()
            if not isinstance(former, ClassicGroup):  # a consumer group refuses before it changes anything
                self.revert(turn, group_id, former)

    # Classic groups.

    def join(self, turn: Turn, asked: Join, ticket: Ticket) -> None:
        turn.keep_former(asked.group_id, self.groups.get(asked.group_id))
        try:
            self._join(turn, asked, ticket)
        except Refused as refusal:
            self._revert(turn, asked.group_id)
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
        """Drop the oldest pending member ids above the bound; their clients ask for new ones."""
        while (excess := turn.given.excess) is not None:
            oldest = self.groups.get(excess[0])
            assert isinstance(oldest, ClassicGroup)
            oldest.on_pending_end(turn, excess[1])
            self._maybe_forget(oldest)

    def _maybe_downgrade(self, turn: Turn, group: ConsumerGroup, asked: Join) -> Group:
        """Convert the group if a static classic member replaces the last consumer-protocol member. The
        replaced member's assignment is not kept."""
        replaced = group.static_member(asked.instance_id)
        if asked.member_id or replaced is None or replaced.is_classic:
            return group
        is_alone = len(group.members) == 1 and conversion.may_downgrade(turn)
        if not is_alone and not conversion.must_downgrade(turn, group, [replaced.member_id]):
            return group
        # Checked first: after the conversion nothing may refuse the request.
        conversion.check_protocols(group, asked)
        lowered = self.groups[group.group_id] = conversion.downgrade(turn, group, [replaced.member_id])
        return lowered

    def sync(self, turn: Turn, asked: Sync, ticket: Ticket) -> None:
        turn.keep_former(asked.group_id, self.groups.get(asked.group_id))
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
        """Answer with one error per member; all UNKNOWN_MEMBER_ID if the group does not exist."""
        group = self.groups.get(group_id)
        turn.keep_former(group_id, group)
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
        turn.keep_former(beat.group_id, self.groups.get(beat.group_id))
        try:
            self._check_heartbeat(turn, beat)
            group = self._consumer_group(turn, beat)
            if beat.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                answer = self._leave(turn, group, beat)
            else:
                answer = self._beat(turn, group, beat)
        except Refused as refusal:
            self._revert(turn, beat.group_id)
            answer = HeartbeatAnswer(refusal.code, refusal.message)
        turn.decision.answer(ticket, answer)

    def _beat(self, turn: Turn, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatAnswer:
        try:
            answer = group.heartbeat(turn, beat, self._patterns)
            turn.check_size()
        except Refused:
            if (
                self.groups.get(group.group_id) is not group
            ):  # the group was created for this request and has timers: remove it
                group.stop(turn)
            raise
        self._replace(turn, group)
        return answer

    def _leave(self, turn: Turn, group: ConsumerGroup, beat: Heartbeat) -> HeartbeatAnswer:
        member = group.leaving_member(beat)
        if beat.epoch == STATIC_LEAVE_EPOCH:
            group.leave_for_restart(turn, member)
        else:
            self._fence(turn, group, [member.member_id])
        return HeartbeatAnswer(ErrorCode.none, None, member.member_id, beat.epoch)

    def _replace(self, turn: Turn, group: ConsumerGroup) -> None:
        """Register the group of an accepted heartbeat, which may have been a classic group before."""
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
        """The group of a heartbeat: an existing one, a new one, or one converted from a classic group."""
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
        """Remove members of a consumer group; convert it to a classic group if only classic members
        remain."""
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

    def commit_in_transaction(self, turn: Turn, asked: TransactionCommit, ticket: Ticket) -> None:
        """What is accepted is pending until the transaction ends."""
        try:
            self._check_transaction_commit(turn, asked)
        except Refused as refusal:
            turn.decision.answer(ticket, [refusal.code] * len(asked.commits))
            return
        turn.decision.writer = asked.writer
        turn.decision.answer(ticket, self.offsets.commit(turn, asked.group_id, asked.commits, -1))

    def _check_transaction_commit(self, turn: Turn, asked: TransactionCommit) -> None:
        group, generation = self.groups.get(asked.group_id), asked.generation
        if group is None:
            if generation >= 0:
                raise Refused(ErrorCode.illegal_generation)
        elif isinstance(group, ClassicGroup):
            group.check_transaction_commit(asked.member_id, asked.instance_id, generation)
        elif generation >= 0 or asked.member_id or asked.instance_id is not None:
            spots = ((commit.topic, commit.partition) for commit in asked.commits)
            try:
                group.check_commit(turn, asked.member_id, generation, spots)
            except Refused as refusal:
                is_stale = refusal.code is ErrorCode.stale_member_epoch
                raise Refused(ErrorCode.illegal_generation if is_stale else refusal.code) from None

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
        """Whether a member may fetch offsets; a request without a member id always may."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
            return ErrorCode.none
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if epoch == member.epoch else ErrorCode.stale_member_epoch

    def delete_offsets(self, turn: Turn, group_id: str, spots: list[Spot], ticket: Ticket) -> None:
        """Answer with the group's error, or one error for each partition."""
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
            spot = topic, partition
            if spot in self.offsets.of(group_id) or self.is_pending(group_id, spot):
                self.offsets.delete(turn, group_id, [spot])
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
        """Delete a group with all its offsets; a classic group without a record disappears with its last
        offset."""
        turn.keep_former(group.group_id, group)
        spots = dict.fromkeys((*self.offsets.of(group.group_id), *self.pending_spots(group.group_id)))
        self.offsets.delete(turn, group.group_id, spots)
        self._bury(turn, group)
        if isinstance(group, ClassicGroup):
            group.stop(turn, ErrorCode.group_id_not_found)
            del self.groups[group.group_id]

    def _bury(self, turn: Turn, group: Group) -> None:
        if isinstance(group, ConsumerGroup):
            group.write_tombstones(turn)
        elif group.stored is not None:
            turn.write(records.CLASSIC, group.group_id, None)

    def sweep(self, turn: Turn, sweep: Sweep, is_gone: Callable[[str, CommittedOffset], bool]) -> None:
        """Delete some of the offsets of deleted topics."""
        gone = [(group_id, spot) for group_id, spot, each in sweep.next_piece() if is_gone(spot[0], each)]
        for group_id, spot in gone:
            if not self.is_pending(
                group_id, spot
            ):  # a transaction commits it for the topic that is there now
                self.offsets.delete(turn, group_id, [spot])

    def committed(self, topics: Topics, group_id: str, spot: Spot) -> CommittedOffset | None:
        """The committed offset of a topic; None if it belongs to an earlier topic of the same name."""
        found = self.offsets.of(group_id).get(spot)
        return None if found is None or is_of_another(topics, spot[0], found) else found

    # Time.

    def tick(self, turn: Turn) -> None:
        """Handle the next expired timer."""
        alarm = self.timers.pop_due(turn.uptime_ms)
        if alarm is None:
            return
        if alarm.kind == EXPIRY:
            is_done = self._expire(turn)
            self._await_expiry(turn, 0 if is_done else EXPIRY_PAUSE_MS)
            return
        group = self.groups.get(alarm.group_id)
        turn.keep_former(alarm.group_id, group)
        if isinstance(group, ClassicGroup):
            group.on_alarm(turn, alarm)
            self._maybe_forget(group)
        elif group is not None and group.is_due(alarm):
            self._fence(turn, group, [alarm.member_id])

    def _await_expiry(self, turn: Turn, delay_ms: int = 0) -> None:
        turn.set_timer(self._expiry, delay_ms or turn.settings.number("offsets.retention.check.interval.ms"))

    def _expire(self, turn: Turn) -> bool:
        """Delete expired offsets, a step at a time; return whether the pass is complete."""
        retention_ms = turn.settings.number("offsets.retention.minutes") * MINUTE_MS
        self._unexpired = self._unexpired or list(self.groups)
        looked_at = 0
        while self._unexpired and looked_at < OFFSETS_LOOKED_AT_MAX:
            group = self.groups.get(self._unexpired[-1])
            if group is None:
                self._unexpired.pop()
                self._unchecked = []
                continue
            spots = self._unchecked or list(self.offsets.of(group.group_id))
            piece, self._unchecked = spots[:OFFSETS_LOOKED_AT_MAX], spots[OFFSETS_LOOKED_AT_MAX:]
            looked_at += len(piece) + 1
            self._expire_piece(turn, group, piece, retention_ms)
            if not self._unchecked:
                self._unexpired.pop()
        return not self._unexpired

    def _expire_piece(self, turn: Turn, group: Group, piece: list[Spot], retention_ms: int) -> None:
        expired = self._expired(turn, group, piece, retention_ms)
        gone = [spot for spot in expired if not self.is_pending(group.group_id, spot)]
        is_last = not self._unchecked and len(gone) == len(self.offsets.of(group.group_id))
        is_last = is_last and not (self.pending and self.pending_spots(group.group_id))
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
        """Drop a group without members, pending ids and records in the journal."""
        is_known = group.stored is not None or group.group_id in self.offsets.group_ids()
        if group.state is State.EMPTY and not group.pending and not is_known:
            self.groups.pop(group.group_id, None)


def _topics_of(member: Member) -> tuple[str, ...]:
    try:
        return read_subscription(member.protocols[0][1]).topics if member.protocols else ()
    except MalformedRequest:
        return ()
