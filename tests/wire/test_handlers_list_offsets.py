"""ListOffsets and OffsetForLeaderEpoch in every version."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from tests.replication.leading import lead
from tests.wire.batches import with_crc
from tests.wire.harness import LIST_OFFSETS, PRODUCE, START_MS, Harness, batch_of, other_connection, parts
from tests.wire.requests import end_of_epoch, list_offset, produce, produce_values
from tidelog.handlers import list_offsets as offsets_module
from tidelog.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from tidelog.log import time_search as search_module
from tidelog.log.pages import Unready
from tidelog.replication.partition import Partition

VERSIONS = pytest.mark.parametrize("version", range(1, 12))
EPOCH_VERSIONS = pytest.mark.parametrize("version", range(2, 5))
FIRST = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
    -7: 99,
    -(2**63): 99,
}


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Timestamps 1,000 … 1,009, then 3,000 … 3,009, then 2,000 … 2,009 above the start."""
    harness.create_topic("t", partitions=2)
    for seconds in (1, 3, 2):
        assert produce(harness, 9, "t", batch_of(10, timestamp=START_MS + 1_000 * seconds)).error_code == 0
    return harness


@VERSIONS
def test_the_ends_of_the_log(filled: Harness, version: int) -> None:
    for timestamp, offset in ((LATEST, 30), (EARLIEST, 0)):
        found = list_offset(filled, version, "t", timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
    assert list_offset(filled, version, "t", LATEST, index=1).offset == 0
    filled.partition("t").log.advance_start(10)
    assert list_offset(filled, version, "t", EARLIEST).offset == 10


@VERSIONS
@pytest.mark.parametrize(
    ("after", "offset"), [(0, 0), (1_000, 0), (1_005, 5), (1_010, 10), (2_000, 10), (3_009, 19), (3_010, -1)]
)
def test_the_first_record_not_before_a_time(filled: Harness, version: int, after: int, offset: int) -> None:
    found = list_offset(filled, version, "t", START_MS + after)
    assert (found.error_code, found.offset) == (0, offset)
    assert (found.timestamp == -1) == (offset == -1)


@VERSIONS
@pytest.mark.parametrize("timestamp", FIRST)
def test_special_timestamps_have_a_first_version(filled: Harness, version: int, timestamp: int) -> None:
    found = list_offset(filled, version, "t", timestamp)
    if version < FIRST[timestamp]:
        assert (found.error_code, found.offset) == (ErrorCode.unsupported_version, -1)
        return
    offsets = {MAX_TIMESTAMP: 19, EARLIEST_LOCAL: 0, LATEST_TIERED: -1, EARLIEST_PENDING_UPLOAD: -1}
    assert (found.error_code, found.offset) == (0, offsets[timestamp])
    if timestamp == MAX_TIMESTAMP:
        assert found.timestamp == START_MS + 3_009
        assert list_offset(filled, version, "t", timestamp, index=1).offset == -1


@VERSIONS
def test_what_is_not_there_is_told(filled: Harness, version: int) -> None:
    for topic, index in (("absent", 0), ("t", 2), ("t", -1)):
        found = list_offset(filled, version, topic, LATEST, index=index)
        assert (found.error_code, found.offset) == (ErrorCode.unknown_topic_or_partition, -1)


@pytest.mark.parametrize("version", range(4, 12))
def test_another_leader_epoch_is_told(filled: Harness, version: int) -> None:
    assert (
        list_offset(filled, version, "t", LATEST, leader_epoch=3).error_code == ErrorCode.unknown_leader_epoch
    )
    filled.partition("t").leader_epoch = 4
    assert (
        list_offset(filled, version, "t", LATEST, leader_epoch=3).error_code == ErrorCode.fenced_leader_epoch
    )
    assert list_offset(filled, version, "t", LATEST, leader_epoch=4).leader_epoch == 4


@pytest.mark.parametrize("version", range(2, 12))
def test_a_committed_reader_sees_the_last_stable_offset(filled: Harness, version: int) -> None:
    log = filled.partition("t").log
    batch = batch_of(2, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    log.append(memoryview(batch), 0, len(batch), 0, START_MS)
    filled.partition("t").maybe_advance()
    assert list_offset(filled, version, "t", LATEST).offset == 32
    assert list_offset(filled, version, "t", LATEST, isolation_level=1).offset == 30


@pytest.mark.parametrize("version", range(7, 12))
def test_nothing_above_the_high_watermark_is_shown(harness: Harness, version: int) -> None:
    harness.create_topic("t", flush_messages="1")
    harness.holds_flushes = True
    harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of(3))]}, acks=0))
    for timestamp, offset in ((LATEST, 0), (MAX_TIMESTAMP, -1), (START_MS, -1)):
        assert list_offset(harness, version, "t", timestamp).offset == offset


