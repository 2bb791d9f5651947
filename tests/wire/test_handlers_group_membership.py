"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in every version."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.wire.group_requests import (
    GROUP,
    GROUP_APIS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SUBSCRIPTION,
    SYNC_GROUP,
    beat_values,
    group_values,
    join_values,
    leave_values,
    sync_values,
)
from tests.wire.harness import Harness, decode_answer, frame_head, other_connection, request_frame
from tidelog.protocol.apis import APIS
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
