"""Whatever was written, a reader gets the same map from any offset, and both loops write the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.compaction.keyed import Batch, KeyedLog, cleaned_files
from tests.log.compaction.oracle import request_of, rounds, write_sources
from tests.log.making import NOW_MS
from tests.sim.disk import SimulatedDisk
from tests.soak import is_soak
from tidelog.log.compaction.cleaning import clean
from tidelog.log.compaction.compiled import CompiledKeyMap
from tidelog.log.compaction.keys import KeyMap, PlainKeyMap
from tidelog.log.compaction.request import CleaningRequest, CleaningResult
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import Marker, Record

RETENTION_MS = 1_000
Step = Callable[[KeyedLog], None]


class PlainOfTheSameSize(PlainKeyMap):
    """A map that is full when the compiled one is."""

    key_size: ClassVar[int] = CompiledKeyMap.key_size


BOTH: list[type[KeyMap]] = [PlainOfTheSameSize, CompiledKeyMap]

keys = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"k" * 17, b"k" * 32, b"k" * 33, b"k" * 200])
values = st.sampled_from([b"1", b"2", b"", None, None, b"v" * 150])
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
producer_ids = st.sampled_from([3, 4])
codecs = st.sampled_from([0, 0, 0, 1, 2, 3, 4])


def _put(records: list[tuple[bytes, bytes | None]], codec: int, producer_id: int) -> Step:
    return lambda log: log.put(records, codec, producer_id)


def _put_in_transaction(records: list[tuple[bytes, bytes | None]], codec: int, producer_id: int) -> Step:
    return lambda log: log.put(records, codec, producer_id, transactional=True)


def _end(producer_id: int, marker: Marker, raises_epoch: bool) -> Step:
    return lambda log: log.end(producer_id, marker, raises_epoch)


def _raise_epoch(log: KeyedLog) -> None:
    log.leader_epoch += 1


steps = st.one_of(
    st.builds(_put, pairs, codecs, st.sampled_from([-1, -1, 7, 8])),
    st.builds(_put_in_transaction, pairs, codecs, producer_ids),
    st.builds(_end, producer_ids, st.sampled_from(list(Marker)), st.booleans()),
    st.sampled_from([KeyedLog.roll, KeyedLog.roll, _raise_epoch]),
)
# What happens before each round, how long after the last one it begins, and for how many keys it has room.
parts = st.lists(
    st.tuples(st.lists(steps, max_size=12), st.sampled_from([0, 400, 1_000]), st.sampled_from([1, 3, 100])),
    min_size=1,
    max_size=4,
)
often = settings(
    max_examples=2_000 if is_soak() else 120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def room(keys_count: int) -> int:
    return max(-(-keys_count * CompiledKeyMap.key_size * 8 // 7) + 8, 0)


def new_log() -> KeyedLog:
    return KeyedLog(SimulatedDisk().root)


def both(log: KeyedLog, request: CleaningRequest) -> CleaningResult:
    """One round by each kind of loops, with the same outcome; that of the second takes the sources' place."""
    results, files = [], []
    for key_map in BOTH:
        results.append(clean(log.directory, request, key_map=key_map))
        files.append(cleaned_files(log.directory))
    assert results[0] == results[1]
    assert files[0] == files[1]
    log.swap(results[1])
    return results[1]


@often
@given(parts)
def test_readers_get_the_same_map_from_any_offset(parts: list[tuple[list[Step], int, int]]) -> None:
    log, twin = new_log(), new_log()
    now_ms = NOW_MS + 1_000_000
    first_cleaned_ms: dict[int, int] = {}  # of each tombstone
    for script, pause_ms, keys_max in parts:
        for step in [*script, KeyedLog.roll]:
            step(log)
            step(twin)
        now_ms += pause_ms
        request = log.request(now_ms, RETENTION_MS, room(keys_max), segment_bytes=2_000)
        if request.end_offset <= request.dirty_offset:
            continue
        before = log.batches(request.end_offset)
        result = both(log, request)
        assert request.dirty_offset < result.dirty_offset <= request.end_offset
        for record in twin.committed(result.dirty_offset):
            if record.value is None:
                first_cleaned_ms.setdefault(record.offset, now_ms)
        expired = {offset for offset, ms in first_cleaned_ms.items() if ms + RETENTION_MS <= now_ms}
        _assert_same_map(log.committed(request.end_offset), twin.committed(request.end_offset), expired)
        _assert_structure(before, log, request)


