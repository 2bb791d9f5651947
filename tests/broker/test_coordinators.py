"""The coordinators of a whole broker: shards that load, fail, are written anew, and outlive what goes wrong.

Commits that were acknowledged are asked for again after a restart; who waits is answered whatever happens.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.broker.shards import (
    commit,
    committed,
    delete_group,
    fail_calls,
    finish_loading,
    finish_work,
    groups_broker,
    hold_work,
    join,
    restart,
    share_out,
    too_many_open,
)
from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    DESCRIBE_GROUPS,
    GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SUBSCRIPTION,
    SYNC_GROUP,
    beat_values,
    commit_values,
    consumer_beat_values,
    fetch_offsets_values,
    join_values,
    sync_values,
)
from tests.wire.harness import Harness, decode_answer, frame_head, other_connection, request_frame
from tidelog.broker.data_plane.shard import Shard
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.offsets import Offsets
from tidelog.groups.turn import Turn
from tidelog.handlers import offset_commit
from tidelog.log.log import Log
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.replication import journal
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition, Role

OVERLONG = "x" * 40_000


class Bug(Exception):
    """What no code should raise."""


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return groups_broker(tmp_path / "data")


# A full table of open files.


def test_a_failure_in_the_middle_of_writing_anew_loses_no_commit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 10)
    monkeypatch.setattr(journal, "JOURNAL_SLICE_SIZE", 1)
    groups = [f"g{place}" for place in range(5)]
    for place, group_id in enumerate(groups):
        commit(harness, place, group_id)
    for offset in range(100, 160):
        commit(harness, offset, groups[-1])
    with monkeypatch.context() as patch:
        count = fail_calls(patch, Partition, "append_own", too_many_open(), at=(2,))
        harness.advance(100)
        finish_work(harness)
        assert count[0] >= 2
    partition = harness.partition(GROUPS_TOPIC)
    for _ in range(3):
        harness.advance(70_000)
        finish_work(harness)
    assert partition.log.start_offset > 0  # in the end it was written anew
    restart(harness)
    assert [committed(harness, group_id) for group_id in groups] == [0, 1, 2, 3, 159]


def test_what_could_not_be_written_has_not_happened(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5)
    with monkeypatch.context() as patch:
        fail_calls(patch, Partition, "append_own", too_many_open())
        assert delete_group(harness) == ErrorCode.coordinator_not_available
    finish_work(harness)
    assert committed(harness) == 5
    assert delete_group(harness) == ErrorCode.none
    assert committed(harness) == -1


def test_a_generation_that_could_not_be_written_is_not_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    member_id = join(harness)
    with monkeypatch.context() as patch:
        fail_calls(patch, Partition, "append_own", too_many_open())
        assert share_out(harness, member_id).error_code == ErrorCode.coordinator_not_available
    finish_work(harness)
    beat = harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1))
    assert beat.error_code == ErrorCode.unknown_member_id


def test_loading_goes_on_when_a_file_can_be_opened_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        fail_calls(patch, Log, "read", too_many_open())
        harness.broker.coordinators.work()
        assert commit(harness, 6) == ErrorCode.coordinator_load_in_progress
    assert not harness.broker.coordinators.has_work  # it waits for the next tick
    harness.advance(100)
    finish_work(harness)
    assert committed(harness) == 5


def test_a_disk_that_fails_while_a_shard_loads_takes_its_directory_along(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        fail_calls(patch, Log, "read", OSError(errno.EIO, "Input/output error"))
        harness.broker.coordinators.work()
    assert not harness.broker.coordinators.has_work
    assert harness.partition(GROUPS_TOPIC).role is Role.OFFLINE
    assert commit(harness, 6) == ErrorCode.not_coordinator


# Bugs, and what leads to them.


def test_a_bug_in_a_turn_leaves_nobody_waiting(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = join(harness)
    with other_connection(harness):
        theirs = harness.client
        harness.send(JOIN_GROUP, 3, **join_values(3))
        waiting = harness._correlation_id
    harness.ask(JOIN_GROUP, 3, **join_values(3, leader))
    harness.client, mine = theirs, harness.client
    follower = decode_answer(JOIN_GROUP, 3, harness.answers()[0], waiting).member_id
    harness.send(SYNC_GROUP, 4, **sync_values(4, follower, 2))
    waiting = harness._correlation_id
    assert harness.answers() == []
    harness.client = mine
    with monkeypatch.context() as patch:
        fail_calls(patch, Turn, "write", Bug())
        with pytest.raises(Bug):
            share_out(harness, leader, 2)
    harness.client = theirs
    answer = decode_answer(SYNC_GROUP, 4, harness.answers()[0], waiting)
    assert answer.error_code == ErrorCode.not_coordinator
    assert harness.broker.waiting.count == 0


def test_after_a_bug_the_groups_are_what_the_journal_has(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5, "other")
    member_id = join(harness)
    with monkeypatch.context() as patch:
        fail_calls(patch, Turn, "write", Bug())
        with pytest.raises(Bug):
            share_out(harness, member_id)
    finish_work(harness)
    beat = harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1))
    assert beat.error_code == ErrorCode.unknown_member_id
    assert committed(harness, "other") == 5


@pytest.mark.parametrize(
    ("has_records", "where", "what"),
    [(True, GroupCoordinator, "resume"), (False, GroupCoordinator, "resume"), (True, Journal, "load")],
)
def test_groups_that_a_bug_keeps_from_going_on_are_tried_less_and_less_often(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, has_records: bool, where: type, what: str
) -> None:
    if has_records:
        commit(harness, 5)
    coordinators, partition = harness.broker.coordinators, harness.partition(GROUPS_TOPIC)
    harness.broker.outbox.events.clear()
    with monkeypatch.context() as patch:
        count = fail_calls(patch, where, what, Bug(), at=tuple(range(1, 100)))
        coordinators.resign(partition)
        coordinators.lead(partition)
        finish_work(harness)
        assert count[0] == 1
        assert commit(harness, 6) is ErrorCode.coordinator_load_in_progress
        for _ in range(1_200):
            harness.advance(100)
        assert 5 <= count[0] <= 9, "in two minutes"
        told = [event.name for event in harness.broker.outbox.events]
        assert told.count("group load failed") == 1 and "group write failed" not in told
    for _ in range(600):
        harness.advance(100)
    finish_work(harness)
    assert commit(harness, 7) is ErrorCode.none
    assert committed(harness) == 7
    assert not coordinators._runtime._deferred


def test_a_bug_when_time_is_up_leaves_the_groups_served(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    member_id = join(harness)
    share_out(harness, member_id)
    with monkeypatch.context() as patch:
        fail_calls(patch, Turn, "write", Bug())
        with pytest.raises(Bug):
            harness.advance(20_000)
    finish_work(harness)
    beat = harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1))
    assert beat.error_code == ErrorCode.none  # the journal has it, and its session has begun anew


def test_a_bug_that_shows_when_a_record_takes_effect_leaves_what_was_written(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5)
    with monkeypatch.context() as patch:
        fail_calls(patch, Offsets, "replay", Bug())
        assert commit(harness, 6) is ErrorCode.unknown_server_error
    finish_work(harness)
    before = committed(harness)
    restart(harness)
    assert committed(harness) == before


@pytest.mark.parametrize(
    ("api_key", "version", "values"),
    [
        (JOIN_GROUP, 6, join_values(6, group_id=OVERLONG)),
        (JOIN_GROUP, 6, join_values(6, OVERLONG)),
        (JOIN_GROUP, 6, join_values(6, instance_id=OVERLONG)),
        (JOIN_GROUP, 6, join_values(6, protocol_type=OVERLONG)),
        (JOIN_GROUP, 6, join_values(6, protocols=((OVERLONG, b""),))),
        (SYNC_GROUP, 4, sync_values(4, OVERLONG, 1)),
        (CONSUMER_HEARTBEAT, 1, consumer_beat_values(1, OVERLONG)),
        (CONSUMER_HEARTBEAT, 1, consumer_beat_values(1, group_id=OVERLONG)),
        (CONSUMER_HEARTBEAT, 1, consumer_beat_values(1, subscribed_topic_names=(OVERLONG,))),
    ],
)
def test_a_text_that_no_record_has_room_for_is_malformed(
    harness: Harness, api_key: int, version: int, values: dict[str, Any]
) -> None:
    with pytest.raises(MalformedRequest):
        harness.send(api_key, version, **values)


def test_a_group_id_that_no_record_has_room_for_is_refused(harness: Harness) -> None:
    with pytest.raises(MalformedRequest):
        commit(harness, 1, OVERLONG)
    assert delete_group(harness, OVERLONG) == ErrorCode.invalid_group_id


def test_a_client_with_the_longest_name_is_a_member_like_others(harness: Harness) -> None:
    body = request_frame(JOIN_GROUP, 3, 7, **join_values(3))[len(frame_head(JOIN_GROUP, 3, 7)) :]
    harness.send_frame(frame_head(JOIN_GROUP, 3, 7, b"c" * 32_767) + body)
    member_id = decode_answer(JOIN_GROUP, 3, harness.answers()[0], 7).member_id
    assert share_out(harness, member_id).error_code == ErrorCode.none
    restart(harness)
    assert harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1)).error_code == ErrorCode.none


# One group that asks for too much.


def test_a_generation_too_large_to_be_written_is_the_trouble_of_its_group_alone(harness: Harness) -> None:
    other = harness.ask(JOIN_GROUP, 3, **join_values(3, group_id="other")).member_id
    values = sync_values(4, other, 1, {other: b"all"}, group_id="other")
    assert harness.ask(SYNC_GROUP, 4, **values).error_code == ErrorCode.none
    with other_connection(harness) as theirs:
        harness.send(JOIN_GROUP, 3, **join_values(3, group_id="other"))
    member_id = join(harness)
    values = sync_values(4, member_id, 1, {member_id: bytes(1_100_000)})
    assert harness.ask(SYNC_GROUP, 4, **values).error_code == ErrorCode.unknown_server_error
    assert theirs.output == []
    assert not harness.broker.coordinators.has_work
    beat = harness.ask(HEARTBEAT, 3, **beat_values(other, 1, group_id="other"))
    assert beat.error_code == ErrorCode.rebalance_in_progress
    again = harness.ask(JOIN_GROUP, 3, **join_values(3, member_id))
    assert share_out(harness, member_id, again.generation_id).error_code == ErrorCode.none


def test_a_heartbeat_too_large_to_be_written_is_refused_and_others_notice_nothing(harness: Harness) -> None:
    with other_connection(harness) as theirs:
        member_id = join(harness)
        harness.send(JOIN_GROUP, 3, **join_values(3))
    names = tuple(f"{place:0200}" for place in range(6_000))
    values = consumer_beat_values(1, "m", group_id="large", subscribed_topic_names=names)
    refused = harness.ask(CONSUMER_HEARTBEAT, 1, **values)
    assert (refused.error_code, refused.assignment) == (ErrorCode.invalid_request, None)
    assert theirs.output == []
    beat = harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1))
    assert beat.error_code == ErrorCode.rebalance_in_progress


def test_a_lowered_group_too_large_to_be_written_is_the_trouble_of_that_group_alone(harness: Harness) -> None:
    """Seven classic members whose record has no room for all, and a consumer member whose session ends."""
    commit(harness, 5, "other")
    harness.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1))
    protocols = (("range", SUBSCRIPTION + bytes(200_000)),)
    large = join_values(3, protocols=protocols, session_ms=600_000, rebalance_ms=600_000)
    for _ in range(7):
        answer = harness.ask(JOIN_GROUP, 3, **large)
        assert answer.error_code == ErrorCode.none
        harness.ask(SYNC_GROUP, 3, **sync_values(3, answer.member_id, answer.generation_id))
    patient = join_values(3, group_id="other", session_ms=600_000, rebalance_ms=600_000)
    with other_connection(harness) as theirs:
        member_id = harness.ask(JOIN_GROUP, 3, **patient).member_id
        values = sync_values(4, member_id, 1, group_id="other")
        assert harness.ask(SYNC_GROUP, 4, **values).error_code == ErrorCode.none
        harness.send(JOIN_GROUP, 3, **patient)
    for _ in range(12):
        harness.advance(5_000)
        values = beat_values(member_id, 1, group_id="other")
        code = harness.ask(HEARTBEAT, 3, **values).error_code
        assert code == ErrorCode.rebalance_in_progress
        assert theirs.output == []
        assert committed(harness, "other") == 5
    shard = harness.broker.coordinators.find(GROUP)
    assert isinstance(shard, Shard) and len(shard.machine.groups[GROUP].members) == 7


def test_a_successor_too_large_to_be_written_leaves_its_group_and_the_others_as_they_were(
    harness: Harness,
) -> None:
    """A static member that is replaced in a group whose record then has no room left."""
    first = harness.ask(JOIN_GROUP, 5, **join_values(5, instance_id="i")).member_id
    values = sync_values(4, first, 1, {first: bytes(900_000)}, instance_id="i")
    assert harness.ask(SYNC_GROUP, 4, **values).error_code == ErrorCode.none
    with other_connection(harness) as theirs:
        harness.ask(JOIN_GROUP, 3, **join_values(3, group_id="other"))
        harness.send(JOIN_GROUP, 3, **join_values(3, group_id="other"))
    large = (("range", SUBSCRIPTION + bytes(200_000)),)
    refused = harness.ask(JOIN_GROUP, 5, **join_values(5, instance_id="i", protocols=large))
    assert refused.error_code == ErrorCode.unknown_server_error
    assert theirs.output == []
    for _ in range(2):
        beat = harness.ask(HEARTBEAT, 3, **beat_values(first, 1, instance_id="i"))
        assert beat.error_code == ErrorCode.none
        restart(harness)


def test_a_classic_member_too_large_to_be_written_is_not_let_into_a_consumer_group(harness: Harness) -> None:
    epoch = harness.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1)).member_epoch
    large = (("range", SUBSCRIPTION + bytes(1_200_000)),)
    refused = harness.ask(JOIN_GROUP, 3, **join_values(3, protocols=large))
    assert refused.error_code == ErrorCode.invalid_request
    for _ in range(2):
        again = harness.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1, "m", epoch))
        assert (again.error_code, again.member_epoch) == (ErrorCode.none, epoch)
        restart(harness)


def test_a_member_may_say_the_same_at_length_for_each_of_its_assignors(harness: Harness) -> None:
    """As Java's consumer does, which knows two."""
    large = SUBSCRIPTION + bytes(600_000)
    protocols = (("range", large), ("cooperative-sticky", large))
    member_id = harness.ask(JOIN_GROUP, 3, **join_values(3, protocols=protocols)).member_id
    assert share_out(harness, member_id).error_code == ErrorCode.none
    restart(harness)
    assert harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1)).error_code == ErrorCode.none


