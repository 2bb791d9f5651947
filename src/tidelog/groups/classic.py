"""A group of the classic protocol: members join, one shares out the partitions, all fetch their part.

| state      | JoinGroup                    | SyncGroup             | Heartbeat             |
|------------|------------------------------|-----------------------|-----------------------|
| EMPTY      | first member: PREPARING      | UNKNOWN_MEMBER_ID     | UNKNOWN_MEMBER_ID     |
| PREPARING  | waits                        | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS |
| COMPLETING | told again; PREPARING if it  | waits for the leader  | ok                    |
|            | has changed                  |                       |                       |
| STABLE     | the same, and PREPARING if   | its part              | ok                    |
|            | it is the leader             |                       |                       |

PREPARING ends when all have joined or the time is over, COMPLETING when the leader has shared out; STABLE
when a member comes, goes or changes. A member that is not heard of for its session timeout goes; one that
does not join again within the rebalance timeout (its `max.poll.interval.ms`) goes; a static member is
replaced by a new one of its instance id.

**Invariant:** a generation's assignments are told only when they are in the journal; whoever speaks for
another generation is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.base.decision import Ticket
from tidelog.groups.records import CLASSIC, ClassicMemberValue, ClassicValue, classic_value, group_key
from tidelog.groups.turn import Alarm, GroupTimer, Refused, Turn
from tidelog.protocol.errors import ErrorCode

SESSION, JOIN, SYNC, PENDING = "classic session", "classic join", "classic sync", "classic pending"
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1_000  # for one that waits for its first rebalance
CONSUMER_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Join(NamedTuple):
    """A JoinGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool  # a new dynamic member must come back with the id that it is given
    can_skip_assignment: bool


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skips_assignment: bool = False