def test_a_batch_that_only_looks_like_one_is_taken_by_its_header(harness: Harness) -> None:
    """Bodies are not looked at when they come in: its producer's affair, and no reason to give up a log."""
    harness.create_topic("t")
    rubbish = batch_of(3, timestamp=START_MS + 1_000, value=b"x" * 50)
    rubbish[61:] = b"\xff" * (len(rubbish) - 61)
    assert produce(harness, 9, "t", with_crc(rubbish)).error_code == 0
    for timestamp in (START_MS, MAX_TIMESTAMP):
        found = list_offset(harness, 7, "t", timestamp)
        assert (found.error_code, found.timestamp, found.offset) == (0, START_MS + 1_002, 0)
    assert list_offset(harness, 7, "t", LATEST).offset == 3
    assert not [event for event in harness.broker.outbox.events if event.name == "log damaged"]


@EPOCH_VERSIONS
def test_the_end_of_a_leader_epoch(filled: Harness, version: int) -> None:
    partition = filled.partition("t")
    partition.leader_epoch = 4
    produce(filled, 9, "t", batch_of(5, timestamp=START_MS))
    expected = {0: (0, 30), 1: (0, 30), 3: (0, 30), 4: (4, 35), 5: (-1, -1), -1: (-1, -1)}
    for epoch, (found_epoch, end_offset) in expected.items():
        found = end_of_epoch(filled, version, "t", epoch)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, found_epoch, end_offset), epoch


@EPOCH_VERSIONS
def test_epochs_of_what_is_not_there(filled: Harness, version: int) -> None:
    for topic, index in (("absent", 0), ("t", 2), ("t", -1)):
        found = end_of_epoch(filled, version, topic, 0, index=index)
        assert found.error_code == ErrorCode.unknown_topic_or_partition
    assert end_of_epoch(filled, version, "t", 0, leader_epoch=9).error_code == ErrorCode.unknown_leader_epoch
    filled.partition("t").leader_epoch = 10
    assert end_of_epoch(filled, version, "t", 0, leader_epoch=9).error_code == ErrorCode.fenced_leader_epoch


@VERSIONS
def test_a_partition_that_is_named_twice_is_refused_and_the_others_are_not(
    filled: Harness, version: int
) -> None:
    part = parts(LIST_OFFSETS, version)
    asks = tuple(
        part.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=LATEST)
        for index in (0, 1, 0)
    )
    topics = (part.ListOffsetsTopic(name="t", partitions=asks),)
    answer = filled.ask(
        LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, timeout=timedelta(seconds=1)
    )
    found = [(p.partition_index, p.error_code, p.offset) for p in answer.topics[0].partitions]
    refused = (0, ErrorCode.invalid_request, -1)
    assert found == [refused, (1, 0, 0)]


@EPOCH_VERSIONS
def test_a_new_leadership_is_told_of_before_anything_is_produced(filled: Harness, version: int) -> None:
    lead(filled.partition("t"), 4)
    for asked, epoch in ((0, 0), (3, 0), (4, 4)):
        found = end_of_epoch(filled, version, "t", asked)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 30), asked


@VERSIONS
def test_a_topic_that_is_named_twice_is_answered_once(filled: Harness, version: int) -> None:
    part = parts(LIST_OFFSETS, version)
    topics = tuple(
        part.ListOffsetsTopic(
            name="t",
            partitions=(
                part.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=LATEST),
            ),
        )
        for index in (0, 1)
    )
    answer = filled.ask(
        LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, timeout=timedelta(seconds=1)
    )
    (row,) = answer.topics
    assert [found.partition_index for found in row.partitions] == [0, 1]


def test_an_isolation_level_that_does_not_exist_is_refused(filled: Harness) -> None:
    assert list_offset(filled, 9, "t", LATEST, isolation_level=2).error_code == ErrorCode.invalid_request


def test_a_negative_leader_epoch_but_minus_one_is_an_old_one(filled: Harness) -> None:
    found = list_offset(filled, 9, "t", LATEST, leader_epoch=-2)
    assert found.error_code == ErrorCode.fenced_leader_epoch
    assert end_of_epoch(filled, 4, "t", 0, leader_epoch=-2).error_code == ErrorCode.fenced_leader_epoch