def test_a_commit_of_too_many_partitions_is_refused_as_a_whole(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 5)
    monkeypatch.setattr(offset_commit, "COMMITS_MAX", 2)
    values = commit_values(harness, 8, {"t": [(0, 6), (0, 7), (0, 8)]})
    rows = harness.ask(OFFSET_COMMIT, 8, **values).topics[0].partitions
    assert [row.error_code for row in rows] == [ErrorCode.invalid_commit_offset_size] * 3
    assert committed(harness) == 5


# Answers that are late.


def test_what_is_not_on_disk_in_time_is_told_so_that_clients_try_again(tmp_path: Path) -> None:
    harness = groups_broker(tmp_path / "data", log_flush_interval_messages="1")
    harness.holds_flushes = True
    harness.send(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1))
    assert harness.answers() == []
    harness.advance(6_000)
    late = harness.answer(CONSUMER_HEARTBEAT, 1)
    assert late.error_code == ErrorCode.coordinator_not_available
    harness.send(DESCRIBE_GROUPS, 5, groups=("a", "b"), include_authorized_operations=False)
    harness.advance(6_000)
    described = harness.answer(DESCRIBE_GROUPS, 5).groups
    assert [(row.group_id, row.error_code) for row in described] == [
        (group_id, ErrorCode.coordinator_not_available) for group_id in ("a", "b")
    ]
    harness.release_flushes()


