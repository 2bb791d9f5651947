"""DescribeGroups and ConsumerGroupDescribe: groups of the two protocols from outside.

**Invariant:** what is said of a group is committed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.plan import assignor_of
from tidelog.groups.reconcile import ConsumerMember
from tidelog.groups.roster import State
from tidelog.groups.turn import Turn
from tidelog.handlers.gathering import Part
from tidelog.handlers.group_coordination import for_each_group
from tidelog.handlers.operations import NO_OPERATIONS
from tidelog.handlers.request import Request, Result
from tidelog.handlers.uuids import to_uuid
from tidelog.protocol.errors import ErrorCode

_NOT_FOUND_VERSION = 6
_GROUP_OPERATIONS = 0b1101_0100_1000  # to read, delete, describe, and to describe and alter its settings
_DEAD = "Dead"
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle_describe_groups(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the state and members of classic groups; one that is not there is Dead.

    *Versions*: 4 adds instance ids; 6 says that a group is not there.
    """
    asked = request.decode()
    operations = _operations(asked)

    def failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
        return request.make(
            "DescribedGroup",
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=NO_OPERATIONS if code else operations,
        )

    def describe(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        group = groups.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            turn.decision.answer(ticket, _described_classic(request, group, operations))
            return
        reason = "not found" if group is None else "is not a classic group"
        is_told = request.version >= _NOT_FOUND_VERSION
        code = ErrorCode.group_id_not_found if is_told else ErrorCode.none
        dead = failed(group_id, code, f"Group {group_id} {reason}." if is_told else None)
        turn.decision.answer(ticket, replace(dead, group_state=_DEAD))

    def encode(groups: list[Any]) -> bytes:
        return request.respond(groups=tuple(groups))

    return for_each_group(broker, asked.groups, describe, failed, encode)


def _operations(asked: Any) -> int:
    return _GROUP_OPERATIONS if getattr(asked, "include_authorized_operations", False) else NO_OPERATIONS


def _described_classic(request: Request, group: ClassicGroup, operations: int) -> Any:
    is_stable = group.state is State.STABLE
    members = tuple(
        request.make(
            "DescribedGroupMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_of(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    )
    return request.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=members,
        authorized_operations=operations,
    )


def handle_consumer_group_describe(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the state, epochs, members and assignments of consumer groups.

    *Versions*: 1 says which protocol a member speaks.
    """
    asked = request.decode()

    def failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
        return request.make(
            "DescribedGroup",
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
            authorized_operations=NO_OPERATIONS,
        )

    def describe(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        group = groups.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            turn.decision.answer(ticket, _described_consumer(broker, request, group, _operations(asked)))
            return
        reason = "not found" if group is None else "is not a consumer group"
        text = f"Group {group_id} {reason}."
        turn.decision.answer(ticket, failed(group_id, ErrorCode.group_id_not_found, text))

    def encode(groups: list[Any]) -> bytes:
        return request.respond(groups=tuple(groups))

    return for_each_group(broker, asked.group_ids, describe, failed, encode, takes_empty=False)


def _described_consumer(broker: Broker, request: Request, group: ConsumerGroup, operations: int) -> Any:
    default = broker.settings.words("group.consumer.assignors")[0]
    return request.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_of(group.members.values(), default),
        members=tuple(_described_member(broker, request, group, each) for each in group.members.values()),
        authorized_operations=operations,
    )


def _described_member(broker: Broker, request: Request, group: ConsumerGroup, member: ConsumerMember) -> Any:
    value = member.value
    has = {topic_id: tuple(indexes) for topic_id, indexes in member.assigned.items()}
    for topic_id, indexes in member.revoking.items():  # until it has said that it has them no more
        has[topic_id] = (*has.get(topic_id, ()), *indexes)
    return request.make(
        "Member",
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        member_epoch=member.epoch,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=value.topics,
        subscribed_topic_regex=value.pattern or "",
        assignment=_assignment(broker, request, has),
        target_assignment=_assignment(broker, request, dict(group.targets.get(member.member_id, {}))),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(broker: Broker, request: Request, partitions: dict[bytes, tuple[int, ...]]) -> Any:
    topics = []
    for topic_id, indexes in partitions.items():
        topic = broker.image.topics_by_id.get(topic_id)
        if topic is not None:
            topics.append(
                request.make(
                    "TopicPartitions",
                    topic_id=to_uuid(topic_id),
                    topic_name=topic.name,
                    partitions=tuple(sorted(indexes)),
                )
            )
    return request.make("Assignment", topic_partitions=tuple(topics))
