"""A group of the classic protocol: members join, the leader assigns the partitions, all fetch their part.

| state      | JoinGroup                    | SyncGroup             | Heartbeat             |
|------------|------------------------------|-----------------------|-----------------------|
| EMPTY      | first member: PREPARING      | UNKNOWN_MEMBER_ID     | UNKNOWN_MEMBER_ID     |
| PREPARING  | waits                        | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS |
| COMPLETING | same answer; PREPARING if    | waits for the leader  | ok                    |
|            | the member has changed       |                       |                       |
| STABLE     | the same, and PREPARING if   | its assignment        | ok                    |
|            | it is the leader             |                       |                       |

PREPARING ends when all members have joined or the rebalance timeout is over; COMPLETING when the leader has
sent the assignments; STABLE when a member joins, leaves or changes. A member is removed if it sends no
heartbeat within its session timeout, or does not rejoin within the rebalance timeout (its
`max.poll.interval.ms`); a static member is replaced by a new member with the same instance id.

**Invariant:** a generation's assignments are sent to members only when they are in the journal; a request of
another generation is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.decision import Ticket
from tidelog.base.limits import GROUP_PROTOCOLS_MAX, MEMBER_NAME_LENGTH_MAX, NEW_MEMBER_WAIT_MS_MAX
from tidelog.groups.classic_member import (
    SESSION,
    Join,
    JoinAnswer,
    Leaving,
    Member,
    Sync,
    SyncAnswer,
    choose_protocol,
    shared_names,
)
from tidelog.groups.records import CLASSIC
from tidelog.groups.roster import Roster, State
from tidelog.groups.turn import Alarm, GroupTimer, Refused, Turn
from tidelog.protocol.errors import ErrorCode

JOIN, SYNC, PENDING = "classic join", "classic sync", "classic pending"


class ClassicGroup(Roster):
    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self.pending: dict[str, GroupTimer] = {}  # allocated member ids whose clients have not joined yet
        self._syncing: dict[
            str, None
        ] = {}  # members of this generation that have not fetched their assignment
        self._join_timer: GroupTimer = GroupTimer(Alarm(JOIN, group_id, ""))
        self._sync_timer: GroupTimer = GroupTimer(Alarm(SYNC, group_id, ""))
        self._delay_left_ms = 0  # the rest of the initial rebalance delay
        self._is_waiting_for_more = False
        self._has_grown = False  # since the last check of the initial rebalance

    def _write(self, turn: Turn, assignments: Mapping[str, bytes] | None = None) -> None:
        turn.write(CLASSIC, self.group_id, self.value(assignments))

    def resume(self, turn: Turn) -> None:
        """The group has been loaded: restart the session of every member."""
        for member in self.members.values():
            self._renew(turn, member)
        if (
            self.members and self.leader_id is None
        ):  # converted from a consumer group, without a generation of its own
            self._prepare(turn)

    def add_converted(self, join: Join, assignment: bytes) -> None:
        """Add a member that came with the conversion from a consumer group, with its assignment there."""
        member = Member(join, join.member_id)
        member.assignment = assignment
        self.put(member)

    def become_converted(self, turn: Turn) -> None:
        """Become STABLE with the members of a consumer group: their assignments hold until they have
        rejoined."""
        self.protocol_name = choose_protocol(self.members.values())
        self._become(turn, State.STABLE)
        self._write(turn)
        for member in self.members.values():
            self._renew(turn, member)
        self._prepare(turn)

    # Joining.

    def join(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        """Answer now or later, or raise Refused."""
        if not self._has_room(turn, join.member_id):
            turn.decision.answer(ticket, JoinAnswer(ErrorCode.group_max_size_reached, join.member_id))
            return
        self._check_protocols(join)
        if not join.member_id:
            self._join_new(turn, join, ticket)
        else:
            self._join_known(turn, join, ticket)

    def _has_room(self, turn: Turn, member_id: str) -> bool:
        size_max = turn.settings.number("group.max.size")
        if len(self.members) < size_max:
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            is_waiting = member is not None and member.join_ticket is not None
            waiting_count = sum(each.join_ticket is not None for each in self.members.values())
            return is_waiting or waiting_count < size_max
        return member is not None

    def _check_protocols(self, join: Join) -> None:
        is_fit = bool(join.protocol_type) and 0 < len(join.protocols) <= GROUP_PROTOCOLS_MAX
        known = self.members.get(join.member_id)
        # Unchanged protocols are compatible with those of the other members.
        is_same = known is not None and known.protocols == join.protocols
        if is_fit and is_same:
            is_fit = join.protocol_type == self.protocol_type
        elif is_fit and self.state is not State.EMPTY:
            others = [member for member in self.members.values() if member.member_id != join.member_id]
            shared = shared_names(others)
            is_known = not others or any(name in shared for name, _ in join.protocols)
            is_fit = join.protocol_type == self.protocol_type and is_known
        if not is_fit:
            raise Refused(ErrorCode.inconsistent_group_protocol)

    def _join_new(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        if join.instance_id is not None:
            member_id = f"{join.instance_id[:MEMBER_NAME_LENGTH_MAX]}-{turn.new_uuid()}"
            if join.instance_id in self.static_ids:
                self._replace_static(turn, join, member_id, ticket)
            else:
                self._add(turn, join, member_id, ticket)
            return
        member_id = f"{join.client_id[:MEMBER_NAME_LENGTH_MAX]}-{turn.new_uuid()}"
        if join.needs_member_id:
            timer = self.pending[member_id] = GroupTimer(Alarm(PENDING, self.group_id, member_id))
            turn.set_timer(timer, join.session_timeout_ms)
            turn.given.add(self.group_id, member_id)
            turn.decision.answer(ticket, JoinAnswer(ErrorCode.member_id_required, member_id))
        else:
            self._add(turn, join, member_id, ticket)

    def _join_known(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        if join.member_id in self.pending:
            if join.instance_id is not None:  # a static member gets no id before it has joined
                raise Refused(ErrorCode.unknown_member_id)
            self._add(turn, join, join.member_id, ticket)
            return
        member = self.checked_member(join.member_id, join.instance_id)
        if self.state is State.PREPARING:
            self._rejoin(turn, member, join, ticket)
            self._maybe_complete(turn)
        elif self.state is State.COMPLETING and member.protocols == join.protocols:
            turn.decision.answer(ticket, self.join_answer(member))  # the first answer was lost
        elif self.state is State.STABLE and member.protocols == join.protocols and not self.is_leader(member):
            turn.decision.answer(ticket, self.join_answer(member))
        else:
            self._rejoin(turn, member, join, ticket)
            self._prepare(turn)

    def _add(self, turn: Turn, join: Join, member_id: str, ticket: Ticket) -> None:
        self._end_pending(turn, member_id)
        if not self.members:
            self.protocol_type = join.protocol_type
        member = Member(join, member_id)
        member.is_new = True
        self.put(member)
        if self.leader_id is None:
            self.leader_id = member_id
        self._has_grown = True
        self._rejoin(turn, member, join, ticket)
        turn.set_timer(member.session, NEW_MEMBER_WAIT_MS_MAX)
        self._prepare(turn)

    def _rejoin(self, turn: Turn, member: Member, join: Join, ticket: Ticket) -> None:
        """Park the member until the next generation, with its new protocols and timeouts."""
        self.answer_join(turn, member, JoinAnswer(ErrorCode.unknown_member_id, member.member_id))
        member.update(join)
        member.join_ticket = ticket

    def _replace_static(self, turn: Turn, join: Join, member_id: str, ticket: Ticket) -> None:
        """Replace a static member by its new process, without a rebalance if possible."""
        assert join.instance_id is not None
        old = self.members[self.static_ids[join.instance_id]]
        former_leader_id = self.leader_id
        fenced = ErrorCode.fenced_instance_id
        self.answer_join(turn, old, JoinAnswer(fenced, old.member_id))
        self.answer_sync(turn, old, SyncAnswer(fenced))
        turn.timers.stop(old.session)
        member = Member(join, member_id)
        member.assignment = old.assignment
        self.members = {
            (member_id if key == old.member_id else key): (member if value is old else value)
            for key, value in self.members.items()
        }
        self.static_ids[join.instance_id] = member_id
        if old.member_id in self._syncing:
            del self._syncing[old.member_id]
        if former_leader_id == old.member_id:
            self.leader_id = member_id
        if self.state is State.STABLE and choose_protocol(self.members.values()) == self.protocol_name:
            self._renew(turn, member)
            self._write(turn)
            answer = self.join_answer(member)
            if join.can_skip_assignment:
                answer = answer._replace(skips_assignment=self.is_leader(member))
            else:  # the new process must not lead: it would assign the partitions again
                answer = answer._replace(leader_id=former_leader_id or "", members=())
            turn.decision.answer(ticket, answer)
            return
        if self.stored is not None:  # otherwise a restart would restore an outdated member id
            self._write(turn)
        member.join_ticket = ticket
        self._renew(turn, member)
        if self.state is State.PREPARING:
            self._maybe_complete(turn)
        else:
            self._prepare(turn)

    # The rebalance.

    def _prepare(self, turn: Turn) -> None:
        """Start a rebalance, unless one is in progress."""
        if self.state is State.PREPARING:
            self._maybe_complete(turn)
            return
        if self.state is State.COMPLETING:
            for member in self.members.values():
                self.answer_sync(turn, member, SyncAnswer(ErrorCode.rebalance_in_progress))
        turn.timers.stop(self._sync_timer)
        self._syncing.clear()
        was_empty = self.state is State.EMPTY
        self._become(turn, State.PREPARING)
        if was_empty:
            delay_ms = turn.settings.number("group.initial.rebalance.delay.ms")
            self._is_waiting_for_more = True
            self._has_grown = False
            self._delay_left_ms = max(self.rebalance_timeout_ms - delay_ms, 0)
            if delay_ms:
                turn.set_timer(self._join_timer, delay_ms)
            else:
                self.on_join_timeout(turn)
        else:
            self._maybe_complete(turn)

    def _become(self, turn: Turn, state: State) -> None:
        self.state = state
        self.state_ms = turn.now_ms

    def _maybe_complete(self, turn: Turn) -> None:
        """Complete the rebalance if all members have joined; otherwise wait, at most for the rebalance
        timeout."""
        if self._is_waiting_for_more:
            return
        if not self.pending and all(member.join_ticket is not None for member in self.members.values()):
            self._complete(turn)
        elif not self._join_timer.is_set:
            turn.set_timer(self._join_timer, self.rebalance_timeout_ms)

    def on_join_timeout(self, turn: Turn) -> None:
        if self.state is not State.PREPARING:
            return
        if self._is_waiting_for_more and self._has_grown and self._delay_left_ms:
            delay_ms = min(turn.settings.number("group.initial.rebalance.delay.ms"), self._delay_left_ms)
            self._has_grown = False
            self._delay_left_ms -= delay_ms
            turn.set_timer(self._join_timer, delay_ms)
            return
        self._complete(turn)

    def _complete(self, turn: Turn) -> None:
        """Begin the next generation with the members that have joined; static members may be late."""
        self._is_waiting_for_more = False
        turn.timers.stop(self._join_timer)
        for member in list(self.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._remove(turn, member)
        joined = [member for member in self.members.values() if member.join_ticket is not None]
        if self.members and not joined:  # only static members, and none has rejoined yet
            turn.set_timer(self._join_timer, self.rebalance_timeout_ms)
            return
        self.generation += 1
        if not self.members:
            self._become(turn, State.EMPTY)
            self.protocol_name = self.leader_id = None
            self._write(turn)
            return
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.join_ticket is None:
            self.leader_id = joined[0].member_id
        self.protocol_name = choose_protocol(self.members.values())
        self._become(turn, State.COMPLETING)
        for member in self.members.values():
            member.is_new = False
            self._syncing[member.member_id] = None
            if member.join_ticket is not None:  # a late static member keeps the rest of its session
                self.answer_join(turn, member, self.join_answer(member))
                self._renew(turn, member)
        turn.set_timer(self._sync_timer, self.rebalance_timeout_ms)

    # Assignments.

    def sync(self, turn: Turn, sync: Sync, ticket: Ticket) -> None:
        """Answer now or when the leader has sent the assignments, or raise Refused."""
        member = self.checked_member(sync.member_id, sync.instance_id)
        if sync.generation != self.generation:
            raise Refused(ErrorCode.illegal_generation)
        for said, known in (
            (sync.protocol_type, self.protocol_type),
            (sync.protocol_name, self.protocol_name),
        ):
            if said is not None and said != known:
                raise Refused(ErrorCode.inconsistent_group_protocol)
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.rebalance_in_progress)
        self._syncing.pop(member.member_id, None)
        if not self._syncing:
            turn.timers.stop(self._sync_timer)
        if self.state is State.STABLE:
            self._renew(turn, member)
            turn.decision.answer(ticket, self.sync_answer(member.assignment))
            return
        self.answer_sync(turn, member, SyncAnswer(ErrorCode.unknown_member_id))  # of an earlier attempt
        member.sync_ticket = ticket
        if self.is_leader(member):
            self._share_out(turn, sync.assignments)

    def _share_out(self, turn: Turn, assignments: Mapping[str, bytes]) -> None:
        """Write the leader's assignments; they hold, and are answered, when the record is replayed."""
        self._write(turn, assignments)
        try:
            turn.check_size()
        except Refused:
            turn.decision.entries.clear()
            for member in self.members.values():
                self.answer_sync(turn, member, SyncAnswer(ErrorCode.unknown_server_error))
            self._prepare(turn)
            return
        self._become(turn, State.STABLE)
        for member in self.members.values():
            if member.sync_ticket is not None:
                self.answer_sync(turn, member, self.sync_answer(assignments.get(member.member_id, b"")))
                self._renew(turn, member)

    def on_sync_timeout(self, turn: Turn) -> None:
        """Remove the members that have not fetched their assignment in time."""
        if self.state in (State.COMPLETING, State.STABLE) and self._syncing:
            for member_id in list(self._syncing):
                if member_id in self.members:
                    self._remove(turn, self.members[member_id])
            self._prepare(turn)

    # Heartbeats and leaving.

    def heartbeat(self, turn: Turn, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        member = self.checked_member(member_id, instance_id)
        if generation != self.generation:
            return ErrorCode.illegal_generation
        self._renew(turn, member)
        return ErrorCode.rebalance_in_progress if self.state is State.PREPARING else ErrorCode.none

    def _renew(self, turn: Turn, member: Member) -> None:
        turn.timers.set(member.session, turn.uptime_ms + member.session_timeout_ms)

    def check_transaction_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """The same in a transaction: a producer need not say for which member it commits, and may do so
        while the group rebalances."""
        is_named = generation >= 0 or member_id or instance_id is not None
        if is_named and (generation >= 0 or self.state is not State.EMPTY):
            self.checked_member(member_id, instance_id)
            if generation != self.generation:
                raise Refused(ErrorCode.illegal_generation)

    def check_commit(self, turn: Turn, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise Refused unless the member of that generation may commit; anybody may commit to an empty
        group."""
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise Refused(ErrorCode.unknown_member_id)
        member = self.checked_member(member_id, instance_id)
        if generation != self.generation:
            raise Refused(ErrorCode.illegal_generation)
        if self.state is State.COMPLETING:
            raise Refused(ErrorCode.rebalance_in_progress)
        self._renew(turn, member)

    def leave(self, turn: Turn, leaving: Leaving) -> ErrorCode:
        if leaving.instance_id is not None:
            known_id = self.static_ids.get(leaving.instance_id)
            if known_id is None:
                return ErrorCode.unknown_member_id
            if leaving.member_id not in ("", known_id):
                return ErrorCode.fenced_instance_id
            member = self.members[known_id]
        elif leaving.member_id in self.pending:
            self.on_pending_end(turn, leaving.member_id)
            return ErrorCode.none
        elif leaving.member_id in self.members:
            member = self.members[leaving.member_id]
        else:
            return ErrorCode.unknown_member_id
        self._remove(turn, member)
        self._after_departure(turn)
        return ErrorCode.none

    def on_session_end(self, turn: Turn, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        is_waiting = member.join_ticket is not None or member.sync_ticket is not None
        if (
            member.is_new or not is_waiting
        ):  # a parked member cannot expire; its session restarts with the answer
            self._remove(turn, member)
            self._after_departure(turn)

    def on_pending_end(self, turn: Turn, member_id: str) -> None:
        if self._end_pending(turn, member_id):
            self._after_pending(turn)

    def _end_pending(self, turn: Turn, member_id: str) -> bool:
        """Whether the id was pending: allocated, and not joined with yet."""
        timer = self.pending.pop(member_id, None)
        if timer is None:
            return False
        turn.timers.stop(timer)
        turn.given.remove(self.group_id, member_id)
        return True

    def _remove(self, turn: Turn, member: Member) -> None:
        unknown = ErrorCode.unknown_member_id
        self.answer_join(turn, member, JoinAnswer(unknown, member.member_id))
        self.answer_sync(turn, member, SyncAnswer(unknown))
        turn.timers.stop(member.session)
        del self.members[member.member_id]
        self._syncing.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.is_leader(member):
            waiting = (each.member_id for each in self.members.values() if each.join_ticket is not None)
            self.leader_id = next(waiting, next(iter(self.members), None))

    def _after_pending(self, turn: Turn) -> None:
        """A pending id is gone: continue a rebalance that waited for it; in other states nothing changes."""
        if self.state is State.PREPARING:
            self._after_departure(turn)

    def _after_departure(self, turn: Turn) -> None:
        if self.state is State.PREPARING:
            if not self.members and self._is_waiting_for_more:
                return  # the delay ends by its own timer
            self._maybe_complete(turn)
        elif self.state in (State.STABLE, State.COMPLETING):
            self._prepare(turn)

    def stop(self, turn: Turn, error: ErrorCode) -> None:
        """The group was deleted or converted: fail all waiting clients and stop all timers."""
        for member in self.members.values():
            self.answer_join(turn, member, JoinAnswer(error, member.member_id))
            self.answer_sync(turn, member, SyncAnswer(error))
            turn.timers.stop(member.session)
        for member_id in list(self.pending):
            self._end_pending(turn, member_id)
        for timer in (self._join_timer, self._sync_timer):
            turn.timers.stop(timer)

    def on_alarm(self, turn: Turn, alarm: Alarm) -> None:
        if alarm.kind == SESSION:
            self.on_session_end(turn, alarm.member_id)
        elif alarm.kind == PENDING:
            self.on_pending_end(turn, alarm.member_id)
        elif alarm.kind == JOIN:
            self.on_join_timeout(turn)
        elif alarm.kind == SYNC:
            self.on_sync_timeout(turn)
