"""Fetch sessions of consumers over a whole broker: what is read is what is due, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.broker.test_topics import assign
from tests.wire.harness import (
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    START_MS,
    Harness,
    batch_of,
    decode_answer,
    joined,
    other_connection,
    seconds,
)
from tests.wire.requests import fetch_values, produce, produce_values
from tidelog.base.limits import SESSION_EVICTION_MS
from tidelog.base.replication_rows import RACK_SELECTOR
from tidelog.broker.data_plane.checkpoints import Checkpoint
from tidelog.cluster.facts import NOBODY, BrokerEpoch, BrokerFacts
from tidelog.log.markers import End, append_markers
from tidelog.protocol.connection import Connection
from tidelog.protocol.records import Marker
from tidelog.replication.follower import Cut
from tidelog.replication.partition import Partition

VERSION = 12
ONE = len(batch_of())
PARTITION_COUNT = 4
COMMITTED = 1


class Reader:
    """A consumer with a session, which names what it wants otherwise than before."""

    def __init__(self, harness: Harness, offsets: dict[int, int], rack: str = "", **options: Any) -> None:
        self.harness = harness
        self.rack = rack
        self.offsets = dict(offsets)
        self.session_id, self.epoch = 0, 0
        self.ask(offsets, **options)

    def values(self, offsets: dict[int, int] | None = None, **options: Any) -> dict[str, Any]:
        self.offsets |= offsets or {}
        topics = {"t": list(offsets.items())} if offsets else {}
        session: dict[str, Any] = {"session_id": self.session_id, "session_epoch": self.epoch}
        return fetch_values(self.harness, VERSION, topics, **session, **options) | {"rack_id": self.rack}

    def ask(self, offsets: dict[int, int] | None = None, **options: Any) -> dict[int, Any]:
        """The parts of an answer that comes at once."""
        self.harness.send(FETCH, VERSION, **self.values(offsets, **options))
        return self.answer()

    def wait(self, offsets: dict[int, int] | None = None, **options: Any) -> Connection:
        """Have a fetch wait on a connection of its own."""
        with other_connection(self.harness) as connection:
            self.harness.send(FETCH, VERSION, **self.values(offsets, max_wait_ms=10_000, **options))
        assert connection.output == []
        return connection

    def answer(self, connection: Connection | None = None) -> dict[int, Any]:
        output = (connection or self.harness.connection).output
        frame = joined(output.pop())
        assert not output
        answer = decode_answer(FETCH, VERSION, frame, int.from_bytes(frame[4:8], "big"))
        assert answer.error_code == 0
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        parts = [part for topic in answer.responses for part in topic.partitions]
        assert len({part.partition_index for part in parts}) == len(parts)
        return {part.partition_index: part for part in parts}


def write(harness: Harness, index: int, count: int = 1) -> None:
    with other_connection(harness):
        for _ in range(count):
            assert produce(harness, 9, "t", batch_of(), index=index).error_code == 0


def follow(harness: Harness, index: int, leader: int) -> None:
    partition = harness.partition("t", index)
    assert partition.facts is not None
    partition.become_follower(replace(partition.facts, leader=leader))
    harness.broker.signals.advanced.emit(partition)


def lead(harness: Harness, index: int) -> None:
    partition = harness.partition("t", index)
    assert partition.facts is not None
    partition.become_leader(1, harness.broker.image, replace(partition.facts, leader=1), 0)
    harness.broker.signals.advanced.emit(partition)


def sizes(parts: dict[int, Any]) -> dict[int, int]:
    return {index: len(part.records or b"") for index, part in parts.items()}


@pytest.fixture
def empty(harness: Harness) -> Harness:
    harness.create_topic("t", PARTITION_COUNT)
    return harness


def test_a_record_costs_a_look_at_its_own_partition(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 100)
    reader = Reader(harness, dict.fromkeys(range(100), 0))
    looked_at: list[int] = []
    read = Partition.read

    def counting(partition: Partition, *arguments: Any) -> Any:
        looked_at.append(partition.index)
        return read(partition, *arguments)

    monkeypatch.setattr(Partition, "read", counting)
    for offset in range(3):
        connection = reader.wait({7: offset})
        write(harness, 7)
        assert sizes(reader.answer(connection)) == {7: ONE}
    assert reader.ask({7: 3}) == {}
    assert set(looked_at) == {7} and len(looked_at) == 7  # on arrival and when woken


def test_a_partition_that_is_first_named_by_a_fetch_that_waits_wakes_it(empty: Harness) -> None:
    reader = Reader(empty, {0: 0})
    connection = reader.wait({2: 0})
    write(empty, 2)
    assert sizes(reader.answer(connection)) == {2: ONE}


def test_what_an_answer_had_no_room_for_comes_next_although_it_has_not_moved(empty: Harness) -> None:
    reader = Reader(empty, dict.fromkeys(range(3), 0))
    for index in range(3):
        write(empty, index, 2)
    room: dict[str, Any] = {"max_bytes": 2 * ONE}
    assert sizes(reader.ask(**room)) == {0: 2 * ONE, 1: 0, 2: 0}
    assert sizes(reader.ask({0: 2}, **room)) == {1: 2 * ONE}
    assert sizes(reader.ask({1: 2}, **room)) == {2: 2 * ONE}
    assert reader.ask({2: 2}, **room) == {}


def test_partitions_take_turns_though_one_of_them_always_has_more(empty: Harness) -> None:
    reader = Reader(empty, dict.fromkeys(range(3), 0))
    write(empty, 0, 6)
    served: list[int] = []
    named: dict[int, int] = {}
    for number in range(6):
        if number == 1:
            write(empty, 1, 2)
            write(empty, 2, 2)
        (index,) = [index for index, size in sizes(reader.ask(named, max_bytes=1)).items() if size]
        named = {index: reader.offsets[index] + 1}
        served.append(index)
    assert served == [0, 0, 1, 2, 0, 1]


def test_records_that_are_not_read_on_from_are_given_again(empty: Harness) -> None:
    write(empty, 1)
    reader = Reader(empty, {0: 0, 1: 0})
    for _ in range(2):
        assert sizes(reader.ask()) == {1: ONE}
    assert reader.ask({1: 1}) == {}


def test_what_moves_between_two_looks_is_answered_once(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    connection = reader.wait(min_bytes=3 * ONE)
    write(empty, 0)
    write(empty, 1)
    assert connection.output == []
    write(empty, 0)
    assert sizes(reader.answer(connection)) == {0: 2 * ONE, 1: ONE}
    write(empty, 2)
    assert reader.ask({0: 2, 1: 1}) == {}


def test_a_high_watermark_that_moves_without_records_is_told(empty: Harness) -> None:
    image = empty.broker.image
    image.brokers[2], image.broker_epochs[2] = BrokerFacts(2, "127.0.0.1", 9093, "", 1), BrokerEpoch(1, 1)
    assign(empty, 0, 1, 1, 2, isr=(1, 2))
    reader = Reader(empty, {0: 0, 1: 0})
    with other_connection(empty):
        empty.send(PRODUCE, 9, **produce_values(empty, 9, {"t": [(0, batch_of())]}))
    assert reader.ask() == {}, "it is not committed"
    connection = reader.wait()
    with other_connection(empty):
        values = fetch_values(empty, 16, {"t": [(0, 1)]}, replica_id=2, leader_epoch=1)
        empty.ask(FETCH, 16, **values)
    (part,) = reader.answer(connection).values()
    assert (part.high_watermark, len(part.records)) == (1, ONE)


def test_a_committed_reader_is_told_a_high_watermark_above_its_bound_once(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0}, isolation_level=COMMITTED)
    with other_connection(empty):
        batch = batch_of(2, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        log = empty.partition("t").log
        log.append(memoryview(batch), 0, len(batch), 0, START_MS)
        empty.partition("t").maybe_advance()
        empty.broker.signals.advanced.emit(empty.partition("t"))
    (part,) = reader.ask(isolation_level=COMMITTED).values()
    assert (part.high_watermark, part.last_stable_offset, part.records) == (2, 0, b"")
    assert reader.ask(isolation_level=COMMITTED) == {}
    append_markers(log, [End(5, 0, Marker.COMMIT, 0)], 0, START_MS)
    empty.partition("t").maybe_advance()
    empty.broker.signals.advanced.emit(empty.partition("t"))
    (part,) = reader.ask(isolation_level=COMMITTED).values()
    assert part.last_stable_offset == 3 and len(part.records) > ONE


def test_a_reader_that_asks_for_what_is_not_committed_gets_it_at_once(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0}, isolation_level=COMMITTED)
    batch = batch_of(2, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    empty.partition("t").log.append(memoryview(batch), 0, len(batch), 0, START_MS)
    empty.partition("t").maybe_advance()
    empty.broker.signals.advanced.emit(empty.partition("t"))
    reader.ask(isolation_level=COMMITTED)
    assert reader.ask(isolation_level=COMMITTED) == {}
    assert sizes(reader.ask()) == {0: len(batch)}


def test_where_a_log_begins_is_told_when_it_changes(empty: Harness) -> None:
    write(empty, 0, 3)
    reader = Reader(empty, {0: 3, 1: 0})
    assert reader.ask() == {}
    empty.partition("t").trim(2)
    empty.broker.waiting.on_moved(empty.partition("t"))
    (part,) = reader.ask().values()
    assert (part.log_start_offset, part.records) == (2, b"")
    assert reader.ask() == {}


def test_an_error_is_told_until_it_is_over_and_that_as_well(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    connection = reader.wait()
    follow(empty, 0, NOBODY)
    empty.settle()
    (part,) = reader.answer(connection).values()
    assert part.error_code == ErrorCode.not_leader_or_follower
    follow(empty, 0, 2)
    (part,) = reader.ask().values()
    assert (part.error_code, part.high_watermark) == (0, 0), "a follower serves consumers"
    assert reader.ask() == {}
    empty.partition("t").become_offline()
    empty.broker.signals.advanced.emit(empty.partition("t"))
    for _ in range(2):
        told = reader.ask(max_wait_ms=10_000)
        assert [(part.partition_index, part.error_code) for part in told.values()] == [
            (0, ErrorCode.kafka_storage_error)
        ]


def test_a_disk_that_fails_under_the_last_read_takes_along_what_was_read_before(
    empty: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(empty, 1)
    failing = empty.partition("t", 1)
    read = Partition.read

    def fail_one(partition: Partition, *arguments: Any) -> Any:
        if partition is failing and not partition.error_code:
            raise OSError(5, "Input/output error")
        return read(partition, *arguments)

    monkeypatch.setattr(Partition, "read", fail_one)
    reader = Reader(empty, {0: 0, 1: 0})
    told = reader.ask(max_wait_ms=10_000)
    assert {part.error_code for part in told.values()} == {ErrorCode.kafka_storage_error}
    assert set(told) == {0, 1}


def test_an_offset_that_is_out_of_range_is_told_until_it_is_not(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    for _ in range(2):
        (part,) = reader.ask({0: 1}).values()
        assert part.error_code == ErrorCode.offset_out_of_range
    write(empty, 0)
    (part,) = reader.ask().values()
    assert (part.error_code, part.high_watermark, part.records) == (0, 1, b"")
    assert reader.ask() == {}


def test_a_topic_that_is_made_again_under_its_name_is_read_and_waited_for(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    connection = reader.wait()
    with other_connection(empty):
        empty.ask(DELETE_TOPICS, 1, topic_names=("t",), timeout=seconds(1))
    gone = reader.answer(connection)
    assert {part.error_code for part in gone.values()} == {ErrorCode.unknown_topic_or_partition}
    assert set(gone) == set(reader.ask()) == {0, 1}
    empty.create_topic("t", 2)
    assert set(reader.ask()) == {0, 1}
    connection = reader.wait()
    write(empty, 1)
    assert sizes(reader.answer(connection)) == {1: ONE}


@pytest.mark.parametrize("has_session", [True, False])
def test_a_topic_that_is_made_again_before_its_reader_was_looked_at_is_waited_for(
    empty: Harness, has_session: bool
) -> None:
    """Thousands may be looked at before."""
    reader = Reader(empty, {0: 0, 1: 0})
    if not has_session:
        reader.epoch = -1
    connection = reader.wait({0: 0, 1: 0})
    room = empty.broker.waiting
    with pytest.MonkeyPatch.context() as patch, other_connection(empty):
        patch.setattr(room, "wake", lambda: None)
        empty.ask(DELETE_TOPICS, 1, topic_names=("t",), timeout=seconds(1))
        empty.create_topic("t", 2)
    room.wake()
    if connection.output == []:
        write(empty, 1)
    assert connection.output


def test_a_partition_that_is_paused_at_its_end_is_silent_until_it_is_named(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    assert reader.ask(forgotten={"t": [0]}) == {}
    connection = reader.wait()
    write(empty, 0)
    assert connection.output == []
    write(empty, 1)
    assert sizes(reader.answer(connection)) == {1: ONE}
    assert sizes(reader.ask({0: 0, 1: 1})) == {0: ONE}


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_forgets_nothing_that_it_names(empty: Harness, epoch: int) -> None:
    write(empty, 0)
    reader = Reader(empty, {})
    reader.session_id, reader.epoch = 0, epoch
    assert sizes(reader.ask({0: 0}, forgotten={"t": [0]})) == {0: ONE}


def test_a_session_that_is_replaced_answers_the_fetch_that_waits_in_it(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    connection = reader.wait()
    other = Reader.__new__(Reader)
    other.harness, other.rack, other.offsets = empty, "", {}
    other.session_id, other.epoch = reader.session_id, 0
    assert set(other.ask({0: 0})) == {0}
    assert reader.answer(connection) == {} and len(empty.broker.sessions) == 1
    write(empty, 0)
    assert not empty.broker.waiting.watches.moved and empty.broker.waiting.count == 0


def test_the_next_fetch_of_a_session_answers_the_one_that_waits(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    first = reader.wait()
    reader.epoch += 1
    second = reader.wait()
    reader.epoch -= 1
    assert reader.answer(first) == {}
    write(empty, 1)
    assert sizes(reader.answer(second)) == {1: ONE}


def test_a_session_that_makes_room_answers_the_fetch_that_waits_in_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", max_incremental_fetch_session_cache_slots="1")
    harness.create_topic("t", PARTITION_COUNT)
    reader = Reader(harness, {0: 0, 1: 0})
    with other_connection(harness) as connection:
        harness.send(FETCH, VERSION, **reader.values(max_wait_ms=2 * SESSION_EVICTION_MS))
    harness.advance(SESSION_EVICTION_MS)
    assert connection.output == []
    assert Reader(harness, {0: 0}).session_id not in (0, reader.session_id)
    assert reader.answer(connection) == {}


def test_a_reader_that_has_gone_is_told_what_moved_when_it_comes_back(empty: Harness) -> None:
    reader = Reader(empty, {0: 0, 1: 0})
    empty.broker.waiting.drop(reader.wait())
    reader.epoch += 1
    for _ in range(3):
        write(empty, 1)
    assert not empty.broker.waiting.watches.moved, "nobody waits, and what moved is due"
    assert sizes(reader.ask()) == {1: 3 * ONE}


def test_a_reader_is_sent_to_the_follower_in_its_rack_when_that_has_caught_up(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", replica_selector_class=RACK_SELECTOR)
    harness.create_topic("t", PARTITION_COUNT)
    image = harness.broker.image
    facts = BrokerFacts(2, "127.0.0.1", 9093, "b", 1)
    image.brokers[2], image.broker_epochs[2] = replace(facts, rack="b"), BrokerEpoch(1, 1)
    assign(harness, 0, 1, 1, 2, isr=(1, 2))
    reader = Reader(harness, {0: 0, 1: 0}, rack="b")
    assert reader.ask() == {}
    leadership = harness.partition("t").leadership
    assert leadership is not None
    progress = leadership.followers[2]
    progress.end_offset = progress.start_offset = 0  # it has shown so, and nothing else has moved
    told = reader.ask(max_wait_ms=10_000)
    assert {index: part.preferred_read_replica for index, part in told.items()} == {0: 2}


def test_a_follower_s_reader_is_told_when_its_log_was_cut(empty: Harness) -> None:
    write(empty, 0, 4)
    partition, replicas = empty.partition("t"), empty.broker.replicas
    follow(empty, 0, 2)
    reader = Reader(empty, {0: 4, 1: 0})
    assert reader.ask() == {}
    replicas.fetching.fetcher(2).add(partition)
    replicas.cuts.plan(replicas.fetching.fetcher(2), [(partition, Cut(2))])
    for checkpoint in [each for each in empty.broker.outbox.effects if isinstance(each, Checkpoint)]:
        checkpoint.on_done(None)
    empty.run_cuts()
    assert partition.log.end_offset == 2
    (part,) = reader.ask().values()
    assert part.error_code == ErrorCode.offset_not_available


def test_traffic_is_counted_when_it_is_answered(empty: Harness) -> None:
    counters = empty.partition("t").counters
    reader = Reader(empty, {0: 0})
    before = (counters.sent_size, counters.read_count)
    connection = reader.wait(min_bytes=2 * ONE)
    write(empty, 0)
    assert (counters.sent_size, counters.read_count) == before
    write(empty, 0)
    reader.answer(connection)
    assert (counters.sent_size, counters.read_count) == (before[0] + 2 * ONE, before[1] + 1)
    reader.ask({0: 9})
    assert counters.failed_read_count == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_session_says_what_a_whole_read_would(empty: Harness, seed: int) -> None:
    """Whatever happens to the partitions: what differs from what was told is in the next answer."""
    random = Random(seed)
    reader = Reader(empty, dict.fromkeys(range(PARTITION_COUNT), 0))
    told = dict.fromkeys(range(PARTITION_COUNT), (0, 0, 0))
    for _ in range(60):
        index = random.randrange(PARTITION_COUNT)
        partition = empty.partition("t", index)
        match random.randrange(5):
            case 0 | 1 if partition.leadership is not None:
                write(empty, index, random.randint(1, 3))
            case 2:
                partition.trim(random.randint(partition.log.start_offset, partition.high_watermark))
                empty.broker.waiting.on_moved(partition)
            case 3:
                follow(empty, index, 2) if random.random() < 0.5 else lead(empty, index)
            case _:
                pass
        named = {index: random.randint(0, partition.high_watermark + 1)} if random.random() < 0.7 else {}
        max_bytes = random.choice([1, 3 * ONE, 2**20])
        parts = reader.ask(named, max_bytes=max_bytes)
        for each in range(PARTITION_COUNT):
            state = state_of(empty, each, reader.offsets[each])
            is_news = state != told[each] or state[0]
            assert each in parts or not is_news, (each, state, told[each])
            if each in parts:
                part = parts[each]
                assert (part.error_code, part.high_watermark, part.log_start_offset) == state
                assert is_news or part.records
                told[each] = (0, -1, state[2]) if state[0] else state
        given = sum(sizes(parts).values())
        has_records = any(
            not state_of(empty, each, offset)[0] and offset < empty.partition("t", each).high_watermark
            for each, offset in reader.offsets.items()
        )
        assert bool(given) == has_records


def state_of(harness: Harness, index: int, offset: int) -> tuple[int, int, int]:
    """(error code, high watermark, log start offset) of a partition for a reader at an offset."""
    partition = harness.partition("t", index)
    start, end = partition.log.start_offset, partition.log.end_offset
    if start <= offset <= end:
        return 0, partition.high_watermark, start
    is_ahead = offset > end and partition.leadership is None
    code = ErrorCode.offset_not_available if is_ahead else ErrorCode.offset_out_of_range
    return code, -1, -1
