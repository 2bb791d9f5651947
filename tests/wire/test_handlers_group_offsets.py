"""OffsetCommit, OffsetFetch and OffsetDelete in every version; their topic is nobody's to write to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    commit_values,
    consumer_beat_values,
    delete_offsets_values,
    fetch_offsets_values,
)
from tests.wire.harness import PRODUCE, Harness, batch_of, parts, seconds
from tests.wire.requests import produce, produce_values
from tests.wire.test_handlers_group_membership import LONG, VERSIONS, each_version, joined
from tests.wire.test_handlers_topics import delete
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.protocol.errors import ErrorCode

DELETE_RECORDS = 21
METADATA_MAX = 4_096


def commit(harness: Harness, version: int, *said: Any, **own: Any) -> list[list[ErrorCode]]:
    """The errors of each topic's partitions."""
    answer = harness.ask(OFFSET_COMMIT, version, **commit_values(harness, version, *said, **own))
    return [[row.error_code for row in topic.partitions] for topic in answer.topics]


def committed(harness: Harness, *indexes: int, group_id: str = GROUP) -> list[tuple[int, int, str | None]]:
    """(offset, leader epoch, metadata) of partitions of `t`."""
    answer = harness.ask(OFFSET_FETCH, 9, **fetch_offsets_values(harness, 9, (group_id, {"t": [*indexes]})))
    rows = answer.groups[0].topics[0].partitions
    return [(row.committed_offset, row.committed_leader_epoch, row.metadata) for row in rows]


@each_version(OFFSET_COMMIT)
def test_what_is_committed_is_fetched(coordinator: Harness, version: int) -> None:
    assert commit(coordinator, version, {"t": [(0, 5), (2, 2**63 - 1)]}) == [[ErrorCode.none] * 2]
    epoch = 0 if version >= 6 else -1
    assert committed(coordinator, 0, 1, 2) == [(5, epoch, "said"), (-1, -1, ""), (2**63 - 1, epoch, "said")]


@each_version(OFFSET_FETCH)
def test_offsets_are_fetched_in_every_version(coordinator: Harness, version: int) -> None:
    commit(coordinator, 9, {"t": [(1, 7)]})
    values = fetch_offsets_values(coordinator, version, (GROUP, {"t": [1, 0]}))
    answer = coordinator.ask(OFFSET_FETCH, version, **values)
    group = answer.groups[0] if version >= 8 else answer
    if version >= 2:
        assert group.error_code == 0
    rows = {row.partition_index: row for row in group.topics[0].partitions}
    assert (rows[1].committed_offset, rows[1].metadata, rows[1].error_code) == (7, "said", 0)
    assert (rows[0].committed_offset, rows[0].metadata, rows[0].error_code) == (-1, "", 0)


@pytest.mark.parametrize("version", VERSIONS[OFFSET_FETCH][1:])
def test_all_offsets_of_a_group_are_fetched(coordinator: Harness, version: int) -> None:
    commit(coordinator, 9, {"t": [(0, 1), (1, 2)]})
    answer = coordinator.ask(
        OFFSET_FETCH, version, **fetch_offsets_values(coordinator, version, (GROUP, None))
    )
    group = answer.groups[0] if version >= 8 else answer
    assert [row.committed_offset for row in group.topics[0].partitions] == [1, 2]


@each_version(OFFSET_COMMIT)
def test_a_commit_without_a_group_must_be_of_nobody(coordinator: Harness, version: int) -> None:
    absent = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    for epoch in (0, 1, 2**31 - 1):
        assert commit(coordinator, version, {"t": [(0, 1)]}, "nobody", epoch) == [[absent]]
    assert committed(coordinator, 0) == [(-1, -1, "")]


@each_version(OFFSET_COMMIT)
def test_a_commit_of_a_stranger_or_of_the_past_is_refused(coordinator: Harness, version: int) -> None:
    member_id = joined(coordinator)
    spots = {"t": [(0, 1)]}
    for epoch in (0, 2, 2**31 - 1, -1):
        assert commit(coordinator, version, spots, member_id, epoch) == [[ErrorCode.illegal_generation]]
    for stranger, epoch in (("nobody", 1), ("", 1), ("", -1), (LONG, -(2**31))):
        assert commit(coordinator, version, spots, stranger, epoch) == [[ErrorCode.unknown_member_id]]
    if version >= 7:
        refused = commit(coordinator, version, spots, member_id, 1, instance_id="unknown")
        assert refused == [[ErrorCode.unknown_member_id]]
    assert commit(coordinator, version, spots, member_id, 1) == [[ErrorCode.none]]


