"""Fetches of a log that is damaged, or whose index is: an error of that partition alone, and nobody waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.log.cold import ColdPages
from tests.replication.leading import lead
from tests.wire.harness import FETCH, LIST_OFFSETS, START_MS, Harness, batch_of, other_connection
from tests.wire.requests import fetch, fetch_values, list_values, produce
from tidelog.base.files import DiskFile
from tidelog.log import rebuild as rebuild_module
from tidelog.replication.partition import Partition

VALUE = b"v" * 500
SIZE = len(batch_of(value=VALUE))
COUNT = 300
MAGIC_AT, LENGTH_AT = 16, 8
VERSION = 12


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Two partitions of one batch a record; the segments of each take a hundred."""
    harness.create_topic("t", partitions=2, segment_bytes=str(100 * SIZE), index_interval_bytes="2000")
    for _ in range(COUNT):
        for index in range(2):
            produce(harness, 9, "t", batch_of(value=VALUE), index=index)
    return harness


def damage(partition: Partition, position: int, data: bytes) -> None:
    segment = partition.log.segments[0]
    with (Path(partition.log.directory.path) / segment.file.name).open("r+b") as file:
        file.seek(position)
        file.write(data)


def told(harness: Harness, name: str) -> list[dict[str, Any]]:
    return [event.fields for event in harness.broker.outbox.events if event.name == name]


@pytest.mark.parametrize("at, data", [(MAGIC_AT, b"\1"), (LENGTH_AT, pack(">i", 0x40000000))])
def test_damage_is_told_for_its_partition_and_the_others_are_served(
    filled: Harness, at: int, data: bytes
) -> None:
    damage(filled.partition("t"), 50 * SIZE + at, data)
    values = fetch_values(filled, VERSION, {"t": [(0, 50), (1, 50)]})
    for _ in range(3):
        first, second = filled.ask(FETCH, VERSION, **values).responses[0].partitions
        assert (first.error_code, first.records or b"") == (ErrorCode.corrupt_message, b"")
        assert (second.error_code, bytes(second.records[:8])) == (0, pack(">q", 50))
    (event,) = told(filled, "log damaged")
    assert event["partition"] == "t-0" and f"damaged at {50 * SIZE}" in event["problem"]
    assert fetch(filled, VERSION, "t", 100).error_code == 0, "the next segment is read by who asks for it"


def test_a_follower_is_not_led_past_a_hole(filled: Harness) -> None:
    partition = filled.partition("t")
    lead(partition, 1, (1, 3))
    damage(partition, 50 * SIZE + LENGTH_AT, pack(">i", 0x40000000))
    fetched = fetch(filled, VERSION, "t", 50, replica_id=3)
    assert (fetched.error_code, fetched.records or b"") == (ErrorCode.corrupt_message, b"")
    assert len(told(filled, "log damaged")) == 1


def test_a_consumer_of_a_damaged_follower_is_sent_back_to_the_leader(filled: Harness) -> None:
    partition = filled.partition("t")
    damage(partition, 50 * SIZE + MAGIC_AT, b"\7")
    assert partition.facts is not None
    partition.become_follower(replace(partition.facts, leader=7))
    assert fetch(filled, VERSION, "t", 50).error_code == ErrorCode.kafka_storage_error
    assert fetch(filled, VERSION, "t", 49).error_code == 0


@pytest.mark.parametrize("replica_id", [-1, 3])
def test_a_fetch_waits_for_an_index_and_is_answered_when_it_is_rebuilt(
    filled: Harness, monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 1)
    partition = filled.partition("t")
    lead(partition, 1, (1, 3))
    index = partition.log.segments[0].offset_index
    index.replace(pack(">ii", 30, 31 * SIZE + 5))
    monkeypatch.setattr(type(filled.broker), "has_work", False)
    wanted, wait_ms = {"t": [(0, 50)]}, 0 if replica_id < 0 else 500
    values = fetch_values(
        filled, VERSION, wanted, replica_id=replica_id, max_wait_ms=wait_ms, session_epoch=min(replica_id, 0)
    )
    filled.send(FETCH, VERSION, **values)
    if replica_id >= 0:  # the first answer of a session comes at once
        session_id = filled.answer(FETCH, VERSION).session_id
        values |= {"session_id": session_id, "session_epoch": 1}
        filled.send(FETCH, VERSION, **values)
    assert filled.answers() == [], "it waits"
    assert fetch_other(filled) == 0, "and nobody else does"
    steps = 0
    while filled.broker.lookups.has_work:
        filled.broker.lookups.work()
        steps += 1
    filled.settle()
    assert steps > 2
    (topic,) = filled.answer(FETCH, VERSION).responses
    assert bytes(topic.partitions[0].records[:8]) == pack(">q", 50)
    assert told(filled, "index rebuilt") == [{"partition": "t-0"}]


