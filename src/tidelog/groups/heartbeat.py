"""A ConsumerGroupHeartbeat: its content, its changes, and whether the member may send it.

**Invariant:** an accepted epoch is the member's own, or the previous one if it reports only partitions of its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.groups.reconcile import ConsumerMember, Reported
from tidelog.groups.records import MemberValue, Owned
from tidelog.groups.turn import Refused
from tidelog.protocol.errors import ErrorCode

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request; None for fields without a change."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int  # -1: unchanged
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    reported: Reported
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether all fields are set: a member sends them all when it does not know what the
        coordinator has."""
        is_subscribed = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != -1 and is_subscribed and self.reported is not None


class HeartbeatAnswer(NamedTuple):
    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assigned: Owned | None = None


def updated(value: MemberValue, beat: Heartbeat) -> MemberValue:
    """The member's data with the changes of this heartbeat; the same object if nothing is new."""
    is_silent = beat.topics is None and beat.pattern is None and beat.rebalance_timeout_ms == -1
    if is_silent and beat.assignor is None and beat.instance_id is None and beat.rack_id is None:
        is_same = beat.client_id == value.client_id and beat.client_host == value.client_host
        if is_same and value.classic is None:
            return value
    new = MemberValue(
        beat.instance_id if beat.instance_id is not None else value.instance_id,
        beat.rack_id if beat.rack_id is not None else value.rack_id,
        beat.client_id,
        beat.client_host,
        tuple(sorted(set(beat.topics))) if beat.topics is not None else value.topics,
        beat.pattern if beat.pattern is not None else value.pattern,
        beat.rebalance_timeout_ms if beat.rebalance_timeout_ms != -1 else value.rebalance_timeout_ms,
        beat.assignor if beat.assignor is not None else value.assignor,
        None,
    )
    return value if new == value else new


def check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    if beat.epoch == member.epoch:
        return
    is_last = beat.epoch == member.previous_epoch and _is_within(beat.reported, member.assigned)
    if beat.epoch < member.epoch and is_last:
        return
    relation = "greater" if beat.epoch > member.epoch else "smaller"
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {relation} member epoch ({beat.epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(reported: Reported, assigned: Owned) -> bool:
    return reported is not None and all(
        index in assigned.get(topic_id, {}) for topic_id, indexes in reported.items() for index in indexes
    )


def believed(beat: Heartbeat, member: ConsumerMember, is_unheard: bool) -> Reported:
    """The reported partitions, or None if they must not count as a revocation.

    librdkafka repeats its full state with the last acknowledged partitions while it applies a newer
    assignment. So if the assignment is not acknowledged (`is_unheard`) and the report lacks a partition of an
    epoch that the member knows, the report is ignored.
    """
    if beat.reported is None or not beat.is_full or not is_unheard or beat.epoch == JOIN_EPOCH:
        return beat.reported
    for topic_id, owned in member.assigned.items():
        has = frozenset(beat.reported.get(topic_id, ()))
        if any(epoch <= beat.epoch and index not in has for index, epoch in owned.items()):
            return None
    return beat.reported


def is_all_of(reported: Mapping[bytes, Collection[int]], assigned: Owned) -> bool:
    if reported.keys() != assigned.keys():
        return False
    for topic_id, indexes in reported.items():
        owned = assigned[topic_id]
        # Most clients report them in the order of the assignment.
        if tuple(owned) != indexes and owned.keys() != set(indexes):
            return False
    return True


def has_same(member: ConsumerMember, other: ConsumerMember) -> bool:
    """Whether both have the same assigned partitions, whatever the epochs."""
    mine, others = member.assigned, other.assigned
    if mine.keys() != others.keys():
        return False
    for topic_id, owned in mine.items():
        if owned is not others[topic_id] and owned.keys() != others[topic_id].keys():
            return False
    return True
