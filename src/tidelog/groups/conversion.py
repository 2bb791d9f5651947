"""Conversion between the protocols while a group has members (KIP-848's online migration), and its middle
state: members of the classic protocol in a consumer group.

| what                                                        | becomes                               |
|-------------------------------------------------------------|---------------------------------------|
| a classic group whose first consumer-protocol member joins  | a consumer group; the others stay     |
| a consumer group whose last consumer-protocol member leaves | a classic group, which rebalances     |
| JoinGroup of a classic member in a consumer group           | a heartbeat; its generation the epoch |
| SyncGroup                                                   | its assignment                        |
| Heartbeat                                                   | REBALANCE_IN_PROGRESS while the       |
|                                                             | member must rejoin                    |

**Invariant:** no member loses or shares a partition by a conversion: each keeps its assignment.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.limits import GROUP_PROTOCOLS_MAX
from tidelog.groups import consumer
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.classic_member import (
    Join,
    JoinAnswer,
    Leaving,
    Member,
    Protocols,
    Sync,
    SyncAnswer,
    choose_protocol,
)
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.facts import write_entry
from tidelog.groups.patterns import Patterns
from tidelog.groups.plan import hash_of
from tidelog.groups.reconcile import ConsumerMember, MemberState
from tidelog.groups.records import (
    CLASSIC,
    ClassicProtocols,
    MemberValue,
    Owned,
)
from tidelog.groups.roster import CONSUMER_TYPE
from tidelog.groups.turn import Refused, Topics, Turn
from tidelog.protocol.embedded import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidelog.protocol.errors import ErrorCode, MalformedRequest

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")


def upgrade(turn: Turn, group: ClassicGroup) -> ConsumerGroup:
    """A consumer group with the members of a classic one; raises Refused if it cannot be converted."""
    problem = _upgrade_problem(turn, group)
    if problem is not None:
        raise Refused(
            ErrorCode.group_id_not_found,
            f"Cannot upgrade classic group {group.group_id} to consumer group because {problem}.",
        )
    raised = ConsumerGroup(group.group_id)
    raised.epoch = raised.target_epoch = max(group.generation, 1)
    try:
        for member in group.members.values():
            _take_over(turn, raised, member)
    except MalformedRequest:
        raise Refused(
            ErrorCode.group_id_not_found,
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer "
            "protocol is malformed.",
        ) from None
    raised.metadata_hash = hash_of(turn, raised.subscribed_topics())
    turn.write(CLASSIC, group.group_id, None)
    turn.decision.entries += raised.entries()
    return raised


def _upgrade_problem(turn: Turn, group: ClassicGroup) -> str | None:
    if turn.settings.text("group.consumer.migration.policy") not in _UPGRADES:
        return "online upgrade is disabled"
    if not group.uses_consumer_protocol:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > turn.settings.number("group.consumer.max.size"):
        return "the group size exceeds the consumer group maximum size"
    return None


def _take_over(turn: Turn, group: ConsumerGroup, member: Member) -> None:
    subscription = read_subscription(member.protocols[0][1])
    owned = _owned(turn.topics, read_assignment(member.assignment), group.epoch)
    value = MemberValue(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicProtocols(member.session_timeout_ms, member.protocols),
    )
    group.replay_member(member.member_id, value)
    taken = ConsumerMember(member.member_id, value, group.epoch, group.epoch, MemberState.STABLE, owned)
    group.replay_current(member.member_id, taken.current)
    target = {topic_id: tuple(sorted(indexes)) for topic_id, indexes in owned.items()}
    group.replay_target_member(member.member_id, target)


def _owned(topics: Topics, partitions: dict[str, tuple[int, ...]], epoch: int) -> Owned:
    """Partitions by topic id, of the topics that exist."""
    owned: dict[bytes, dict[int, int]] = {}
    for name, indexes in partitions.items():
        topic_id = topics.id_of(name)
        if topic_id is not None and indexes:
            owned[topic_id] = dict.fromkeys(indexes, epoch)
    return owned


def must_downgrade(turn: Turn, group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Whether no member of the consumer protocol remains without the leaving members."""
    left = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        bool(left)
        and all(member.is_classic for member in left)
        and may_downgrade(turn)
        and len(left) <= turn.settings.number("group.max.size")
        and _fits(turn, _lowered(turn, group, leaving))
    )


