"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat in every version.

What is good, what is not, and what nobody should send.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    GROUP,
    GROUP_APIS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SUBSCRIPTION,
    SYNC_GROUP,
    beat_values,
    consumer_beat_values,
    group_values,
    join_values,
    leave_values,
    sync_values,
)
from tests.wire.harness import Harness, decode_answer, frame_head, other_connection, request_frame, seconds
from tests.wire.requests import NOBODY, topic_uuid
from tidelog.handlers.table import APIS
from tidelog.protocol.errors import ErrorCode, MalformedRequest

VERSIONS = {api.key: range(api.oldest_version, api.newest_version + 1) for api in APIS}
LONG = "x" * 32_000
EACH_REQUEST = pytest.mark.parametrize(
    ("api_key", "version"), [(key, version) for key in GROUP_APIS for version in VERSIONS[key]]
)


def each_version(api_key: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", VERSIONS[api_key])


def join(harness: Harness, version: int, **own: Any) -> Any:
    """Join as the only member; the answer."""
    answer = harness.ask(JOIN_GROUP, version, **join_values(version, **own))
    if answer.error_code == ErrorCode.member_id_required:
        answer = harness.ask(JOIN_GROUP, version, **join_values(version, answer.member_id, **own))
    return answer


def joined(harness: Harness, **own: Any) -> str:
    """The id of the only member of a stable group in generation 1."""
    answer = join(harness, 9, **own)
    instance_id = own.get("instance_id")
    values = sync_values(5, answer.member_id, 1, {answer.member_id: b"all"}, instance_id=instance_id)
    assert harness.ask(SYNC_GROUP, 5, **values).error_code == 0
    member_id: str = answer.member_id
    return member_id


@EACH_REQUEST
def test_a_request_that_ends_in_the_middle_is_malformed(
    coordinator: Harness, api_key: int, version: int
) -> None:
    values = group_values(coordinator, api_key, version)
    frame = request_frame(api_key, version, 1, **values)
    for end in range(len(frame_head(api_key, version, 1)), len(frame) - 1):
        with pytest.raises(MalformedRequest):
            coordinator.send_frame(frame[:end])
    assert coordinator.answers() == []


@EACH_REQUEST
def test_before_there_are_groups_everybody_is_told_to_find_the_coordinator(
    harness: Harness, api_key: int, version: int
) -> None:
    harness.create_topic("t", partitions=3)
    harness.send(api_key, version, **group_values(harness, api_key, version))
    (frame,) = harness.answers()
    answer = repr(decode_answer(api_key, version, frame, 2))
    known = ("not_coordinator", "coordinator_not_available", "groups=()", "unknown_member_id")
    assert any(word in answer for word in known), answer


@each_version(JOIN_GROUP)
def test_the_first_member_leads_the_first_generation(coordinator: Harness, version: int) -> None:
    answer = join(coordinator, version)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.leader == answer.member_id != ""
    assert [(row.member_id, row.metadata) for row in answer.members] == [(answer.member_id, SUBSCRIPTION)]
    assert answer.protocol_name == "range"
    assert answer.member_id.startswith("tester-")


@each_version(JOIN_GROUP)
@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"session_ms": -1}, ErrorCode.invalid_session_timeout),
        ({"session_ms": -(2**31)}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": LONG}, ErrorCode.unknown_member_id),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(
    coordinator: Harness, version: int, own: dict[str, Any], code: ErrorCode
) -> None:
    answer = coordinator.ask(JOIN_GROUP, version, **join_values(version, **own))
    assert (answer.error_code, answer.generation_id, answer.members) == (code, -1, ())
    assert answer.member_id == own.get("member_id", "")


@pytest.mark.parametrize("version", range(4, 10))
def test_from_version_4_a_new_member_comes_back_with_its_id(coordinator: Harness, version: int) -> None:
    answer = coordinator.ask(JOIN_GROUP, version, **join_values(version))
    assert answer.error_code == ErrorCode.member_id_required
    assert answer.member_id.startswith("tester-")