@pytest.fixture
def long(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A log in which the way to the newest record is long, and nobody goes on with a search by himself."""
    monkeypatch.setattr(search_module, "SEARCH_CHUNKS", 1)
    harness.create_topic("t", partitions=2)
    for after in (1_000, *[5] * 60, 2_000):
        produce(harness, 9, "t", batch_of(timestamp=START_MS + after, value=b"v" * 1_000))
    monkeypatch.setattr(type(harness.broker), "has_work", False)
    return harness


def ask_long(long: Harness, version: int, timeout_ms: int = 30_000) -> None:
    part = parts(LIST_OFFSETS, version)
    asks = tuple(
        part.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index, timestamp in ((0, START_MS + 1_500), (1, LATEST))
    )
    topics = (part.ListOffsetsTopic(name="t", partitions=asks),)
    timeout = timedelta(milliseconds=timeout_ms)
    long.send(LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, timeout=timeout)


@VERSIONS
def test_a_long_search_waits_and_others_are_served(long: Harness, version: int) -> None:
    ask_long(long, version)
    assert long.answers() == [] and long.broker.lookups.has_work
    with other_connection(long):
        correlation_id = long._correlation_id
        assert list_offset(long, version, "t", LATEST).offset == 62
        long._correlation_id = correlation_id
    steps = 0
    while long.broker.lookups.has_work:
        long.broker.lookups.work()
        steps += 1
    assert steps > 3
    first, second = long.answer(LIST_OFFSETS, version).topics[0].partitions
    assert (first.error_code, first.offset, first.timestamp) == (0, 61, START_MS + 2_000)
    assert (second.error_code, second.offset) == (0, 0)


@pytest.mark.parametrize(("version", "after_ms"), [(9, 30_000), (10, 2_000)])
def test_a_search_that_takes_too_long_has_timed_out(long: Harness, version: int, after_ms: int) -> None:
    ask_long(long, version, 2_000)
    long.advance(after_ms - 1)
    assert long.answers() == []
    long.advance(1)
    first, second = long.answer(LIST_OFFSETS, version).topics[0].partitions
    assert (first.error_code, second.error_code) == (ErrorCode.request_timed_out, 0)
    long.broker.lookups.work()
    assert not long.broker.lookups.has_work, "nobody waits for it any more"


def test_a_search_ends_when_somebody_else_leads(long: Harness) -> None:
    ask_long(long, 9)
    long.partition("t").become_offline()
    while long.broker.lookups.has_work:
        long.broker.lookups.work()
    first, _ = long.answer(LIST_OFFSETS, 9).topics[0].partitions
    assert (first.error_code, first.offset) == (ErrorCode.kafka_storage_error, -1)


def test_a_bug_in_a_search_fails_its_request_and_no_other(
    long: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a time index that was cut while the broker ran."""
    ask_long(long, 9)
    lookups, waiting = long.broker.lookups, long.broker.waiting
    ask_long(long, 9)
    broken, other = [search.request for search in lookups._searches.values()]
    step, failing = search_module.TimeSearch.step, next(iter(lookups._searches))

    def step_or_fail(search: search_module.TimeSearch) -> bool:
        if search is failing:
            raise struct.error("unpack requires a buffer of 12 bytes")
        return step(search)

    monkeypatch.setattr(search_module.TimeSearch, "step", step_or_fail)
    while lookups.has_work:
        lookups.work()
    assert [(request, type(bug)) for request, bug in waiting.failed] == [(broken, struct.error)]
    assert waiting.count == 0 and waiting.answered[-1] is other


def test_a_bug_in_a_rebuild_is_heard_by_those_who_wait_for_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    partition = harness.partition("t")
    woken: list[Partition] = []
    monkeypatch.setattr(harness.broker.waiting, "on_moved", woken.append)

    class Broken:
        def step(self) -> bool:
            raise struct.error("unpack requires a buffer of 12 bytes")

    harness.broker.lookups.wait_for(partition, Unready(Broken()))
    harness.broker.work()
    assert woken == [partition] and not harness.broker.lookups.has_work


def test_one_request_searches_no_more_than_others_have_time_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_module, "SEARCHED_AT_ONCE", 10)
    harness.create_topic("t", partitions=20)
    for index in range(20):
        produce(harness, 9, "t", batch_of(), index=index)
    monkeypatch.setattr(type(harness.broker), "has_work", False)
    part = parts(LIST_OFFSETS, 9)
    asks = tuple(
        part.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=START_MS)
        for index in range(20)
    )
    topics = (part.ListOffsetsTopic(name="t", partitions=asks),)
    harness.send(LIST_OFFSETS, 9, replica_id=-1, isolation_level=0, topics=topics)
    assert harness.answers() == []
    steps = 0
    while harness.broker.lookups.has_work:
        harness.broker.lookups.work()
        steps += 1
    assert 10 <= steps < 20
    found = harness.answer(LIST_OFFSETS, 9).topics[0].partitions
    assert [(row.partition_index, row.error_code, row.offset) for row in found] == [
        (index, 0, 0) for index in range(20)
    ]