class Sync(NamedTuple):
    """A SyncGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member of a LeaveGroup request."""

    member_id: str
    instance_id: str | None


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(self, join: Join, member_id: str) -> None:
        self.member_id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.is_new = False
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.assignment = b""
        self.session: GroupTimer = GroupTimer(Alarm(SESSION, join.group_id, member_id))
        self.update(join)

    def update(self, join: Join) -> None:
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.protocols = join.protocols

    def metadata_of(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


class ClassicGroup:
    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # member id by instance id
        self.stored: bytes | None = None  # the last record of the group in the journal
        self.pending: dict[str, GroupTimer] = {}  # ids given out to members that have yet to join with them
        self._syncing: dict[str, None] = {}  # who has joined this generation and not fetched its part
        self._join_timer: GroupTimer = GroupTimer(Alarm(JOIN, group_id, ""))
        self._sync_timer: GroupTimer = GroupTimer(Alarm(SYNC, group_id, ""))
        self._delay_left_ms = 0  # of an initial rebalance that waits for more members
        self._is_waiting_for_more = False
        self._has_grown = False  # since the initial rebalance last looked

    # What others ask.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_TYPE

    def value(self, assignments: Mapping[str, bytes] | None = None) -> bytes:
        """The group as its record has it, with new assignments if there are any."""
        members = tuple(
            ClassicMemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_of(self.protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return classic_value(
            ClassicValue(
                self.protocol_type or "",
                self.generation,
                self.protocol_name,
                self.leader_id,
                self.state_ms,
                members,
            )
        )

    def _write(self, turn: Turn, assignments: Mapping[str, bytes] | None = None) -> None:
        turn.decision.write(group_key(CLASSIC, self.group_id), self.value(assignments))

    def restore(self, value: ClassicValue) -> None:
        """Be what the journal has of the group."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol_name = value.protocol_name
        self.leader_id = value.leader_id
        self.state_ms = value.state_ms
        for stored in value.members:
            self._restore(stored).assignment = stored.assignment
        self.state = State.STABLE if self.members else State.EMPTY

    def replay(self, value: ClassicValue) -> None:
        """What the group has decided is in the journal now: assignments hold."""
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment

    def _restore(self, stored: ClassicMemberValue) -> Member:
        join = Join(
            self.group_id,
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            self.protocol_type or "",
            ((self.protocol_name, stored.subscription),) if self.protocol_name is not None else (),
            False,
            False,
        )
        member = Member(join, stored.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        return member

    def resume(self, turn: Turn) -> None:
        """The group has been loaded: everybody's session begins now."""
        for member in self.members.values():
            self._renew(turn, member)

    def take_over(self, join: Join, assignment: bytes) -> None:
        """A member that the group gets from a consumer group, with what it had there."""
        member = Member(join, join.member_id)
        member.assignment = assignment
        self.members[member.member_id] = member
        if join.instance_id is not None:
            self.static_ids[join.instance_id] = member.member_id

    def settle(self, turn: Turn) -> None:
        """The members are those of a consumer group: they go on as they are until they have joined anew."""
        self.leader_id = next(iter(self.members))
        self.protocol_name = self._choose_protocol()
        self._become(turn, State.STABLE)
        self._write(turn)
        for member in self.members.values():
            self._renew(turn, member)
        self._prepare(turn)

    # Joining.

    def join(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        """Refused, or answered now or later."""
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
        if self.state is State.EMPTY:
            return size_max > 0
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            is_waiting = member is not None and member.join_ticket is not None
            waiting_count = sum(each.join_ticket is not None for each in self.members.values())
            return is_waiting or waiting_count < size_max
        return member is not None or len(self.members) < size_max

    def _check_protocols(self, join: Join) -> None:
        is_fit = bool(join.protocol_type) and bool(join.protocols)
        if is_fit and self.state is not State.EMPTY:
            names = [name for name, _ in join.protocols]
            others = [member for member in self.members.values() if member.member_id != join.member_id]
            is_fit = join.protocol_type == self.protocol_type and (
                not others or any(self._is_shared(name, others) for name in names)
            )
        if not is_fit:
            raise Refused(ErrorCode.inconsistent_group_protocol)

    @staticmethod
    def _is_shared(name: str, members: Iterable[Member]) -> bool:
        return all(any(name == own for own, _ in member.protocols) for member in members)

    def _join_new(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        if join.instance_id is not None:
            member_id = f"{join.instance_id}-{turn.new_uuid()}"
            if join.instance_id in self.static_ids:
                self._replace_static(turn, join, member_id, ticket)
            else:
                self._add(turn, join, member_id, ticket)
            return
        member_id = f"{join.client_id}-{turn.new_uuid()}"
        if join.needs_member_id:
            timer = self.pending[member_id] = GroupTimer(Alarm(PENDING, self.group_id, member_id))
            turn.set_timer(timer, join.session_timeout_ms)
            turn.decision.answer(ticket, JoinAnswer(ErrorCode.member_id_required, member_id))
        else:
            self._add(turn, join, member_id, ticket)

    def _join_known(self, turn: Turn, join: Join, ticket: Ticket) -> None:
        if join.member_id in self.pending:
            if join.instance_id is not None:  # a static member gets no id before it has joined
                raise Refused(ErrorCode.unknown_member_id)
            self._add(turn, join, join.member_id, ticket)
            return
        member = self._checked_member(join.member_id, join.instance_id)
        if self.state is State.PREPARING:
            self._rejoin(turn, member, join, ticket)
            self._maybe_complete(turn)
        elif self.state is State.COMPLETING and member.protocols == join.protocols:
            turn.decision.answer(ticket, self._join_answer(member))  # its answer was lost: told again
        elif (
            self.state is State.STABLE and member.protocols == join.protocols and not self._is_leader(member)
        ):
            turn.decision.answer(ticket, self._join_answer(member))
        else:
            self._rejoin(turn, member, join, ticket)
            self._prepare(turn)

    def _checked_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks, if it is who it says; Refused if not."""
        if instance_id is not None:
            known_id = self.static_ids.get(instance_id)
            if known_id is None:
                raise Refused(ErrorCode.unknown_member_id)
            if known_id != member_id:
                raise Refused(ErrorCode.fenced_instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.unknown_member_id)
        return member

    def _is_leader(self, member: Member) -> bool:
        return member.member_id == self.leader_id

    def _add(self, turn: Turn, join: Join, member_id: str, ticket: Ticket) -> None:
        pending = self.pending.pop(member_id, None)
        if pending is not None:
            turn.timers.stop(pending)
        if not self.members:
            self.protocol_type = join.protocol_type
        member = Member(join, member_id)
        member.is_new = True
        self.members[member_id] = member
        if join.instance_id is not None:
            self.static_ids[join.instance_id] = member_id
        if self.leader_id is None:
            self.leader_id = member_id
        self._has_grown = True
        self._rejoin(turn, member, join, ticket)
        turn.set_timer(member.session, NEW_MEMBER_TIMEOUT_MS)
        self._prepare(turn)

    def _rejoin(self, turn: Turn, member: Member, join: Join, ticket: Ticket) -> None:
        """The member waits for the next generation with what it says of itself now."""
        self._answer_join(turn, member, JoinAnswer(ErrorCode.unknown_member_id, member.member_id))
        member.update(join)
        member.join_ticket = ticket

    def _replace_static(self, turn: Turn, join: Join, member_id: str, ticket: Ticket) -> None:
        """A new process with the instance id of a member takes its place, if it can without a rebalance."""
        assert join.instance_id is not None
        old = self.members[self.static_ids[join.instance_id]]
        former_leader_id = self.leader_id
        fenced = ErrorCode.fenced_instance_id
        self._answer_join(turn, old, JoinAnswer(fenced, old.member_id))
        self._answer_sync(turn, old, SyncAnswer(fenced))
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
        if self.state is State.STABLE and self._choose_protocol() == self.protocol_name:
            self._renew(turn, member)
            self._write(turn)
            answer = self._join_answer(member)
            if join.can_skip_assignment:
                answer = answer._replace(skips_assignment=self._is_leader(member))
            else:  # so that it does not take itself for the leader, who would share out anew
                answer = answer._replace(leader_id=former_leader_id or "", members=())
            turn.decision.answer(ticket, answer)
            return
        member.join_ticket = ticket
        self._renew(turn, member)
        if self.state is State.PREPARING:
            self._maybe_complete(turn)
        else:
            self._prepare(turn)

    # The rebalance.

    def _prepare(self, turn: Turn) -> None:
        """Call for a new generation, unless one is being called for."""
        if self.state is State.PREPARING:
            self._maybe_complete(turn)
            return
        if self.state is State.COMPLETING:
            for member in self.members.values():
                self._answer_sync(turn, member, SyncAnswer(ErrorCode.rebalance_in_progress))
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
        """Begin the generation if everybody is there; else wait, for the rebalance timeout at most."""
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
        """Begin the next generation with those who have joined; static members may be late."""
        self._is_waiting_for_more = False
        turn.timers.stop(self._join_timer)
        for member in list(self.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._remove(turn, member)
        joined = [member for member in self.members.values() if member.join_ticket is not None]
        if self.members and not joined:  # static members only, and none has come yet
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
        self.protocol_name = self._choose_protocol()
        self._become(turn, State.COMPLETING)
        for member in self.members.values():
            member.is_new = False
            self._syncing[member.member_id] = None
            if member.join_ticket is not None:
                self._answer_join(turn, member, self._join_answer(member))
            self._renew(turn, member)
        turn.set_timer(self._sync_timer, self.rebalance_timeout_ms)

    def _choose_protocol(self) -> str | None:
        """The protocol that most members like best among those that all know."""
        votes: dict[str, int] = {}
        members = list(self.members.values())
        for member in members:
            liked = next((name for name, _ in member.protocols if self._is_shared(name, members)), None)
            if liked is not None:
                votes[liked] = votes.get(liked, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else None

    def _join_answer(self, member: Member) -> JoinAnswer:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if self._is_leader(member):
            members = tuple(
                (each.member_id, each.instance_id, each.metadata_of(self.protocol_name))
                for each in self.members.values()
            )
        return JoinAnswer(
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            members,
        )

    @staticmethod
    def _answer_join(turn: Turn, member: Member, answer: JoinAnswer) -> None:
        if member.join_ticket is not None:
            turn.decision.answer(member.join_ticket, answer)
            member.join_ticket = None

    @staticmethod
    def _answer_sync(turn: Turn, member: Member, answer: SyncAnswer) -> None:
        if member.sync_ticket is not None:
            turn.decision.answer(member.sync_ticket, answer)
            member.sync_ticket = None

    # Sharing out.

    def sync(self, turn: Turn, sync: Sync, ticket: Ticket) -> None:
        """Refused, or answered now or when the leader has shared out."""
        member = self._checked_member(sync.member_id, sync.instance_id)
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
        if self.state is State.STABLE:
            self._renew(turn, member)
            turn.decision.answer(ticket, self._sync_answer(member.assignment))
            return
        self._answer_sync(turn, member, SyncAnswer(ErrorCode.unknown_member_id))  # of an earlier try
        member.sync_ticket = ticket
        self._syncing.pop(member.member_id, None)
        if self._is_leader(member):
            self._share_out(turn, sync.assignments)

    def _share_out(self, turn: Turn, assignments: Mapping[str, bytes]) -> None:
        """The record makes it so (`replay`); the answers leave with it."""
        self._become(turn, State.STABLE)
        self._write(turn, assignments)
        for member in self.members.values():
            self._answer_sync(turn, member, self._sync_answer(assignments.get(member.member_id, b"")))
            self._renew(turn, member)

    def _sync_answer(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol_name, assignment)

    def on_refused_write(self, turn: Turn) -> None:
        """The assignments could not be kept, so nobody got one: they are asked for again."""
        if self.state is State.STABLE:
            self._prepare(turn)

    def on_sync_timeout(self, turn: Turn) -> None:
        """Who has not come for its part by now is gone."""
        if self.state in (State.COMPLETING, State.STABLE) and self._syncing:
            for member_id in list(self._syncing):
                if member_id in self.members:
                    self._remove(turn, self.members[member_id])
            self._prepare(turn)

    # Staying and going.

    def heartbeat(self, turn: Turn, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        member = self._checked_member(member_id, instance_id)
        if generation != self.generation:
            return ErrorCode.illegal_generation
        self._renew(turn, member)
        return ErrorCode.rebalance_in_progress if self.state is State.PREPARING else ErrorCode.none

    def _renew(self, turn: Turn, member: Member) -> None:
        turn.set_timer(member.session, member.session_timeout_ms)

    def check_commit(self, turn: Turn, member_id: str, instance_id: str | None, generation: int) -> None:
        """Refused unless the member of that generation may commit; anybody may while nobody is in."""
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise Refused(ErrorCode.unknown_member_id)
        member = self._checked_member(member_id, instance_id)
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
            turn.timers.stop(self.pending.pop(leaving.member_id))
            self._after_departure(turn)
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
        if member.is_new or not is_waiting:  # who waits for us cannot be late; its session begins again then
            self._remove(turn, member)
            self._after_departure(turn)

    def on_pending_end(self, turn: Turn, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._after_departure(turn)

    def _remove(self, turn: Turn, member: Member) -> None:
        unknown = ErrorCode.unknown_member_id
        self._answer_join(turn, member, JoinAnswer(unknown, member.member_id))
        self._answer_sync(turn, member, SyncAnswer(unknown))
        turn.timers.stop(member.session)
        del self.members[member.member_id]
        self._syncing.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self._is_leader(member):
            waiting = (each.member_id for each in self.members.values() if each.join_ticket is not None)
            self.leader_id = next(waiting, next(iter(self.members), None))

    def _after_departure(self, turn: Turn) -> None:
        if self.state is State.PREPARING:
            if not self.members and self._is_waiting_for_more:
                return  # the delay ends by itself
            self._maybe_complete(turn)
        elif self.state in (State.STABLE, State.COMPLETING):
            self._prepare(turn)

    def stop(self, turn: Turn, error: ErrorCode) -> None:
        """The group is no more, or is another kind of group: nobody waits, nothing is timed."""
        for member in self.members.values():
            self._answer_join(turn, member, JoinAnswer(error, member.member_id))
            self._answer_sync(turn, member, SyncAnswer(error))
            turn.timers.stop(member.session)
        for timer in (*self.pending.values(), self._join_timer, self._sync_timer):
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