@each_version(JOIN_GROUP)
def test_huge_metadata_comes_back_whole(coordinator: Harness, version: int) -> None:
    metadata = bytes(range(256)) * 400
    answer = join(coordinator, version, protocols=(("range", metadata), ("other", b"")))
    assert answer.members[0].metadata == metadata


def test_metadata_that_no_record_can_hold_is_refused_and_does_no_harm(coordinator: Harness) -> None:
    """`__consumer_offsets` takes batches of a megabyte: what is larger cannot be remembered."""
    answer = join(coordinator, 9, protocols=(("range", bytes(2 * 1024 * 1024)),))
    values = sync_values(5, answer.member_id, 1, {answer.member_id: b"part"})
    assert coordinator.ask(SYNC_GROUP, 5, **values).error_code != ErrorCode.none
    assert join(coordinator, 9, group_id="another").error_code == 0


@pytest.mark.parametrize(("rebalance_ms", "count"), [*product((0, -1, 2**31 - 1, -(2**31)), (1, 2))])
def test_any_rebalance_timeout_is_taken(coordinator: Harness, rebalance_ms: int, count: int) -> None:
    for _ in range(count):
        answer = coordinator.ask(JOIN_GROUP, 9, **join_values(9, rebalance_ms=rebalance_ms))
        with other_connection(coordinator):
            coordinator.send(JOIN_GROUP, 9, **join_values(9, answer.member_id, rebalance_ms=rebalance_ms))
    coordinator.advance(24 * 60 * 60 * 1_000)
    assert coordinator.broker.waiting.count == 0


@each_version(SYNC_GROUP)
def test_the_leader_shares_out_and_gets_its_part(coordinator: Harness, version: int) -> None:
    member_id = join(coordinator, 9).member_id
    shares = {member_id: b"part", "nobody": b"lost"}
    answer = coordinator.ask(SYNC_GROUP, version, **sync_values(version, member_id, 1, shares))
    assert (answer.error_code, answer.assignment) == (0, b"part")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@each_version(SYNC_GROUP)
def test_a_sync_of_somebody_else_is_refused(coordinator: Harness, version: int) -> None:
    member_id = join(coordinator, 9).member_id

    def code(member: str, generation: int, **own: Any) -> ErrorCode:
        answer = coordinator.ask(SYNC_GROUP, version, **sync_values(version, member, generation, **own))
        assert answer.assignment == b""
        found: ErrorCode = answer.error_code
        return found

    for generation in (0, 2, -1, 2**31 - 1, -(2**31)):
        assert code(member_id, generation) == ErrorCode.illegal_generation
    for member in ("", "nobody", LONG):
        assert code(member, 1) == ErrorCode.unknown_member_id
    assert code(member_id, 1, group_id="") == ErrorCode.invalid_group_id
    assert code(member_id, 1, group_id="absent") == ErrorCode.unknown_member_id
    if version >= 3:
        assert code(member_id, 1, instance_id="unknown") == ErrorCode.unknown_member_id
    if version >= 5:
        for protocol in (
            (None, None),
            ("consumer", None),
            (None, "range"),
            ("connect", "range"),
            ("consumer", "x"),
        ):
            assert code(member_id, 1, protocol=protocol) == ErrorCode.inconsistent_group_protocol


@each_version(HEARTBEAT)
def test_heartbeats_are_for_members_of_the_generation(coordinator: Harness, version: int) -> None:
    member_id = joined(coordinator)

    def code(member: str, generation: int, **own: Any) -> ErrorCode:
        found: ErrorCode = coordinator.ask(
            HEARTBEAT, version, **beat_values(member, generation, **own)
        ).error_code
        return found

    assert code(member_id, 1) == ErrorCode.none
    for generation in (0, 2, -1, 2**31 - 1, -(2**31)):
        assert code(member_id, generation) == ErrorCode.illegal_generation
    for member in ("", "nobody", LONG):
        assert code(member, 1) == ErrorCode.unknown_member_id
    assert code(member_id, 1, group_id="") == ErrorCode.invalid_group_id
    assert code(member_id, 1, group_id=LONG) == ErrorCode.unknown_member_id
    if version >= 3:
        assert code(member_id, 1, instance_id="") == ErrorCode.unknown_member_id


