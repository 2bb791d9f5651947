"""ConsumerGroupHeartbeat, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    beat_values,
    consumer_beat_values,
    leave_values,
    sync_values,
)
from tests.wire.harness import Harness, seconds
from tests.wire.requests import NOBODY, topic_uuid
from tests.wire.test_handlers_group_membership import each_version
from tidelog.protocol.errors import ErrorCode

LONG = "x" * 32_000


@each_version(CONSUMER_HEARTBEAT)
def test_who_joins_gets_the_partitions_of_its_topics(coordinator: Harness, version: int) -> None:
    answer = coordinator.ask(CONSUMER_HEARTBEAT, version, **consumer_beat_values(version))
    assert (answer.error_code, answer.error_message, answer.member_id) == (0, None, "m")
    assert answer.member_epoch > 0
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, sorted(topic.partitions)) == (topic_uuid(coordinator, "t"), [0, 1, 2])
    again = coordinator.ask(
        CONSUMER_HEARTBEAT,
        version,
        **consumer_beat_values(version, "m", answer.member_epoch, owned={topic.topic_id: [0, 1, 2]}),
    )
    assert (again.error_code, again.member_epoch) == (0, answer.member_epoch)


def test_version_0_gives_a_member_its_id_and_version_1_wants_one(coordinator: Harness) -> None:
    assert coordinator.ask(CONSUMER_HEARTBEAT, 0, **consumer_beat_values(0, "")).member_id
    answer = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, ""))
    assert answer.error_code == ErrorCode.invalid_request


@each_version(CONSUMER_HEARTBEAT)
@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"group_id": " \t"}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"rebalance_timeout": seconds(-0.001)}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"owned": {NOBODY: [0]}}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"epoch": -3}, ErrorCode.invalid_request),
        ({"epoch": -(2**31)}, ErrorCode.invalid_request),
        ({"epoch": -2}, ErrorCode.invalid_request),
        ({"server_assignor": "best"}, ErrorCode.unsupported_assignor),
        ({"server_assignor": ""}, ErrorCode.unsupported_assignor),
        ({"epoch": 1}, ErrorCode.group_id_not_found),
        ({"epoch": -1}, ErrorCode.group_id_not_found),
        ({"epoch": 2**31 - 1, "member_id": LONG}, ErrorCode.group_id_not_found),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(
    coordinator: Harness, version: int, own: dict[str, Any], code: ErrorCode
) -> None:
    answer = coordinator.ask(CONSUMER_HEARTBEAT, version, **consumer_beat_values(version, **own))
    assert (answer.error_code, answer.assignment) == (code, None)
    assert GROUP not in coordinator_groups(coordinator)


def coordinator_groups(harness: Harness) -> list[str]:
    return [row.group_id for row in harness.ask(16, 5, states_filter=(), types_filter=()).groups]


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?=a)", "[", "\\", "x" * 30_000 + "(", "(" * 5_000])
def test_a_pattern_that_is_none_is_refused(coordinator: Harness, pattern: str) -> None:
    own: dict[str, Any] = {"subscribed_topic_regex": pattern, "subscribed_topic_names": None}
    answer = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, **own))
    assert answer.error_code == ErrorCode.invalid_regular_expression
    assert answer.error_message


@each_version(CONSUMER_HEARTBEAT)
def test_a_member_speaks_in_its_own_epoch(coordinator: Harness, version: int) -> None:
    epoch = coordinator.ask(CONSUMER_HEARTBEAT, version, **consumer_beat_values(version)).member_epoch

    def code(member_id: str, said: int, **own: Any) -> ErrorCode:
        values = consumer_beat_values(version, member_id, said, **own)
        found: ErrorCode = coordinator.ask(CONSUMER_HEARTBEAT, version, **values).error_code
        return found

    for said in (epoch + 1, 2**31 - 1):
        assert code("m", said) == ErrorCode.fenced_member_epoch
    assert code("m", epoch - 1, owned={topic_uuid(coordinator, "t"): [0, 7]}) == ErrorCode.fenced_member_epoch
    for member_id in ("nobody", LONG):
        assert code(member_id, epoch) == ErrorCode.unknown_member_id
    assert code("m", epoch, instance_id="unknown") == ErrorCode.unknown_member_id
    assert code("m", -2, instance_id="unknown") == ErrorCode.unknown_member_id
    assert code("m", epoch) == ErrorCode.none
    assert code("m", -1) == ErrorCode.none
    assert code("m", epoch) == ErrorCode.unknown_member_id


def test_whatever_a_member_says_it_owns_it_keeps_only_what_is_its_own(coordinator: Harness) -> None:
    answer = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1))
    mine = topic_uuid(coordinator, "t")
    for owned in ({NOBODY: [0]}, {mine: [0, 0, 0]}, {mine: [-1, 2**31 - 1]}, {mine: list(range(5_000))}):
        values = consumer_beat_values(1, "m", answer.member_epoch, owned=owned)
        told = coordinator.ask(CONSUMER_HEARTBEAT, 1, **values)
        assert (told.error_code, told.member_epoch) == (0, answer.member_epoch)
        assert sorted(told.assignment.topic_partitions[0].partitions) == [0, 1, 2]


def test_topics_that_are_not_there_are_waited_for(coordinator: Harness) -> None:
    names = ("later", "later", "", "a b", LONG)
    values = consumer_beat_values(1, subscribed_topic_names=names)
    answer = coordinator.ask(CONSUMER_HEARTBEAT, 1, **values)
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, ())
    coordinator.create_topic("later", partitions=2)
    values = consumer_beat_values(1, "m", answer.member_epoch, subscribed_topic_names=None)
    told = coordinator.ask(CONSUMER_HEARTBEAT, 1, **values)
    assert told.member_epoch > answer.member_epoch
    assert sorted(told.assignment.topic_partitions[0].partitions) == [0, 1]


def test_a_member_of_the_consumer_protocol_can_leave_by_the_classic_door_and_do_nothing_else(
    coordinator: Harness,
) -> None:
    epoch = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1)).member_epoch
    unknown = ErrorCode.unknown_member_id
    assert coordinator.ask(HEARTBEAT, 4, **beat_values("m", epoch)).error_code == unknown
    assert coordinator.ask(SYNC_GROUP, 5, **sync_values(5, "m", epoch)).error_code == unknown
    left = coordinator.ask(LEAVE_GROUP, 5, **leave_values(5, ("nobody", None), ("m", None)))
    assert [row.error_code for row in left.members] == [unknown, ErrorCode.none]
    values = consumer_beat_values(1, "m", epoch)
    assert coordinator.ask(CONSUMER_HEARTBEAT, 1, **values).error_code == unknown
