"""The coordinators of a whole broker: shards that load, fail, are written anew, and outlive what goes wrong.

Commits that were acknowledged are asked for again after a restart; who waits is answered whatever happens.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    DELETE_GROUPS,
    GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    beat_values,
    commit_values,
    consumer_beat_values,
    fetch_offsets_values,
    join_values,
    serve_groups,
    sync_values,
)
from tests.wire.harness import (
    DELETE_TOPICS,
    METADATA,
    Harness,
    batch_of,
    decode_answer,
    frame_head,
    other_connection,
    request_frame,
    seconds,
)
from tests.wire.requests import metadata_values, produce
from tests.wire.test_handlers_growth import grow
from tidelog.broker.coordinators import GROUPS_TOPIC, Coordinators
from tidelog.groups.turn import Turn
from tidelog.log.log import Log
from tidelog.protocol.errors import ErrorCode, MalformedRequest, RefusedBatch
from tidelog.replication import journal
from tidelog.replication.partition import Partition, Role

OVERLONG = "x" * 40_000
DAY_MS = 24 * 60 * 60 * 1_000


class Bug(Exception):
    """What no code should raise."""


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A broker with all its groups in one partition, and a topic `t`."""
    harness = Harness(
        tmp_path / "data", group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1"
    )
    serve_groups(harness)
    harness.create_topic("t")
    return harness


def finish_work(harness: Harness) -> None:
    coordinators = harness.broker.coordinators
    while coordinators.has_work:
        coordinators.work()
        harness.settle()


def finish_loading(harness: Harness) -> None:
    """With what else there is to do left as it is."""
    for shard in harness.broker.coordinators._shards.values():
        while not shard.journal.is_loaded:
            harness.broker.coordinators._load(shard)


def restart(harness: Harness) -> None:
    harness.start()
    finish_work(harness)


def commit(harness: Harness, offset: int, group_id: str = GROUP) -> ErrorCode:
    values = commit_values(harness, 8, {"t": [(0, offset)]}, group_id=group_id)
    answer = harness.ask(OFFSET_COMMIT, 8, **values)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(harness: Harness, group_id: str = GROUP) -> int:
    answer = harness.ask(OFFSET_FETCH, 7, **fetch_offsets_values(harness, 7, (group_id, {"t": [0]})))
    assert answer.error_code == 0, answer
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def delete_topic(harness: Harness, name: str = "t") -> None:
    answer = harness.ask(DELETE_TOPICS, 3, topic_names=(name,), timeout=seconds(1))
    assert answer.responses[0].error_code == 0


def delete_group(harness: Harness, group_id: str = GROUP) -> ErrorCode:
    answer = harness.ask(DELETE_GROUPS, 2, groups_names=(group_id,))
    code: ErrorCode = answer.results[0].error_code
    return code


def join(harness: Harness) -> str:
    """The only member of a group that has yet to share out."""
    answer = harness.ask(JOIN_GROUP, 3, **join_values(3))
    assert answer.error_code == 0
    member_id: str = answer.member_id
    return member_id


def share_out(harness: Harness, member_id: str, generation: int = 1) -> Any:
    values = sync_values(4, member_id, generation, {member_id: b"all"})
    return harness.ask(SYNC_GROUP, 4, **values)


