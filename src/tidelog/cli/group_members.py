"""A consumer group and its members, from the answers of DescribeGroups and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from tidelog.cli.nodes import Node

CONSUMER = "consumer"
# Of the version before the embedded messages; all versions begin with the fields of version 0
_VERSION_SIZE = 2


class Partition(NamedTuple):
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    subscription: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def __str__(self) -> str:
        """The member's name for users who need to find and stop it."""
        return f"{self.instance_id or self.id} (client {self.client_id} at {self.host})"


@dataclass(frozen=True, slots=True)
class Group:
    """`epoch` and `assignment_epoch` are None for a classic group, whose generation is not in the answer."""

    name: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    coordinator: Node
    members: tuple[Member, ...]

    def owners(self) -> dict[Partition, Member]:
        return {partition: member for member in self.members for partition in member.partitions}


def classic_group(found: Any, node: Node) -> Group:
    members = tuple(
        Member(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            _host(member.client_host),
            None,
            _subscription(member.member_metadata) if found.protocol_type == CONSUMER else (),
            _assignment(member.member_assignment) if found.protocol_type == CONSUMER else (),
        )
        for member in found.members
    )
    return Group(
        found.group_id,
        "classic",
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        None,
        None,
        node,
        members,
    )


def consumer_group(found: Any, node: Node) -> Group:
    members = tuple(
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            _host(member.client_host),
            member.member_epoch,
            tuple(member.subscribed_topic_names)
            + ((member.subscribed_topic_regex,) if member.subscribed_topic_regex else ()),
            _partitions((topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions),
        )
        for member in found.members
    )
    return Group(
        found.group_id,
        CONSUMER,
        found.group_state,
        CONSUMER,
        found.assignor_name,
        found.group_epoch,
        found.assignment_epoch,
        node,
        members,
    )


def _host(host: str) -> str:
    """The host without the slash that Java puts before an unresolved address."""
    return host.removeprefix("/")


def _subscription(data: bytes) -> tuple[str, ...]:
    subscription = _embedded(ConsumerProtocolSubscription, data)
    return () if subscription is None else tuple(map(str, subscription.topics))


def _assignment(data: bytes) -> tuple[Partition, ...]:
    """The assignment by a classic group's leader; empty if it has a format of its own."""
    assignment = _embedded(ConsumerProtocolAssignment, data)
    if assignment is None:
        return ()
    return _partitions((topic.topic, topic.partitions) for topic in assignment.assigned_partitions)


def _embedded(message: Any, data: bytes) -> Any:
    """The decoded message of a member, or None if it is empty or has a format of its own."""
    if len(data) < _VERSION_SIZE:
        return None
    try:
        return entity_reader(message)(data, _VERSION_SIZE)[0]
    except (SerialError, ValueError, IndexError):
        return None


def _partitions(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[Partition, ...]:
    return tuple(
        sorted(Partition(str(topic), int(number)) for topic, numbers in topics for number in numbers)
    )