def _assert_same_map(found: list[Record], written: list[Record], expired: set[int]) -> None:
    """Of each key the last record is there, or was a tombstone that may be gone, with all before it: then a
    reader from any offset ends with the same map."""
    by_offset = {record.offset: record for record in written}
    assert [by_offset.get(record.offset) for record in found] == found
    last = {record.key: record for record in written}
    last_found = {record.key: record for record in found}
    for key, record in last.items():
        if key not in last_found:
            assert record.value is None
            assert record.offset in expired
        else:
            assert last_found[key] == record


def _assert_structure(before: list[Batch], log: KeyedLog, request: CleaningRequest) -> None:
    after = log.batches(request.end_offset)
    was = {batch.header.base_offset: batch.header for batch in before}
    for header, records in after:
        old = was[header.base_offset]
        fixed = ("last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        assert [getattr(header, name) for name in fixed] == [getattr(old, name) for name in fixed]
        assert header.record_count == len(records) <= old.record_count
    offsets = [header.base_offset for header, _ in after]
    assert offsets == sorted(set(offsets))
    assert after[-1].header.last_offset == before[-1].header.last_offset
    assert _epoch_starts(after) == _epoch_starts(before)
    ends = {header.last_offset + 1 for header, _ in after}
    assert {base for base in log.bases if 0 < base <= request.end_offset} <= ends
    _assert_producers(was.values(), [batch.header for batch in after], request)


def _assert_producers(
    before: Iterable[BatchHeader], after: list[BatchHeader], request: CleaningRequest
) -> None:
    """The last data of each is there, or else what says its epoch."""
    was = {(header.producer_id, header.producer_epoch) for header in before}
    for producer_id, epoch, last_data_offset in request.producers:
        headers = [header for header in after if header.producer_id == producer_id]
        if 0 <= last_data_offset < request.end_offset:
            assert last_data_offset in [header.last_offset for header in headers]
        elif last_data_offset < 0 and (producer_id, epoch) in was:
            assert epoch in [header.producer_epoch for header in headers]


def _epoch_starts(batches: list[Batch]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for header, _ in batches:
        starts.setdefault(header.leader_epoch, header.base_offset)
    return starts


@often
@given(st.lists(steps, max_size=25))
def test_a_round_at_the_same_time_drops_nothing_more(script: list[Step]) -> None:
    log = new_log()
    for step in [*script, KeyedLog.roll]:
        step(log)
    now_ms = NOW_MS + 1_000_000
    if not log.bound:
        return
    log.clean(log.request(now_ms))
    cleaned = log.committed(log.bound)
    assert len(cleaned) == len({record.key for record in cleaned})
    seen = []
    for _ in range(6):
        log.dirty_offset = 0  # as after a crash before the checkpoint
        log.clean(log.request(now_ms))
        assert log.committed(log.bound) == cleaned
        seen.append(log.batches(log.bound))
    assert seen[-1] == seen[-2]


@pytest.mark.parametrize("name", rounds())
def test_both_loops_write_the_same_of_kafka_s_segments(name: str) -> None:
    written = []
    for key_map in BOTH:
        directory = SimulatedDisk().root
        write_sources(name, directory)
        result = clean(directory, request_of(name), key_map=key_map)
        written.append((result, cleaned_files(directory)))
    assert written[0] == written[1]
