"""The members of a classic group: their requests, and the state of each member.

**Invariant:** a protocol is chosen among those that every member supports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.base.decision import Ticket
from tidelog.groups.records import ClassicMemberValue
from tidelog.groups.turn import Alarm, GroupTimer
from tidelog.protocol.errors import ErrorCode

SESSION = "classic session"

Protocols = tuple[tuple[str, bytes], ...]


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
    needs_member_id: bool  # a new dynamic member must rejoin with an allocated member id
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


def restore_member(group_id: str, protocol_name: str | None, stored: ClassicMemberValue) -> Member:
    """A member as read from the journal, which has only the chosen one of its protocols."""
    join = Join(
        group_id,
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms,
        stored.rebalance_timeout_ms,
        "",
        ((protocol_name, stored.subscription),) if protocol_name is not None else (),
        False,
        False,
    )
    member = Member(join, stored.member_id)
    member.assignment = stored.assignment
    return member


def shared_names(members: Collection[Member]) -> frozenset[str]:
    """The protocols that all members support."""
    names = [frozenset(name for name, _ in member.protocols) for member in members]
    return names[0].intersection(*names[1:]) if names else frozenset()


def choose_protocol(members: Collection[Member]) -> str | None:
    """The protocol that most members prefer among those that all support."""
    shared = shared_names(members)
    votes: dict[str, int] = {}
    for member in members:
        liked = next((name for name, _ in member.protocols if name in shared), None)
        if liked is not None:
            votes[liked] = votes.get(liked, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None
