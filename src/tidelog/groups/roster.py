"""The members of a classic group, its generation, and its record in the journal.

**Invariant:** an instance id belongs to one member; a member's assignment is the one in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tidelog.groups.classic_member import JoinAnswer, Member, SyncAnswer, restore_member
from tidelog.groups.records import ClassicMemberValue, ClassicValue
from tidelog.groups.turn import Refused, Turn
from tidelog.protocol.errors import ErrorCode

CONSUMER_TYPE = "consumer"


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Roster:
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

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_TYPE

    def value(self, assignments: Mapping[str, bytes] | None = None) -> ClassicValue:
        """The value of the group's record, with new assignments if given."""
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
        return ClassicValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            self.state_ms,
            members,
        )

    def restore(self, value: ClassicValue) -> None:
        """Restore the group from its record in the journal."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol_name = value.protocol_name
        self.leader_id = value.leader_id
        self.state_ms = value.state_ms
        for stored in value.members:
            self.put(restore_member(self.group_id, self.protocol_name, stored))
        self.state = State.STABLE if self.members else State.EMPTY

    def replay(self, value: ClassicValue) -> None:
        """The group's record is in the journal: its assignments are in force."""
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment

    def put(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    def checked_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of these ids; raises Refused if they do not match."""
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

    def is_leader(self, member: Member) -> bool:
        return member.member_id == self.leader_id

    def join_answer(self, member: Member) -> JoinAnswer:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if self.is_leader(member):
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
    def answer_join(turn: Turn, member: Member, answer: JoinAnswer) -> None:
        if member.join_ticket is not None:
            turn.decision.answer(member.join_ticket, answer)
            member.join_ticket = None

    @staticmethod
    def answer_sync(turn: Turn, member: Member, answer: SyncAnswer) -> None:
        if member.sync_ticket is not None:
            turn.decision.answer(member.sync_ticket, answer)
            member.sync_ticket = None

    def sync_answer(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol_name, assignment)