def fetch_other(filled: Harness) -> int:
    correlation_id = filled._correlation_id
    with other_connection(filled):
        error = int(fetch(filled, VERSION, "t", 50, index=1).error_code)
    filled._correlation_id = correlation_id  # of what is still to be answered
    return error


def test_a_fetch_whose_wait_is_over_is_answered_without_what_is_being_looked_up(
    filled: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 1)
    monkeypatch.setattr(type(filled.broker), "has_work", False)
    filled.partition("t").log.segments[0].offset_index.replace(pack(">ii", 30, 31 * SIZE + 5))
    filled.send(FETCH, VERSION, **fetch_values(filled, VERSION, {"t": [(0, 50)]}, max_wait_ms=0))
    filled.advance(999)
    assert filled.answers() == []
    filled.advance(1)
    fetched = filled.answer(FETCH, VERSION).responses[0].partitions[0]
    assert (fetched.error_code, fetched.high_watermark, fetched.records or b"") == (0, COUNT, b"")


@pytest.mark.parametrize("replica_id", [-1, 3])
def test_a_look_up_of_cold_pages_waits_until_they_are_read(
    filled: Harness, monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    partition = filled.partition("t")
    lead(partition, 1, (1, 3))
    partition.log.segments[0].seal()
    wanted, wait_ms = {"t": [(0, 50)]}, 0 if replica_id < 0 else 500
    values = fetch_values(
        filled, VERSION, wanted, replica_id=replica_id, max_wait_ms=wait_ms, session_epoch=min(replica_id, 0)
    )
    filled.holds_cold_reads = True
    ColdPages(monkeypatch)
    filled.send(FETCH, VERSION, **values)
    if replica_id >= 0:  # the first answer of a session comes at once
        values |= {"session_id": filled.answer(FETCH, VERSION).session_id, "session_epoch": 1}
        filled.send(FETCH, VERSION, **values)
    assert filled.answers() == [] and [read.file.name[-6:] for read in filled.cold_reads] == [".index"]
    filled.run_cold_reads()
    filled.settle()
    assert filled.answers() == [] and [read.file.name[-4:] for read in filled.cold_reads] == [".log"]
    pinned = filled.cold_reads[0].file
    filled.run_cold_reads()
    filled.settle()
    (topic,) = filled.answer(FETCH, VERSION).responses
    assert bytes(topic.partitions[0].records[:8]) == pack(">q", 50)
    assert isinstance(pinned, DiskFile) and not pinned.is_pinned and not filled.cold_reads


def test_a_look_up_that_the_disk_does_not_serve_fails_the_directory(
    filled: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.holds_cold_reads = True
    ColdPages(monkeypatch)
    filled.send(FETCH, VERSION, **fetch_values(filled, VERSION, {"t": [(0, 50)]}, max_wait_ms=500))
    assert filled.answers() == []
    filled.run_cold_reads(OSError(5, "Input/output error"))
    filled.settle()
    fetched = filled.answer(FETCH, VERSION).responses[0].partitions[0]
    assert fetched.error_code == ErrorCode.kafka_storage_error
    assert len(told(filled, "directory offline")) == 1


def test_a_search_by_time_waits_for_cold_pages(filled: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for segment in filled.partition("t").log.segments[:-1]:
        segment.seal()
        segment._largest = None  # as of a segment that nobody has asked
    cold = ColdPages(monkeypatch)
    filled.holds_cold_reads = True
    filled.send(LIST_OFFSETS, 9, isolation_level=0, **list_values(9, "t", START_MS))
    kinds = []
    while filled.cold_reads:
        kinds += [read.file.name.partition(".")[2] for read in filled.cold_reads]
        assert filled.answers() == [] and cold.waited == []
        filled.run_cold_reads()
        cold.waited.clear()
        filled.settle()
    assert kinds == ["timeindex", "index", "log"]
    assert filled.answer(LIST_OFFSETS, 9).topics[0].partitions[0].offset == 0