def hold_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards stay as they are, loading or long, until the test has them work."""
    monkeypatch.setattr(Coordinators, "has_work", False)


def fail_calls(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, failure: Exception, at: tuple[int, ...] = (1,)
) -> list[int]:
    """Have the calls of a method that `at` tells raise, counted from one; the count so far."""
    real: Callable[..., Any] = getattr(owner, name)
    count = [0]

    def flaky(*args: Any, **values: Any) -> Any:
        count[0] += 1
        if count[0] in at:
            raise failure
        return real(*args, **values)

    monkeypatch.setattr(owner, name, flaky)
    return count


def too_many_open() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


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
    with other_connection(harness) as theirs:
        harness.send(JOIN_GROUP, 3, **join_values(3))
        waiting = harness._correlation_id
    harness.ask(JOIN_GROUP, 3, **join_values(3, leader))
    harness.connection, mine = theirs, harness.connection
    follower = decode_answer(JOIN_GROUP, 3, harness.answers()[0], waiting).member_id
    harness.send(SYNC_GROUP, 4, **sync_values(4, follower, 2))
    waiting = harness._correlation_id
    assert harness.answers() == []
    harness.connection = mine
    with monkeypatch.context() as patch:
        fail_calls(patch, Turn, "write", Bug())
        with pytest.raises(Bug):
            share_out(harness, leader, 2)
    harness.connection = theirs
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


# A shard that another has taken the place of.


def test_a_shard_that_was_reloaded_in_its_own_tick_writes_nothing_any_more(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 6)
    monkeypatch.setattr(journal, "GROWTH_MAX", 0)
    share_out(harness, join(harness))
    for offset in range(8):
        commit(harness, offset, "other")
    with monkeypatch.context() as patch:
        hold_work(patch)
        too_large = RefusedBatch(ErrorCode.message_too_large, "a record is too large")
        fail_calls(patch, journal.Journal, "append", too_large)
        harness.advance(20_000)  # the member's session ends
    finish_loading(harness)
    assert commit(harness, 777, "other") == ErrorCode.none
    finish_work(harness)
    for _ in range(3):
        harness.advance(70_000)
        finish_work(harness)
    assert committed(harness, "other") == 777
    restart(harness)
    assert committed(harness, "other") == 777


def test_a_shard_whose_disk_fails_in_its_own_tick_has_no_more_work(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 1)
    monkeypatch.setattr(journal, "GROWTH_MAX", 0)
    share_out(harness, join(harness))
    commit(harness, 5, "other")
    with monkeypatch.context() as patch:
        hold_work(patch)
        fail_calls(patch, Partition, "append_own", OSError(errno.EIO, "Input/output error"))
        harness.advance(20_000)
    assert not harness.broker.coordinators.has_work
    assert harness.partition(GROUPS_TOPIC).role is Role.OFFLINE


# Topics that go and come.


def test_a_topic_made_anew_begins_anew_although_the_old_one_went_while_a_shard_loaded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        delete_topic(harness)
        harness.create_topic("t")
    finish_work(harness)
    assert committed(harness) == -1
    restart(harness)
    assert committed(harness) == -1


def test_a_topic_made_after_a_shard_has_loaded_begins_anew_too(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        delete_topic(harness)
    finish_work(harness)
    harness.create_topic("t")
    assert committed(harness) == -1


def test_commits_to_topics_that_are_still_there_outlive_the_loading(harness: Harness) -> None:
    commit(harness, 41)
    harness.create_topic("u")
    delete_topic(harness, "u")
    restart(harness)
    assert committed(harness) == 41


# The topic that keeps groups.


@pytest.mark.parametrize("version", [4, 13])
def test_metadata_makes_the_groups_topic_as_groups_need_it(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path / "data")
    harness.ask(METADATA, version, **metadata_values(version, [GROUPS_TOPIC], may_create=True))
    topic = harness.broker.image.topics[GROUPS_TOPIC]
    assert (len(topic.partitions), topic.config["cleanup.policy"]) == (50, "compact")
    harness.create_topic("t")
    assert commit(harness, 5) == ErrorCode.none


def test_the_groups_topic_keeps_its_partitions(harness: Harness) -> None:
    commit(harness, 5)
    for dry in (True, False):
        refused = grow(harness, 3, (GROUPS_TOPIC, 51), dry=dry)
        assert refused == {GROUPS_TOPIC: ErrorCode.invalid_topic_exception}
    assert committed(harness) == 5


def test_retention_leaves_a_groups_topic_alone_that_somebody_else_has_made(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    harness.create_topic(GROUPS_TOPIC, cleanup_policy="delete", retention_ms="1000", segment_ms="60000")
    harness.create_topic("t", retention_ms="1000", segment_ms="60000")
    commit(harness, 5, "old")
    produce(harness, 9, "t", batch_of())
    harness.advance(DAY_MS)
    commit(harness, 6, "new")
    produce(harness, 9, "t", batch_of())
    for _ in range(3):
        harness.advance(10 * 60_000)
    assert harness.partition("t").log.start_offset > 0  # retention has been at work
    assert harness.partition(GROUPS_TOPIC).log.start_offset == 0
    restart(harness)
    assert (committed(harness, "old"), committed(harness, "new")) == (5, 6)