@each_version(LEAVE_GROUP)
def test_who_leaves_is_no_member_any_more(coordinator: Harness, version: int) -> None:
    member_id = joined(coordinator)
    leaving = ("nobody", member_id, member_id) if version >= 3 else (member_id,)
    values = leave_values(version, *((each, None) for each in leaving))
    answer = coordinator.ask(LEAVE_GROUP, version, **values)
    assert answer.error_code == 0
    unknown = ErrorCode.unknown_member_id
    if version >= 3:
        assert [row.error_code for row in answer.members] == [unknown, ErrorCode.none, unknown]
    assert coordinator.ask(HEARTBEAT, 4, **beat_values(member_id, 1)).error_code == unknown


@each_version(LEAVE_GROUP)
def test_strangers_cannot_leave(coordinator: Harness, version: int) -> None:
    joined(coordinator)
    for group_id, member_id in product((GROUP, "absent", LONG), ("", "nobody", LONG)):
        values = leave_values(version, (member_id, None), group_id=group_id)
        answer = coordinator.ask(LEAVE_GROUP, version, **values)
        codes = [row.error_code for row in answer.members] if version >= 3 else [answer.error_code]
        assert codes == [ErrorCode.unknown_member_id]
    empty = coordinator.ask(LEAVE_GROUP, version, **leave_values(version, ("x", None), group_id=""))
    assert empty.error_code == ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_is_fenced_by_the_next_with_its_instance_id(
    coordinator: Harness, version: int
) -> None:
    first = joined(coordinator, instance_id="one")
    answer = coordinator.ask(JOIN_GROUP, version, **join_values(version, instance_id="one"))
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id != first
    assert answer.member_id.startswith("one-")
    beat = coordinator.ask(HEARTBEAT, 4, **beat_values(first, 1, instance_id="one"))
    assert beat.error_code == ErrorCode.fenced_instance_id
    if version == 9:
        assert answer.skip_assignment and answer.leader == answer.member_id
    else:
        assert answer.leader == first and answer.members == ()


def test_a_second_member_waits_until_the_first_has_joined_again(coordinator: Harness) -> None:
    first = joined(coordinator)
    second = coordinator.ask(JOIN_GROUP, 9, **join_values(9)).member_id
    with other_connection(coordinator) as theirs:
        coordinator.send(JOIN_GROUP, 9, **join_values(9, second))
        assert coordinator.answers() == []
    beat = coordinator.ask(HEARTBEAT, 4, **beat_values(first, 1))
    assert beat.error_code == ErrorCode.rebalance_in_progress
    answer = coordinator.ask(JOIN_GROUP, 9, **join_values(9, first))
    assert (answer.generation_id, len(answer.members)) == (2, 2)
    assert len(theirs.output) == 1


def test_who_hangs_up_while_it_waits_is_waited_for_no_more_than_its_session(coordinator: Harness) -> None:
    first = joined(coordinator)
    second = coordinator.ask(JOIN_GROUP, 9, **join_values(9)).member_id
    with other_connection(coordinator) as theirs:
        coordinator.send(JOIN_GROUP, 9, **join_values(9, second))
    coordinator.broker.waiting.drop(theirs)
    assert coordinator.ask(JOIN_GROUP, 9, **join_values(9, first)).generation_id == 2
    coordinator.send(SYNC_GROUP, 5, **sync_values(5, first, 2, {first: b"", second: b""}))
    assert coordinator.answer(SYNC_GROUP, 5).error_code == 0
    for _ in range(3):
        coordinator.advance(4_000)
        beat = coordinator.ask(HEARTBEAT, 4, **beat_values(first, 2)).error_code
    assert beat == ErrorCode.rebalance_in_progress


# The consumer protocol.


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
