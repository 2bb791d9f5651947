"""A round that cannot go on leaves nothing; damage is never given a new checksum; a full map ends a round."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack_into

import pytest
from crc32c import crc32c

from tests.log.compaction.keyed import KeyedLog, cleaned_files
from tests.log.making import NOW_MS, make_settings
from tests.sim.disk import Killed, SimulatedDirectory, SimulatedDisk
from tidelog.base.files import DiskDirectory
from tidelog.log.compaction.cleaning import clean, fastest_key_map, group_sources
from tidelog.log.compaction.compiled import CompiledKeyMap
from tidelog.log.compaction.dirt import Dirt
from tidelog.log.compaction.keys import KeyMap, PlainKeyMap
from tidelog.log.compaction.request import (
    Source,
    SourcesChanged,
    decode_request,
    decode_result,
    encode_request,
    encode_result,
)
from tidelog.log.format.names import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog.log.scan import Damage, walk_headers
from tidelog.log.segment import Segment
from tidelog.protocol.batch import CRC_POSITION, BatchHeader, read_header
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, build_batch

LATER_MS = NOW_MS + 1_000_000
KEY_MAPS: list[type[KeyMap]] = [PlainKeyMap, CompiledKeyMap]


def fill(log: KeyedLog) -> None:
    """Three segments: overwritten keys, tombstones, an aborted and a committed transaction."""
    for place in range(30):
        log.put([(b"k%d" % (place % 7), b"v" * 90), (b"x%d" % place, None if place % 5 else b"1")], place % 5)
        if place % 10 == 4:
            log.put([(b"k1", b"t")], producer_id=3, transactional=True)
            log.end(3, Marker(place % 20 == 4), raises_epoch=True)
        if place % 10 == 9:
            log.roll()


def new_log() -> tuple[SimulatedDisk, KeyedLog]:
    disk = SimulatedDisk()
    log = KeyedLog(disk.root)
    fill(log)
    return disk, log


def contents(directory: SimulatedDirectory) -> dict[str, bytes]:
    return {name: directory.read_whole(name) or b"" for name in directory.names()}


def fail_write(disk: SimulatedDisk, after: int) -> None:
    disk.fail_write(after, errno.ENOSPC, partial=0.5)


@pytest.mark.parametrize("fail", [fail_write, SimulatedDisk.fail_sync, SimulatedDisk.fail_read])
def test_a_round_that_the_disk_stops_leaves_nothing(fail: Callable[[SimulatedDisk, int], None]) -> None:
    disk, log = new_log()
    before = contents(disk.root)
    request = log.request(LATER_MS)
    for after in range(1_000):
        fail(disk, after)
        try:
            clean(log.directory, request)
        except OSError:
            disk.repair()
            assert contents(disk.root) == before
        else:
            break
    assert after >= 3
    assert cleaned_files(log.directory)


def test_a_killed_round_leaves_only_what_recovery_and_the_next_round_remove() -> None:
    disk, log = new_log()
    before = contents(disk.root)
    request = log.request(LATER_MS)
    for after in range(1_000):
        disk.kills_after = after
        try:
            clean(log.directory, request)
        except Killed:
            left = contents(disk.kill())
            log.directory = disk.root
            assert {name: data for name, data in left.items() if not name.endswith(CLEANED_SUFFIX)} == before
        else:
            break
    assert after >= 10
    disk.kills_after = None


def test_what_a_round_has_written_survives_a_power_cut() -> None:
    for seed in range(20):
        disk, log = new_log()
        disk.root.sync()
        clean(log.directory, log.request(LATER_MS))
        written = cleaned_files(log.directory)
        assert cleaned_files(disk.crash(Random(seed))) == written


@pytest.mark.parametrize("key_map", KEY_MAPS)
def test_a_damaged_batch_ends_the_round_and_is_named(key_map: type[KeyMap]) -> None:
    disk, log = new_log()
    name = file_name(log.bases[1], LOG_SUFFIX)
    places = list(walk_headers(disk.root.open(name), 0, disk.root.sizes()[name]))
    disk.root.flip(name, places[3].position + 70, 2)
    before = contents(disk.root)
    with pytest.raises(Damage) as found:
        clean(log.directory, log.request(LATER_MS), key_map=key_map)
    assert (found.value.file, found.value.position) == (name, places[3].position)
    assert contents(disk.root) == before


def test_an_offset_out_of_order_is_damage_though_no_checksum_covers_it() -> None:
    disk, log = new_log()
    name = file_name(log.bases[1], LOG_SUFFIX)
    disk.root.flip(name, 7, 0)
    with pytest.raises(Damage, match="are not within"):
        clean(log.directory, log.request(LATER_MS))


def test_a_round_whose_source_is_gone_or_shorter_asks_for_another() -> None:
    disk, log = new_log()
    request = log.request(LATER_MS)
    name = file_name(log.bases[1], LOG_SUFFIX)
    disk.root.open(name).truncate(100)
    with pytest.raises(SourcesChanged, match="has 100 bytes"):
        clean(log.directory, request)
    disk.root.remove(name)
    with pytest.raises(SourcesChanged, match="is gone"):
        clean(log.directory, request)
    assert name not in disk.root.names()


def test_a_batch_that_changes_between_the_passes_is_no_reason_to_write_past_the_marks() -> None:
    _, log = new_log()
    request = log.request(LATER_MS)
    reads = 0

    def replace(size: int) -> None:
        nonlocal reads
        reads += 1
        if reads == len(request.sources):
            more = build_batch([(b"a", b"1", (), NOW_MS)] * 500, leader_epoch=0)
            log.directory.remove(file_name(0, LOG_SUFFIX))
            more += bytes(request.sources[0].size)
            log.directory.open(file_name(0, LOG_SUFFIX)).append(more[: request.sources[0].size * 4])

    with pytest.raises((SourcesChanged, Damage)):
        clean(log.directory, request, replace)
    assert cleaned_files(log.directory) == {}


@pytest.mark.parametrize("key_map", KEY_MAPS)
def test_a_full_map_ends_the_round_at_a_batch_s_end_and_sets_no_horizon_above(key_map: type[KeyMap]) -> None:
    log = KeyedLog(SimulatedDisk().root)
    for place in range(40):
        log.put([(b"%d" % place, b"1"), (b"%d" % (place + 100), None)])
    log.roll()
    rounds = 0
    while log.dirty_offset < log.bound:
        request = log.request(LATER_MS, memory_max=20 * key_map.key_size)
        result = log.clean(request, key_map)
        rounds += 1
        assert result.dirty_offset > request.dirty_offset
        assert 0.5 < result.map_utilization <= 1 or result.dirty_offset == log.bound
        for header, _ in log.batches(log.bound):
            has_horizon = bool(header.attributes & 0x40)
            assert has_horizon == (header.last_offset < result.dirty_offset)
    assert 4 <= rounds <= 12


def test_sources_are_grouped_as_far_as_one_segment_reaches() -> None:
    def groups(sources: list[Source], end_offset: int, segment_bytes: int) -> list[list[int]]:
        request = (
            KeyedLog(SimulatedDisk().root)
            .request(0)
            ._replace(sources=tuple(sources), end_offset=end_offset, segment_bytes=segment_bytes)
        )
        return [[source.base_offset for source in group.sources] for group in group_sources(request)]

    far = 2**31
    assert groups([Source(0, 50, 0), Source(10, 50, 0), Source(20, 1, 0)], 30, 100) == [[0, 10], [20]]
    assert groups([Source(0, 500, 0), Source(10, 50, 0)], 30, 100) == [[0], [10]]
    assert groups([Source(0, 1, 0), Source(10, 1, 0)], far, 100) == [[0, 10]]
    assert groups([Source(0, 1, 0), Source(10, 1, 0)], far + 1, 100) == [[0], [10]]
    assert groups([Source(0, 1, 0), Source(10, 0, 0)], far + 1, 100) == [[0, 10]]


def test_the_first_batch_of_an_epoch_and_the_last_of_a_segment_stay_empty() -> None:
    log = KeyedLog(SimulatedDisk().root)
    for epoch in range(3):
        log.leader_epoch = epoch
        for _ in range(3):
            log.put([(b"a", b"1")], codec=4)
        log.roll()
    log.clean(log.request(LATER_MS, segment_bytes=250))
    shape = [(h.base_offset, h.leader_epoch, h.record_count) for h, _ in log.batches(log.bound)]
    assert shape == [(0, 0, 0), (2, 0, 0), (3, 1, 0), (5, 1, 0), (6, 2, 0), (8, 2, 1)]


def test_the_indexes_are_those_that_a_rebuild_makes(tmp_path: Path) -> None:
    log = KeyedLog(DiskDirectory(str(tmp_path)))
    fill(log)
    result = log.clean(log.request(LATER_MS, index_interval_bytes=150))
    settings = make_settings(index_interval_bytes=150)
    for made in result.segments:
        names = [file_name(made.base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        written = [log.directory.read_whole(name) for name in names]
        assert all(written)
        segment = Segment(log.directory, made.base_offset, made.size, NOW_MS)
        segment.open()
        segment.reset_indexes()
        for position, header in walk_headers(segment.file, 0, made.size):
            segment.note_batch(position, header.size, header.last_offset, header.max_timestamp, settings)
        segment.seal()
        segment.close()
        assert [log.directory.read_whole(name) for name in names] == written
        assert log.directory.open(file_name(made.base_offset, LOG_SUFFIX)).modified_ms() == (
            NOW_MS + made.sources[-1]
        )


def test_the_earliest_horizon_is_when_another_round_drops_more() -> None:
    log = KeyedLog(SimulatedDisk().root)
    log.put([(b"a", None), (b"b", b"1")])
    log.roll()
    assert log.clean(log.request(LATER_MS, 500)).earliest_horizon_ms == LATER_MS + 500
    assert log.clean(log.request(LATER_MS + 499, 900)).earliest_horizon_ms == LATER_MS + 500
    assert [record.key for record in log.committed(log.bound)] == [b"a", b"b"]
    assert log.clean(log.request(LATER_MS + 500)).earliest_horizon_ms == -1
    assert [record.key for record in log.committed(log.bound)] == [b"b"]


def test_a_retention_without_end_fits_a_horizon() -> None:
    log = KeyedLog(SimulatedDisk().root)
    log.put([(b"a", None)])
    log.roll()
    assert log.clean(log.request(LATER_MS, 2**63 - 1)).earliest_horizon_ms == 2**63 - 1
    assert log.committed(log.bound)[0].timestamp == log.timestamp


def test_pace_gets_every_byte_that_is_read_and_written() -> None:
    _, log = new_log()
    sizes: list[int] = []
    result = clean(log.directory, log.request(LATER_MS), sizes.append)
    assert sum(sizes) == result.bytes_read + result.bytes_written
    assert result.bytes_written == sum(segment.size for segment in result.segments)


def test_request_and_result_cross_a_pipe() -> None:
    _, log = new_log()
    request = log.request(LATER_MS)._replace(bytes_per_second=1e6, hash_seed=2**128 - 1)
    assert decode_request(encode_request(request)) == request
    result = clean(log.directory, request)
    assert decode_result(encode_result(result)) == result


def test_where_numba_is_the_compiled_loops_are_taken() -> None:
    assert fastest_key_map() is CompiledKeyMap


def rebuilt(batch: bytes) -> tuple[memoryview, int]:
    """With the right checksum, and what it is."""
    view = memoryview(bytearray(batch))
    crc = crc32c(view[21:])
    pack_into(">I", view, CRC_POSITION, crc)
    return view, crc


def outcome(key_map: type[KeyMap], batch: memoryview) -> object:
    """What the loops make of the records; None if they are not what the header says."""
    header = read_header(batch)
    keys = key_map(100, 1)
    body = batch[61:]
    try:
        has_tombstones = keys.put(body, header, 0)
        living = keys.keep_living(body, header, 0, False)
        shown = (bytes(living.body), *living[1:])
        unknown = key_map(100, 1).keep_unknown(body, header, False)
        unknown_shown = (bytes(unknown.body), *unknown[1:])
        moved = keys.move_times(body, header, -(2**62))
    except CorruptBatch:
        return None
    return has_tombstones, keys.used, shown, unknown_shown, moved and bytes(moved)


def test_hostile_records_are_damage_to_both_loops_alike() -> None:
    """Each byte of a body with a right checksum replaced."""
    records = [
        (b"k" * 20, b"v", (("h", b"x"),), NOW_MS),
        (b"a", None, (), NOW_MS - 70),
        (None, b"", (), NOW_MS),
    ]
    good = bytes(build_batch([*records, (b"a", b"2", (), NOW_MS + 10**9)]))
    assert outcome(PlainKeyMap, memoryview(good)) is not None
    damaged = 0
    for place in range(57, len(good)):
        for value in (*range(8), 0x7F, 0x80, 0xFF, good[place] ^ 2, good[place] ^ 0x40):
            batch = memoryview(good[:place] + bytes([value]) + good[place + 1 :])
            found = outcome(PlainKeyMap, batch)
            assert found == outcome(CompiledKeyMap, batch), (place, value)
            damaged += found is None
    assert damaged > 200


@pytest.mark.parametrize("key_map", KEY_MAPS)
@pytest.mark.parametrize(
    "body",
    [b"", b"\xff" * 40, b"\x00" * 40, b"\x80" * 40, b"\x0c\x00\x00\x00\xfe\xff\xff\xff\x0f\x00\x00"],
    ids=["nothing", "all ones", "zeros", "endless varint", "key beyond the batch"],
)
def test_hostile_records_end_the_round_as_damage(key_map: type[KeyMap], body: bytes) -> None:
    log = KeyedLog(SimulatedDisk().root)
    log.put([(b"a", b"1")])
    good = bytes(build_batch([(b"a", b"1", (), NOW_MS)], base_offset=1, leader_epoch=0))
    bad, _ = rebuilt(good[:8] + (49 + len(body)).to_bytes(4, "big") + good[12:61] + body)
    log.append(bytearray(bad), 1)
    log.roll()
    with pytest.raises(Damage, match="whose checksum is right"):
        clean(log.directory, log.request(LATER_MS), key_map=key_map)
    assert cleaned_files(log.directory) == {}


def test_a_batch_with_more_records_than_were_put_is_not_what_it_was() -> None:
    def header_of(count: int) -> BatchHeader:
        return read_header(build_batch([(b"a", b"1", (), NOW_MS)] * count))

    dirt = Dirt(KeyedLog(SimulatedDisk().root).request(0), PlainKeyMap)
    batch = build_batch([(b"a", b"1", (), NOW_MS)])
    assert dirt.put(header_of(1), memoryview(batch))
    dirt.rewind()
    with pytest.raises(SourcesChanged, match="another one before"):
        dirt.next(header_of(2))