def _fits(turn: Turn, lowered: ClassicGroup) -> bool:
    """Whether one record has room for the whole group. If not, the group is not converted."""
    lowered.protocol_name = choose_protocol(lowered.members.values())
    record = write_entry(CLASSIC, lowered.group_id, lowered.value(None))
    return len(record.value or b"") <= turn.record_size_max


def may_downgrade(turn: Turn) -> bool:
    return turn.settings.text("group.consumer.migration.policy") in _DOWNGRADES


def downgrade(turn: Turn, group: ConsumerGroup, leaving: Collection[str]) -> ClassicGroup:
    """A classic group with the remaining members, about to rebalance."""
    group.write_tombstones(turn)
    lowered = _lowered(turn, group, leaving)
    if lowered.members:
        lowered.become_converted(turn)
    return lowered


def _lowered(turn: Turn, group: ConsumerGroup, leaving: Collection[str]) -> ClassicGroup:
    lowered = ClassicGroup(group.group_id, turn.now_ms)
    lowered.protocol_type = CONSUMER_TYPE
    lowered.generation = group.epoch
    for member in group.members.values():
        if member.member_id not in leaving:
            _hand_over(turn, lowered, member)
    return lowered


def _hand_over(turn: Turn, group: ClassicGroup, member: ConsumerMember) -> None:
    assert member.value.classic is not None
    protocols = member.value.classic.protocols
    join = Join(
        group.group_id,
        member.member_id,
        member.value.instance_id,
        member.value.client_id,
        member.value.client_host,
        member.value.classic.session_timeout_ms,
        member.value.rebalance_timeout_ms,
        CONSUMER_TYPE,
        protocols,
        False,
        False,
    )
    version = _subscription_of(protocols).version
    group.add_converted(join, _assignment(turn.topics, member, version))


def _assignment(topics: Topics, member: ConsumerMember, version: int) -> bytes:
    named = {}
    for topic_id, indexes in member.assigned.items():
        name = topics.name_of(topic_id)
        if name is not None:
            named[name] = sorted(indexes)
    return write_assignment(version, named)


def _subscription_of(protocols: Protocols) -> Subscription:
    try:
        return read_subscription(protocols[0][1])
    except MalformedRequest as problem:
        raise Refused(ErrorCode.inconsistent_group_protocol, str(problem)) from None


# Classic requests to a consumer group.


def join(turn: Turn, group: ConsumerGroup, asked: Join, patterns: Patterns) -> JoinAnswer:
    """Answer a joining member at once with its assignment: the coordinator assigns, nobody waits for
    others."""
    member_id = asked.member_id or turn.new_member_id()
    size_max = turn.settings.number("group.consumer.max.size")
    if len(group.members) >= size_max and asked.member_id not in group.members:
        return JoinAnswer(ErrorCode.group_max_size_reached, asked.member_id)
    check_protocols(group, asked)
    if asked.needs_member_id and not asked.member_id and asked.instance_id is None:
        return JoinAnswer(ErrorCode.member_id_required, member_id)
    subscription = _subscription_of(asked.protocols)
    if asked.member_id and asked.member_id not in group.members and subscription.owned:
        # A former member whose partitions others have by now: it must rejoin without partitions.
        raise Refused(ErrorCode.unknown_member_id)
    known = _joining_member(turn, group, asked, member_id)
    value = MemberValue(
        asked.instance_id,
        subscription.rack_id,
        asked.client_id,
        asked.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        asked.rebalance_timeout_ms,
        None,
        ClassicProtocols(asked.session_timeout_ms, asked.protocols),
    )
    before = known or ConsumerMember(member_id, value._replace(topics=(), classic=None))
    owned = _owned(turn.topics, subscription.owned, 0)
    member = group.follow(
        turn, before, before._replace(value=value), owned, patterns, is_joining=known is None
    )
    group.stop_timer(turn, consumer.REJOIN, member.member_id)
    group.renew(turn, member)
    group.set_timer(turn, consumer.SYNC, member.member_id, asked.rebalance_timeout_ms)
    name = asked.protocols[0][0]
    return JoinAnswer(ErrorCode.none, member.member_id, member.epoch, CONSUMER_TYPE, name)