@each_version(OFFSET_COMMIT)
def test_a_member_of_a_consumer_group_commits_in_its_epoch(coordinator: Harness, version: int) -> None:
    epoch = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1)).member_epoch
    spots = {"t": [(0, 1)]}
    if version < 9:
        assert commit(coordinator, version, spots, "m", epoch) == [[ErrorCode.unsupported_version]]
        return
    assert commit(coordinator, version, spots, "m", epoch) == [[ErrorCode.none]]
    for stale in (epoch - 1, epoch + 1, -2):
        assert commit(coordinator, version, spots, "m", stale) == [[ErrorCode.stale_member_epoch]]
    assert commit(coordinator, version, spots, "nobody", epoch) == [[ErrorCode.unknown_member_id]]


def plain(harness: Harness, version: int, spots: Any, *said: Any) -> list[list[ErrorCode]]:
    """A commit as consumers send it again and again: without metadata."""
    return commit(harness, version, spots, *said, metadata=None)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_commit_that_comes_again_is_judged_as_the_first_was(coordinator: Harness, version: int) -> None:
    member_id = joined(coordinator)
    for offset in (1, 2, 3):
        assert plain(coordinator, version, {"t": [(0, offset), (2, 7)]}, member_id, 1) == [
            [ErrorCode.none] * 2
        ]
        assert coordinator.client.repeated is not None
        assert [row[0] for row in committed(coordinator, 0, 1, 2)] == [offset, -1, 7]
    unknown = ErrorCode.unknown_topic_or_partition
    answer = plain(coordinator, version, {"t": [(1, 5), (3, 7)]}, member_id, 1)
    assert answer == [[ErrorCode.none, unknown]]
    assert plain(coordinator, version, {"t": [(1, 6), (2, 8)]}, member_id, 1) == [[ErrorCode.none] * 2]
    assert [row[0] for row in committed(coordinator, 0, 1, 2)] == [3, 6, 8]
    for stranger, epoch in ((member_id, 2), ("x" * len(member_id), 1)):
        assert set(plain(coordinator, version, {"t": [(1, 9), (2, 9)]}, stranger, epoch)[0]) != {
            ErrorCode.none
        }
    coordinator.advance(30_000)  # its session has ended
    refused = plain(coordinator, version, {"t": [(1, 9), (2, 9)]}, member_id, 1)
    assert refused == [[ErrorCode.unknown_member_id] * 2]
    assert [row[0] for row in committed(coordinator, 0, 1, 2)] == [3, 6, 8]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_commit_that_comes_again_for_a_topic_that_is_gone_is_refused(
    coordinator: Harness, version: int
) -> None:
    values = commit_values(coordinator, version, {"t": [(0, 1)]}, metadata=None)
    codes = []
    for is_deleted in (False, False, True):
        if is_deleted:
            delete(coordinator, 5, "t")
        answer = coordinator.ask(OFFSET_COMMIT, version, **values)
        codes.append(answer.topics[0].partitions[0].error_code)
    gone = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
    assert codes == [ErrorCode.none, ErrorCode.none, gone]


@each_version(OFFSET_COMMIT)
def test_what_is_not_there_cannot_be_committed_to(coordinator: Harness, version: int) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    absent = ErrorCode.unknown_topic_id if version >= 10 else unknown
    for index in (-1, 3, 2**31 - 1, -(2**31)):
        assert commit(coordinator, version, {"t": [(index, 1)]}) == [[unknown]]
    assert commit(coordinator, version, {"absent": [(0, 1)], "t": [(0, 4)]}) == [[absent], [ErrorCode.none]]
    assert commit(coordinator, version, {}) == []


@each_version(OFFSET_COMMIT)
def test_metadata_is_bounded_and_may_be_null(coordinator: Harness, version: int) -> None:
    spots = {"t": [(0, 1)]}
    for metadata in (None, "", "x" * METADATA_MAX, "ü" * METADATA_MAX):
        assert commit(coordinator, version, spots, metadata=metadata) == [[ErrorCode.none]]
        assert committed(coordinator, 0)[0][2] == (metadata or "")
    for metadata in ("x" * (METADATA_MAX + 1), LONG):
        refused = commit(coordinator, version, spots, metadata=metadata)
        assert refused == [[ErrorCode.offset_metadata_too_large]]


@each_version(OFFSET_COMMIT)
def test_of_two_commits_to_one_partition_the_last_holds(coordinator: Harness, version: int) -> None:
    assert commit(coordinator, version, {"t": [(0, 1), (0, 9), (0, 5)]}) == [[ErrorCode.none] * 3]
    assert committed(coordinator, 0)[0][0] == 5


@pytest.mark.parametrize("offset", [-1, -2, 0, 2**63 - 1, -(2**63)])
def test_any_offset_can_be_kept(coordinator: Harness, offset: int) -> None:
    assert commit(coordinator, 9, {"t": [(0, offset)]}, leader_epoch=-5) == [[ErrorCode.none]]
    assert committed(coordinator, 0)[0][0] == offset


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_asked_at_once(coordinator: Harness, version: int) -> None:
    commit(coordinator, 9, {"t": [(0, 3)]})
    ids = (GROUP, "absent", "", LONG)
    values = fetch_offsets_values(coordinator, version, *((group_id, {"t": [0]}) for group_id in ids))
    answer = coordinator.ask(OFFSET_FETCH, version, **values)
    offsets = [row.topics[0].partitions[0].committed_offset for row in answer.groups]
    assert ([row.group_id for row in answer.groups], offsets) == ([*ids], [3, -1, -1, -1])


