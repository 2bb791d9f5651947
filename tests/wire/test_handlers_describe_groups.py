"""DescribeGroups and ConsumerGroupDescribe, in every version."""

from __future__ import annotations

from tests.wire.group_requests import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DESCRIBE_GROUPS,
    GROUP,
    SUBSCRIPTION,
    consumer_beat_values,
)
from tests.wire.harness import Harness
from tests.wire.test_handlers_group_membership import LONG, each_version, joined
from tidelog.protocol.errors import ErrorCode

GROUP_OPERATIONS = 3_400
NO_OPERATIONS = -(2**31)


@each_version(DESCRIBE_GROUPS)
def test_a_classic_group_is_described(coordinator: Harness, version: int) -> None:
    member_id = joined(coordinator)
    answer = coordinator.ask(
        DESCRIBE_GROUPS, version, groups=(GROUP,), include_authorized_operations=version >= 3
    )
    (group,) = answer.groups
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
    assert group.protocol_data == "range"
    (member,) = group.members
    assert (member.member_id, member.client_id) == (member_id, "tester")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")
    if version >= 3:
        assert group.authorized_operations == GROUP_OPERATIONS


@each_version(DESCRIBE_GROUPS)
def test_a_group_that_is_not_there_is_dead(coordinator: Harness, version: int) -> None:
    coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, group_id="modern"))
    ids = ("absent", "", "absent", LONG, "modern")
    answer = coordinator.ask(DESCRIBE_GROUPS, version, groups=ids, include_authorized_operations=False)
    assert [group.group_id for group in answer.groups] == [*ids]
    code = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
    assert {(group.error_code, group.group_state, group.members) for group in answer.groups} == {
        (code, "Dead", ())
    }


@each_version(CONSUMER_DESCRIBE)
def test_a_consumer_group_is_described(coordinator: Harness, version: int) -> None:
    told = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, instance_id="one", rack_id="r"))
    answer = coordinator.ask(
        CONSUMER_DESCRIBE, version, group_ids=(GROUP,), include_authorized_operations=True
    )
    (group,) = answer.groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch == told.member_epoch
    assert group.authorized_operations == GROUP_OPERATIONS
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "one", "r")
    assert (member.subscribed_topic_names, member.member_epoch) == (("t",), told.member_epoch)
    for assigned in (member.assignment, member.target_assignment):
        assert [(row.topic_name, row.partitions) for row in assigned.topic_partitions] == [("t", (0, 1, 2))]


@each_version(CONSUMER_DESCRIBE)
def test_groups_of_another_kind_are_not_found(coordinator: Harness, version: int) -> None:
    joined(coordinator)
    ids = ("absent", "", GROUP, LONG, "absent")
    answer = coordinator.ask(CONSUMER_DESCRIBE, version, group_ids=ids, include_authorized_operations=True)
    absent = ErrorCode.group_id_not_found
    codes = [group.error_code for group in answer.groups]
    assert codes == [absent, ErrorCode.invalid_group_id, absent, absent, absent]
    assert {group.authorized_operations for group in answer.groups} == {NO_OPERATIONS}
