"""Fetch in every version: what is read, what is waited for, and the sessions of KIP-227."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.replication.leading import lead
from tests.wire.harness import FETCH, START_MS, Harness, batch_of, other_connection
from tests.wire.requests import fetch, fetch_values, produce
from tidelog.base.files import DiskFile
from tidelog.base.limits import COPIED_SIZE_MAX
from tidelog.log.markers import End, append_markers
from tidelog.protocol.records import Marker, read_records

VERSIONS = pytest.mark.parametrize("version", range(4, 19))
SESSIONS = pytest.mark.parametrize("version", range(7, 19))
BATCH_SIZE = len(batch_of(10))


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Ten batches of ten records in partition 0 of `t`, nothing in partition 1."""
    harness.create_topic("t", partitions=2)
    for _ in range(10):
        produce(harness, 9, "t", batch_of(10))
    return harness


def offsets_in(records: bytes | None) -> list[int]:
    """The base offsets of the batches, the last of which may be cut."""
    bases, position, data = [], 0, records or b""
    while position + 12 <= len(data):
        bases.append(int.from_bytes(data[position : position + 8], "big"))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return bases


@VERSIONS
def test_everything_is_read_from_the_batch_that_holds_the_offset(filled: Harness, version: int) -> None:
    for offset, first in ((0, 0), (9, 0), (10, 10), (55, 50), (99, 90)):
        fetched = fetch(filled, version, "t", offset)
        assert (fetched.error_code, fetched.high_watermark, fetched.last_stable_offset) == (0, 100, 100)
        assert offsets_in(fetched.records) == list(range(first, 100, 10))
        assert getattr(fetched, "log_start_offset", 0) == 0
    assert read_records(fetched.records)[3].offset == 93


@VERSIONS
def test_the_end_is_empty_and_beyond_it_is_out_of_range(filled: Harness, version: int) -> None:
    assert (fetch(filled, version, "t", 100).error_code, fetch(filled, version, "t", 100).records) == (0, b"")
    for offset in (101, 2**63 - 1, -1, -(2**63)):
        assert fetch(filled, version, "t", offset).error_code == ErrorCode.offset_out_of_range


@VERSIONS
def test_what_is_not_there_is_told(filled: Harness, version: int) -> None:
    for index in (2, -1, 2**31 - 1):
        assert fetch(filled, version, "t", 0, index).error_code == ErrorCode.unknown_topic_or_partition
    missing = ErrorCode.unknown_topic_or_partition if version < 13 else ErrorCode.unknown_topic_id
    assert fetch(filled, version, "absent", 0).error_code == missing


@pytest.mark.parametrize("version", range(9, 19))
def test_another_leader_epoch_is_told(filled: Harness, version: int) -> None:
    unknown = fetch(filled, version, "t", 0, leader_epoch=5)
    assert unknown.error_code == ErrorCode.unknown_leader_epoch
    filled.partition("t").leader_epoch = 7
    fenced = fetch(filled, version, "t", 0, leader_epoch=5)
    assert fenced.error_code == ErrorCode.fenced_leader_epoch
    if version >= 16:
        assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == (1, 7)
    assert fetch(filled, version, "t", 0, leader_epoch=7).error_code == 0


@VERSIONS
def test_nobody_follows_a_single_broker(filled: Harness, version: int) -> None:
    assert fetch(filled, version, "t", 0, replica_id=3).error_code == ErrorCode.not_leader_or_follower


@VERSIONS
def test_followers_come_in_by_the_brokers_listener_alone(filled: Harness, version: int) -> None:
    filled.client.listener = "OUTSIDE"
    answer = filled.ask(FETCH, version, **fetch_values(filled, version, {"t": [(0, 0)]}, replica_id=3))
    parts = [part.error_code for topic in answer.responses for part in topic.partitions]
    assert {*parts, *([answer.error_code] if version >= 7 else [])} == {
        ErrorCode.cluster_authorization_failed
    }


@VERSIONS
def test_bytes_are_limited_but_the_first_batch_is_whole(filled: Harness, version: int) -> None:
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}, {"max_bytes": -(2**31)}):
        assert len(fetch(filled, version, "t", 0, **limits).records) == BATCH_SIZE
    two = fetch(filled, version, "t", 0, partition_max_bytes=2 * BATCH_SIZE)
    assert offsets_in(two.records) == [0, 10]