def test_nobody_is_told_of_a_commit_that_is_not_on_disk_yet(tmp_path: Path) -> None:
    harness = groups_broker(tmp_path / "data", log_flush_interval_messages="1")
    commit(harness, 5)
    harness.holds_flushes = True
    with other_connection(harness) as theirs:
        harness.send(OFFSET_COMMIT, 8, **commit_values(harness, 8, {"t": [(0, 6)]}))
    harness.send(OFFSET_FETCH, 7, **fetch_offsets_values(harness, 7, (GROUP, {"t": [0]})))
    assert (theirs.output, harness.answers()) == ([], [])
    harness.release_flushes()
    assert len(theirs.output) == 1
    assert harness.answer(OFFSET_FETCH, 7).topics[0].partitions[0].committed_offset == 6


# A shard that another has taken the place of.


def test_a_shard_that_was_reloaded_in_its_own_tick_writes_nothing_any_more(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 6)
    monkeypatch.setattr(journal, "JOURNAL_GROWTH_MAX", 0)
    share_out(harness, join(harness))
    for offset in range(8):
        commit(harness, offset, "other")
    with monkeypatch.context() as patch:
        hold_work(patch)
        fail_calls(patch, Partition, "append_own", too_many_open())
        harness.advance(20_000)  # the member's session ends
    finish_loading(harness)
    assert commit(harness, 777, "other") == ErrorCode.none
    finish_work(harness)
    assert committed(harness, "other") == 777
    restart(harness)
    assert committed(harness, "other") == 777


def test_a_shard_whose_disk_fails_in_its_own_tick_has_no_more_work(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 1)
    monkeypatch.setattr(journal, "JOURNAL_GROWTH_MAX", 0)
    share_out(harness, join(harness))
    commit(harness, 5, "other")
    with monkeypatch.context() as patch:
        hold_work(patch)
        fail_calls(patch, Partition, "append_own", OSError(errno.EIO, "Input/output error"))
        harness.advance(20_000)
    assert not harness.broker.coordinators.has_work
    assert harness.partition(GROUPS_TOPIC).role is Role.OFFLINE


def test_a_commit_of_more_than_is_gathered_at_once_is_answered(harness: Harness) -> None:
    harness.create_topic("wide", 1_200)
    for offset in (1, 2):
        values = commit_values(harness, 8, {"wide": [(index, offset) for index in range(1_200)]})
        answer = harness.ask(OFFSET_COMMIT, 8, **values)
        assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.none}