def _joining_member(turn: Turn, group: ConsumerGroup, asked: Join, member_id: str) -> ConsumerMember | None:
    if asked.instance_id is None:
        return group.members.get(member_id)
    static = group.static_member(asked.instance_id)
    if not asked.member_id:
        return group.replace(turn, static, member_id) if static is not None else None
    if static is None:
        raise Refused(ErrorCode.unknown_member_id)
    if static.member_id != asked.member_id:
        raise Refused(ErrorCode.fenced_instance_id)
    return static


def check_protocols(group: ConsumerGroup, asked: Join) -> None:
    """Raise Refused unless a classic member speaks `consumer` and shares a protocol with the other classic
    members."""
    names = {name for name, _ in asked.protocols}
    others = [
        {name for name, _ in member.value.classic.protocols}
        for member in group.members.values()
        if member.value.classic is not None and member.member_id != asked.member_id
    ]
    is_shared = not others or bool(names.intersection(*others))
    is_bounded = 0 < len(asked.protocols) <= GROUP_PROTOCOLS_MAX
    if asked.protocol_type != CONSUMER_TYPE or not is_bounded or not is_shared:
        raise Refused(ErrorCode.inconsistent_group_protocol)


def sync(turn: Turn, group: ConsumerGroup, asked: Sync) -> SyncAnswer:
    member = _classic_member(group, asked.member_id, asked.instance_id)
    assert member.value.classic is not None
    if asked.generation != member.epoch:
        raise Refused(ErrorCode.illegal_generation)
    protocol_name = member.value.classic.protocols[0][0]
    is_other_type = asked.protocol_type not in (None, CONSUMER_TYPE)
    if is_other_type or asked.protocol_name not in (None, protocol_name):
        raise Refused(ErrorCode.inconsistent_group_protocol)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _await_rejoin(turn, group, member)
        raise Refused(ErrorCode.rebalance_in_progress)
    group.stop_timer(turn, consumer.SYNC, member.member_id)
    group.renew(turn, member)
    version = _subscription_of(member.value.classic.protocols).version
    assignment = _assignment(turn.topics, member, version)
    return SyncAnswer(ErrorCode.none, CONSUMER_TYPE, protocol_name, assignment)


def heartbeat(turn: Turn, group: ConsumerGroup, asked: Sync) -> ErrorCode:
    member = _classic_member(group, asked.member_id, asked.instance_id)
    if asked.generation != member.epoch:
        return ErrorCode.illegal_generation
    group.renew(turn, member)
    is_free = member.state is MemberState.UNRELEASED and not group.waits_for_others(member)
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED or is_free:
        _await_rejoin(turn, group, member)
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _await_rejoin(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    group.set_timer_once(turn, consumer.REJOIN, member.member_id, member.value.rebalance_timeout_ms)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = _member(group, member_id, instance_id)
    if not member.is_classic:
        raise Refused(ErrorCode.unknown_member_id)
    return member


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is not None:
        member = group.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            raise Refused(ErrorCode.fenced_instance_id)
    else:
        member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.unknown_member_id)
    return member


def leaving_members(
    group: ConsumerGroup, leaving: list[Leaving]
) -> tuple[list[ConsumerMember], list[ErrorCode]]:
    """The members that a LeaveGroup request removes, of either protocol, and one error code per named
    member."""
    gone: dict[str, ConsumerMember] = {}
    errors = []
    for each in leaving:
        try:
            known = group.static_member(each.instance_id)
            member_id = known.member_id if known is not None and not each.member_id else each.member_id
            member = _member(group, member_id, each.instance_id)
            gone[member.member_id] = member
            errors.append(ErrorCode.none)
        except Refused as refusal:
            errors.append(refusal.code)
    return list(gone.values()), errors