@VERSIONS
def test_a_full_answer_leaves_the_other_partitions_empty(filled: Harness, version: int) -> None:
    produce(filled, 9, "t", batch_of(10), index=1)
    values = fetch_values(filled, version, {"t": [(0, 0), (1, 0)]}, max_bytes=1)
    first, second = filled.ask(FETCH, version, **values).responses[0].partitions
    assert (len(first.records), len(second.records)) == (BATCH_SIZE, 0)
    assert second.high_watermark == 10


@VERSIONS
def test_a_fetch_waits_for_bytes(filled: Harness, version: int) -> None:
    values = fetch_values(filled, version, {"t": [(1, 0)]}, max_wait_ms=500, min_bytes=BATCH_SIZE + 1)
    filled.send(FETCH, version, **values)
    assert filled.answers() == []
    with other_connection(filled):
        produce(filled, 9, "t", batch_of(10), index=1)
    assert filled.answers() == []
    with other_connection(filled):
        produce(filled, 9, "t", batch_of(10), index=1)
    (frame,) = filled.answers()
    assert frame.count(b"value") == 20


@VERSIONS
def test_a_fetch_waits_no_longer_than_it_wants(filled: Harness, version: int) -> None:
    values = fetch_values(filled, version, {"t": [(0, 90)]}, max_wait_ms=500, min_bytes=2**30)
    filled.send(FETCH, version, **values)
    filled.advance(499)
    assert filled.answers() == []
    filled.advance(1)
    answer = filled.answer(FETCH, version)
    assert offsets_in(answer.responses[0].partitions[0].records) == [90]


def test_a_wait_has_an_end_whatever_is_asked_for(filled: Harness) -> None:
    filled.send(FETCH, 12, **fetch_values(filled, 12, {"t": [(1, 0)]}, max_wait_ms=2**31 - 1))
    filled.advance(5 * 60 * 1_000)
    assert len(filled.answers()) == 1


@VERSIONS
def test_an_error_is_not_waited_with(filled: Harness, version: int) -> None:
    values = fetch_values(filled, version, {"t": [(1, 0), (0, 500)]}, max_wait_ms=10_000)
    answer = filled.ask(FETCH, version, **values)
    assert [p.error_code for p in answer.responses[0].partitions] == [0, ErrorCode.offset_out_of_range]


def test_a_fetch_of_nothing_is_answered_at_once(filled: Harness) -> None:
    assert filled.ask(FETCH, 12, **fetch_values(filled, 12, {}, max_wait_ms=10_000)).responses == ()


def test_a_connection_that_goes_takes_its_waiting_fetch_along(filled: Harness) -> None:
    with other_connection(filled) as other:
        filled.send(FETCH, 12, **fetch_values(filled, 12, {"t": [(1, 0)]}, max_wait_ms=10_000))
        filled.broker.waiting.drop(other)
    produce(filled, 9, "t", batch_of(), index=1)
    assert (other.output, filled.broker.waiting.count) == ([], 0)


