"""FindCoordinator, ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups in every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.group_requests import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SUBSCRIPTION,
    consumer_beat_values,
    leave_values,
)
from tests.wire.harness import FIND_COORDINATOR, Harness
from tests.wire.test_handlers_group_offsets import commit, committed
from tests.wire.test_handlers_groups import LONG, each_version, joined
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.protocol.errors import ErrorCode

GROUP_OPERATIONS = 3_400
NO_OPERATIONS = -(2**31)


def find(harness: Harness, version: int, *keys: str, key_type: int = 0) -> list[Any]:
    values = {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": keys}
    answer = harness.ask(FIND_COORDINATOR, version, **values)
    return list(answer.coordinators) if version >= 4 else [answer]


@each_version(FIND_COORDINATOR)
def test_the_coordinator_of_every_group_is_this_broker(harness: Harness, version: int) -> None:
    for key in ("group", "", LONG, "ü", "a b"):
        (row,) = find(harness, version, key)
        assert (row.error_code, row.node_id, row.host, row.port) == (0, 1, "127.0.0.1", 9092)
    assert GROUPS_TOPIC in harness.broker.image.topics


@pytest.mark.parametrize("version", range(4, 7))
def test_coordinators_are_found_for_many_keys_at_once(harness: Harness, version: int) -> None:
    assert find(harness, version) == []
    assert [row.key for row in find(harness, version, "a", "b", "a")] == ["a", "b", "a"]


def test_whoever_asks_while_the_topic_is_made_is_answered_when_it_is(harness: Harness) -> None:
    harness.holds_store = True
    for _ in range(3):
        harness.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("group",))
    assert harness.answers() == []
    harness.release_store()
    assert len(harness.answers()) == 3


def test_a_topic_that_cannot_be_made_is_no_coordinator(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("group",))
    harness.advance(60_000)
    (row,) = harness.answer(FIND_COORDINATOR, 4).coordinators
    assert row.error_code == ErrorCode.coordinator_not_available


def listed(harness: Harness, version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    answer = harness.ask(LIST_GROUPS, version, states_filter=states, types_filter=types)
    assert answer.error_code == 0
    return answer.groups


def one_of_each(harness: Harness) -> None:
    """A classic group that is stable, a consumer group, and one of commits alone."""
    joined(harness)
    harness.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, group_id="modern"))
    commit(harness, 9, {"t": [(0, 1)]}, group_id="simple")


@each_version(LIST_GROUPS)
def test_all_groups_are_listed(coordinator: Harness, version: int) -> None:
    one_of_each(coordinator)
    rows = {row.group_id: row for row in listed(coordinator, version)}
    types = {group_id: row.protocol_type for group_id, row in rows.items()}
    assert types == {GROUP: "consumer", "modern": "consumer", "simple": ""}
    if version >= 4:
        assert rows["simple"].group_state == "Empty" and rows[GROUP].group_state == "Stable"
    if version >= 5:
        kinds = {group_id: row.group_type for group_id, row in rows.items()}
        assert kinds == {GROUP: "classic", "modern": "consumer", "simple": "classic"}


def test_groups_are_filtered_by_state_and_type(coordinator: Harness) -> None:
    one_of_each(coordinator)

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        return sorted(row.group_id for row in listed(coordinator, 5, states, types))

    assert names(states=("Empty",)) == names(states=("eMPTY", "x")) == ["simple"]
    assert names(types=("consumer",)) == names(types=("CONSUMER",)) == ["modern"]
    assert names(("Stable", "Reconciling"), ("classic",)) == [GROUP]
    assert names(states=("", LONG)) == names(types=("share", "")) == []


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


@each_version(DELETE_GROUPS)
def test_groups_without_members_are_deleted(coordinator: Harness, version: int) -> None:
    one_of_each(coordinator)
    names = ("simple", GROUP, "modern", "absent", "", LONG, "simple")
    answer = coordinator.ask(DELETE_GROUPS, version, groups_names=names)
    absent, busy = ErrorCode.group_id_not_found, ErrorCode.non_empty_group
    assert {row.group_id: row.error_code for row in answer.results} == {
        "simple": ErrorCode.none,
        GROUP: busy,
        "modern": busy,
        "absent": absent,
        "": absent,
        LONG: absent,
    }
    assert len(answer.results) == len({*names})
    assert committed(coordinator, 0, group_id="simple")[0][0] == -1


def test_a_deleted_group_stays_deleted_after_a_restart(coordinator: Harness) -> None:
    member_id = joined(coordinator)
    commit(coordinator, 9, {"t": [(0, 1)]}, member_id, 1)
    coordinator.ask(LEAVE_GROUP, 5, **leave_values(5, (member_id, None)))
    assert coordinator.ask(DELETE_GROUPS, 2, groups_names=(GROUP,)).results[0].error_code == 0
    coordinator.start()
    assert listed(coordinator, 5) == ()
    assert committed(coordinator, 0)[0][0] == -1