@pytest.mark.parametrize("version", range(9, 11))
def test_a_member_asks_for_offsets_in_its_epoch(coordinator: Harness, version: int) -> None:
    epoch = coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1)).member_epoch

    def code(member_id: str | None, said: int) -> ErrorCode:
        asked = (GROUP, {"t": [0]})
        values = fetch_offsets_values(coordinator, version, asked, member=(member_id, said))
        found: ErrorCode = coordinator.ask(OFFSET_FETCH, version, **values).groups[0].error_code
        return found

    assert (code("m", epoch), code(None, -1)) == (ErrorCode.none, ErrorCode.none)
    for stale in (epoch - 1, epoch + 1, 2**31 - 1):
        assert code("m", stale) == ErrorCode.stale_member_epoch
    for stranger in ("nobody", "", LONG):
        assert code(stranger, epoch) == ErrorCode.unknown_member_id


def test_a_topic_id_that_nobody_has_is_said_to_be_unknown(coordinator: Harness) -> None:
    values = fetch_offsets_values(coordinator, 10, (GROUP, {"absent": [0, 5]}))
    (topic,) = coordinator.ask(OFFSET_FETCH, 10, **values).groups[0].topics
    assert [row.error_code for row in topic.partitions] == [ErrorCode.unknown_topic_id] * 2


def test_offsets_are_deleted_where_nobody_consumes(coordinator: Harness) -> None:
    def delete(asked: dict[str, list[int]], group_id: str = GROUP) -> tuple[ErrorCode, list[list[ErrorCode]]]:
        answer = coordinator.ask(OFFSET_DELETE, 0, **delete_offsets_values(asked, group_id))
        return answer.error_code, [[row.error_code for row in topic.partitions] for topic in answer.topics]

    none, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
    assert delete({"t": [0]}) == (ErrorCode.group_id_not_found, [])
    assert delete({"t": [0]}, "") == (ErrorCode.invalid_group_id, [])
    commit(coordinator, 9, {"t": [(0, 1), (1, 2)]})
    assert delete({"t": [0, 0, 2, -1, 99], "absent": [0]}) == (none, [[none] * 3 + [unknown] * 2, [unknown]])
    assert [offset for offset, _, _ in committed(coordinator, 0, 1)] == [-1, 2]
    coordinator.ask(CONSUMER_HEARTBEAT, 1, **consumer_beat_values(1))
    assert delete({"t": [1]}) == (none, [[ErrorCode.group_subscribed_to_topic]])


def test_commits_survive_a_restart(coordinator: Harness) -> None:
    commit(coordinator, 9, {"t": [(0, 1), (1, 2)]})
    commit(coordinator, 10, {"t": [(2, 3)]}, group_id="other")
    coordinator.start()
    assert [offset for offset, _, _ in committed(coordinator, 0, 1, 2)] == [1, 2, -1]
    assert committed(coordinator, 2, group_id="other")[0][0] == 3


@each_version(PRODUCE)
def test_clients_cannot_produce_to_the_topic_of_groups(coordinator: Harness, version: int) -> None:
    ends = [coordinator.partition(GROUPS_TOPIC, index).log.end_offset for index in (0, 1)]
    for acks in (-1, 1):
        outcome = produce(coordinator, version, GROUPS_TOPIC, batch_of(1), acks)
        assert outcome.error_code == ErrorCode.invalid_topic_exception
    both: dict[str, list[tuple[int, Any]]] = {GROUPS_TOPIC: [(1, batch_of(1))], "t": [(0, batch_of(1))]}
    answer = coordinator.ask(PRODUCE, version, **produce_values(coordinator, version, both))
    codes = [row.partition_responses[0].error_code for row in answer.responses]
    assert codes == [ErrorCode.invalid_topic_exception, ErrorCode.none]
    assert [coordinator.partition(GROUPS_TOPIC, index).log.end_offset for index in (0, 1)] == ends


@each_version(DELETE_RECORDS)
def test_clients_cannot_delete_records_of_the_topic_of_groups(coordinator: Harness, version: int) -> None:
    commit(coordinator, 9, {"t": [(0, 1)]})
    part = parts(DELETE_RECORDS, version)
    rows = tuple(part.DeleteRecordsPartition(partition_index=index, offset=-1) for index in (0, 1))
    topics = (part.DeleteRecordsTopic(name=GROUPS_TOPIC, partitions=rows),)
    answer = coordinator.ask(DELETE_RECORDS, version, topics=topics, timeout=seconds(1))
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [ErrorCode.invalid_topic_exception] * 2
    assert coordinator.partition(GROUPS_TOPIC, 0).log.start_offset == 0