@VERSIONS
def test_a_committed_reader_stops_at_the_open_transaction(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    log = harness.partition("t").log
    for producer_id in (5, 6):
        batch = batch_of(2, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        log.append(memoryview(batch), 0, len(batch), 0, START_MS)
        if producer_id == 5:
            append_markers(log, [End(5, 0, Marker.ABORT, 0)], 0, START_MS)
    harness.partition("t").maybe_advance()
    everything = fetch(harness, version, "t", 0)
    assert (offsets_in(everything.records), everything.aborted_transactions) == ([0, 2, 3], None)
    committed = fetch(harness, version, "t", 0, isolation_level=1)
    assert (committed.high_watermark, committed.last_stable_offset) == (5, 3)
    assert offsets_in(committed.records) == [0, 2]
    assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions] == [(5, 0)]


# Sessions.


def open_session(harness: Harness, version: int, asks: list[tuple[int, int]]) -> Any:
    return harness.ask(FETCH, version, **fetch_values(harness, version, {"t": asks}, session_epoch=0))


def go_on(harness: Harness, version: int, session_id: int, epoch: int, **options: Any) -> Any:
    topics = options.pop("topics", {})
    values = fetch_values(harness, version, topics, session_id=session_id, session_epoch=epoch, **options)
    return harness.ask(FETCH, version, **values)


def told(answer: Any) -> list[tuple[int, list[int]]]:
    return [(p.partition_index, offsets_in(p.records)) for t in answer.responses for p in t.partitions]


@SESSIONS
def test_a_session_tells_only_what_is_new(filled: Harness, version: int) -> None:
    first = open_session(filled, version, [(0, 90), (1, 0)])
    assert (first.error_code, told(first)) == (0, [(0, [90]), (1, [])])
    session_id = first.session_id
    assert session_id > 0
    # The client has read on, and says so: nothing is left to tell of either partition.
    second = go_on(filled, version, session_id, 1, topics={"t": [(0, 100)]})
    assert (second.session_id, told(second)) == (session_id, [])
    produce(filled, 9, "t", batch_of(10), index=1)
    third = go_on(filled, version, session_id, 2)
    assert told(third) == [(1, [0])]
    fourth = go_on(filled, version, session_id, 3, forgotten={"t": [1]})
    assert told(fourth) == []
    assert told(go_on(filled, version, session_id, 4, topics={"t": [(1, 0)]})) == [(1, [0])]


@SESSIONS
def test_a_session_that_is_not_known_or_not_in_step_is_refused(filled: Harness, version: int) -> None:
    unknown = go_on(filled, version, 4_711, 1)
    assert (unknown.error_code, unknown.session_id) == (ErrorCode.fetch_session_id_not_found, 0)
    session_id = open_session(filled, version, [(0, 100)]).session_id
    for epoch in (2, 5, 2**31 - 1, -2):
        assert go_on(filled, version, session_id, epoch).error_code == ErrorCode.invalid_fetch_session_epoch
    assert go_on(filled, version, session_id, 1).error_code == 0


@SESSIONS
def test_a_session_can_be_left_and_opened_anew(filled: Harness, version: int) -> None:
    session_id = open_session(filled, version, [(0, 90)]).session_id
    left = go_on(filled, version, session_id, -1, topics={"t": [(0, 90)]})
    assert (left.session_id, told(left)) == (0, [(0, [90])])
    assert len(filled.broker.sessions) == 0
    assert go_on(filled, version, session_id, 1).error_code == ErrorCode.fetch_session_id_not_found
    session_id = open_session(filled, version, [(0, 90)]).session_id
    again = go_on(filled, version, session_id, 0, topics={"t": [(0, 90)]})
    assert again.session_id not in (0, session_id)
    assert len(filled.broker.sessions) == 1


def test_a_session_by_name_cannot_go_on_by_id(filled: Harness) -> None:
    session_id = open_session(filled, 12, [(0, 90)]).session_id
    assert go_on(filled, 13, session_id, 1).error_code == ErrorCode.fetch_session_topic_id_error


def test_a_session_goes_on_over_a_wait(filled: Harness) -> None:
    session_id = open_session(filled, 12, [(1, 0)]).session_id
    values = fetch_values(filled, 12, {}, session_id=session_id, session_epoch=1, max_wait_ms=1_000)
    filled.send(FETCH, 12, **values)
    assert filled.answers() == []
    with other_connection(filled):
        produce(filled, 9, "t", batch_of(10), index=1)
    (frame,) = filled.answers()
    assert b"value" in frame


def test_sessions_are_few_and_the_oldest_makes_room_when_it_is_idle(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "other", max_incremental_fetch_session_cache_slots="2")
    harness.create_topic("t")
    first, second, third = (open_session(harness, 12, [(0, 0)]).session_id for _ in range(3))
    assert 0 not in (first, second) and third == 0
    harness.advance(60_000)
    assert go_on(harness, 12, first, 1).error_code == 0
    harness.advance(60_000)
    assert open_session(harness, 12, [(0, 0)]).session_id != 0
    assert go_on(harness, 12, second, 1).error_code == ErrorCode.fetch_session_id_not_found
    assert go_on(harness, 12, first, 2).error_code == 0
    assert len(harness.broker.sessions) == 2


def test_files_are_let_go_when_nobody_takes_the_answer(filled: Harness) -> None:
    file = filled.partition("t").log.active.file
    for _ in range(3):
        filled.send(
            FETCH, 12, **fetch_values(filled, 12, {"t": [(0, 0)]}, max_wait_ms=9_000, min_bytes=2**30)
        )
    filled.broker.waiting.drop(filled.connection)
    assert file._pin_count == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_partition_that_is_named_many_times_is_read_once(filled: Harness, version: int) -> None:
    asks = {"t": [(0, 0), (1, 0), *[(0, 90)] * 50]}
    answer = filled.ask(FETCH, version, **fetch_values(filled, version, asks))
    assert told(answer) == [(0, [90]), (1, [])], "as it was asked for last"


@pytest.mark.parametrize("version", [12, 13, 18])
def test_a_reader_of_another_history_is_told_where_it_diverges(filled: Harness, version: int) -> None:
    partition = filled.partition("t")
    end_offset = partition.log.end_offset
    lead(partition, 4)

    def ask(last_fetched_epoch: int) -> Any:
        values = fetch_values(filled, version, {"t": [(0, end_offset)]})
        (topic,) = values["topics"]
        rows = (replace(topic.partitions[0], last_fetched_epoch=last_fetched_epoch),)
        values["topics"] = (replace(topic, partitions=rows),)
        return filled.ask(FETCH, version, **values).responses[0].partitions[0]

    assert ask(0).error_code == 0
    assert (ask(2).diverging_epoch.epoch, ask(2).diverging_epoch.end_offset) == (0, end_offset)
    assert ask(5).error_code == ErrorCode.offset_out_of_range


@VERSIONS
def test_an_isolation_level_that_does_not_exist_is_refused(filled: Harness, version: int) -> None:
    answer = filled.ask(FETCH, version, **fetch_values(filled, version, {"t": [(0, 0)]}, isolation_level=2))
    if version >= 7:
        assert answer.error_code == ErrorCode.invalid_request
    if version < 13:
        assert answer.responses[0].partitions[0].error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("value_size", [1_000, 100_000, 400_000])
def test_no_file_is_pinned_by_an_answer_when_too_many_are(harness: Harness, value_size: int) -> None:
    harness.create_topic("t", 2, max_message_bytes="1000000")
    batches = [batch_of(1, b"x" * value_size) for _ in range(5)]
    for batch in batches:
        for index in range(2):
            produce(harness, 9, "t", bytearray(batch), index=index)
    file = harness.partition("t").log.active.file
    assert isinstance(file, DiskFile)
    pool = file._directory.descriptors
    pinned, pool.count_max = pool.pinned_count, 0
    values = fetch_values(
        harness, 12, {"t": [(0, 0), (1, 0)]}, max_bytes=1 << 24, partition_max_bytes=1 << 24
    )
    harness.send(FETCH, 12, **values)
    assert pool.pinned_count == pinned
    first, second = harness.answer(FETCH, 12).responses[0].partitions
    assert bytes(first.records[61:]).startswith(bytes(batches[0][61:])), "the first batch is whole"
    size = len(batches[0])
    assert len(first.records) == min(5 * size, max(COPIED_SIZE_MAX, size))
    assert len(second.records or b"") == (0 if size > COPIED_SIZE_MAX else len(first.records))


def test_a_follower_copies_a_large_batch_when_too_many_files_are_pinned(harness: Harness) -> None:
    harness.create_topic("t", max_message_bytes="1000000")
    batch = batch_of(1, b"x" * 400_000)
    produce(harness, 9, "t", bytearray(batch))
    partition = harness.partition("t")
    assert partition.facts is not None
    partition.become_follower(replace(partition.facts, leader=7))
    file = partition.log.active.file
    assert isinstance(file, DiskFile)
    file._directory.descriptors.count_max = 0
    fetched = fetch(harness, 12, "t", 0)
    assert (fetched.error_code, len(fetched.records or b"")) == (0, len(batch))
