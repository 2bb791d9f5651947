"""The state of a member of a consumer group, and its next step towards its target (KIP-848).

| state      | the member                                       | next step when                            |
|------------|--------------------------------------------------|-------------------------------------------|
| STABLE     | has all partitions of its target                 | there is a newer target                   |
| UNREVOKED  | has partitions to revoke                         | it reports that it owns none of them      |
| UNRELEASED | waits for partitions that other members revoke   | its next heartbeat; it gets the free ones |

A member revokes first, in its old epoch; only then does it move to the new epoch and get more partitions.

**Invariant:** a partition is assigned to a member only when no other member has it, assigned or being
revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from tidelog.groups.records import CurrentValue, MemberValue, Owned, Target


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


_NOTHING: Owned = MappingProxyType({})


class ConsumerMember(NamedTuple):
    member_id: str
    value: MemberValue
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = _NOTHING
    revoking: Owned = _NOTHING

    @property
    def is_classic(self) -> bool:
        return self.value.classic is not None

    @property
    def current(self) -> CurrentValue:
        return CurrentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
        """The member with other partitions, its epoch confirmed or raised; the previous epoch stays valid,
        because the answer may get lost."""
        return ConsumerMember(self.member_id, self.value, epoch, self.epoch, state, assigned, revoking)


# The partitions that a member reports as owned; None without a report.
Reported = Mapping[bytes, Collection[int]] | None
# The member that has a partition, assigned or being revoked, by topic id.
Owners = Mapping[bytes, Mapping[int, str]]


class Goal(NamedTuple):
    epoch: int
    target: Target


def reconcile(
    member: ConsumerMember,
    goal: Goal,
    subscribed: Collection[bytes],
    has_changed: bool,
    reported: Reported,
    owners: Owners,
) -> ConsumerMember:
    """The member after its next step; the same object if no step is possible."""
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _drop_unsubscribed(member, subscribed, reported) if has_changed else member
    if member.state is MemberState.UNREVOKED and _owns(reported, member.revoking):
        return _drop_unsubscribed(member, subscribed, reported) if has_changed else member
    return _step(member, goal, subscribed, reported, owners)


def _owns(reported: Reported, partitions: Owned) -> bool:
    """Whether the member may still own one of the partitions: true without a report."""
    if reported is None:
        return True
    return any(
        not partitions[topic_id].keys().isdisjoint(indexes)
        for topic_id, indexes in reported.items()
        if topic_id in partitions
    )


def _drop_unsubscribed(
    member: ConsumerMember, subscribed: Collection[bytes], reported: Reported
) -> ConsumerMember:
    kept = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id in subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = {topic_id: dict(owned) for topic_id, owned in member.revoking.items()}
    for topic_id, owned in member.assigned.items():
        if topic_id not in kept:
            revoking[topic_id] = {**revoking.get(topic_id, {}), **owned}
    if _owns(reported, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED, kept, revoking)
    return member.moved(member.epoch, member.state, kept, member.revoking)


def _step(
    member: ConsumerMember,
    goal: Goal,
    subscribed: Collection[bytes],
    reported: Reported,
    owners: Owners,
) -> ConsumerMember:
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    added: dict[bytes, list[int]] = {}
    is_waiting = False
    for topic_id in (*goal.target, *(each for each in member.assigned if each not in goal.target)):
        target = goal.target.get(topic_id, ()) if topic_id in subscribed else ()
        owned = member.assigned.get(topic_id, {})
        if tuple(owned) == target:  # the usual acknowledgement of a revocation
            if owned:
                assigned[topic_id] = owned
            continue
        wanted = frozenset(target)
        kept = owned
        surplus = owned.keys() - wanted
        if surplus:
            kept = left = dict(owned)
            revoking[topic_id] = {index: left.pop(index) for index in sorted(surplus)}
        missing = wanted.difference(kept) if len(kept) < len(wanted) else frozenset()
        if missing:
            # A partition that the member itself is revoking is not another member's: it may keep it.
            own = missing.intersection(member.revoking.get(topic_id, ()))
            free = missing.difference(owners.get(topic_id, ())) | own
            is_waiting = is_waiting or len(free) < len(missing)
            if free:
                added[topic_id] = sorted(free)
        if kept:
            assigned[topic_id] = kept
    if revoking and _owns(reported, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED, assigned, revoking)
    for topic_id, indexes in added.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(indexes, goal.epoch)}
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    return member.moved(goal.epoch, state, assigned, {})
