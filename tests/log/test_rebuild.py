"""Damaged bytes and wrong indexes: what a look-up finds, what it says, and how far it may walk."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.log.making import NOW_MS, append, make_batch, make_settings, open_new, read_bytes, split
from tidelog.base.files import DiskDirectory, DiskFile
from tidelog.log import rebuild as rebuild_module
from tidelog.log import scan as scan_module
from tidelog.log.log import Log
from tidelog.log.pages import Unready
from tidelog.log.recovery import open_log
from tidelog.log.scan import Damage, walk_headers
from tidelog.log.segment import Segment

VALUE = b"v" * 500
SIZE = len(make_batch(value=VALUE))
MAGIC_AT, LENGTH_AT, COUNT_AT = 16, 8, 57


def filled(folder: Path, count: int = 400, **overrides: int | str) -> Log:
    """A log of batches of one record, with an entry of its index for every few of them."""
    log = open_new(folder, **{"index_interval_bytes": 2_000, **overrides})
    for _ in range(count):
        append(log, make_batch(value=VALUE))
    return log


def damage(log: Log, place: int, position: int, data: bytes) -> None:
    path = Path(log.directory.path) / log.segments[place].file.name
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    reads: list[int] = []
    read = DiskFile.read

    def counted(file: DiskFile, position: int, size: int) -> bytes:
        reads.append(position)
        return read(file, position, size)

    monkeypatch.setattr(DiskFile, "read", counted)
    return reads


@pytest.mark.parametrize("magic", [0, 1, 3, 7, 255])
def test_a_wrong_magic_is_damage_wherever_the_index_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: int
) -> None:
    log = filled(tmp_path)
    key, position = log.active.offset_index.at(50)
    for at, offset in ((position, key), (position + SIZE, key + 1)):
        damage(log, 0, at + MAGIC_AT, bytes([magic]))
        reads = count_reads(monkeypatch)
        with pytest.raises(Damage, match=f"00000.log is damaged at {at}: magic"):
            log.read(offset, log.end_offset, 1 << 20)
        assert len(reads) < 10, "nothing is rebuilt for that"
        damage(log, 0, at + MAGIC_AT, b"\2")
    assert split(read_bytes(log, key))[0][0].base_offset == key


def test_what_lies_before_and_behind_the_damage_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path)
    key, position = log.active.offset_index.at(50)
    damage(log, 0, position + MAGIC_AT, b"\7")
    assert split(read_bytes(log, key - 1, max_bytes=SIZE))[0][0].base_offset == key - 1
    behind = log.active.offset_index.at(51)[0]
    assert split(read_bytes(log, behind))[0][0].base_offset == behind
    bounded = read_bytes(log, key - 5, bound_offset=key + 1)
    assert [header.base_offset for header, _ in split(bounded)] == list(range(key - 5, key))


@pytest.mark.parametrize("length", [0, 48, 0x40000000, -1, 2**31 - 1])
def test_a_wrong_length_in_a_sealed_segment_is_not_passed_over(tmp_path: Path, length: int) -> None:
    log = filled(tmp_path, segment_bytes=50_000)
    assert len(log.segments) > 3
    last = log.bases[1] - 1  # of the first segment, so that nothing behind it tells
    for offset in (last, last // 2):
        damage(log, 0, offset * SIZE + LENGTH_AT, pack(">i", length))
        with pytest.raises(Damage):
            log.read(offset, log.end_offset, 1 << 20)
    assert split(read_bytes(log, log.bases[1]))[0][0].base_offset == log.bases[1]


@pytest.mark.parametrize("cut", [30, SIZE - 30])
def test_a_sealed_segment_that_ends_within_a_batch_is_not_passed_over(tmp_path: Path, cut: int) -> None:
    log = filled(tmp_path, segment_bytes=50_000)
    segment, last = log.segments[0], log.bases[1] - 1
    segment.size -= cut  # as it is found by the next life
    with pytest.raises(Damage):
        log.read(last, log.end_offset, 1 << 20)


def without_segment(folder: Path, place: int, **overrides: int | str) -> Log:
    """A log that was closed cleanly, whose files of one sealed segment are gone."""
    log = filled(folder, segment_bytes=50_000)
    log.close(clean=True)
    for path in folder.glob(f"{log.bases[place]:020d}.*"):
        path.unlink()
    settings = make_settings(segment_bytes=50_000, **overrides)
    again, _ = open_log(log.directory, settings, NOW_MS, log.end_offset, is_clean=True)
    assert len(again.bases) == len(log.bases) - 1 and again.end_offset == log.end_offset
    return again


def test_a_sealed_segment_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    log = without_segment(tmp_path, 1)
    behind = log.bases[1]
    end = log.segments[0].size // SIZE
    for offset in (end, behind - 1):
        for bound in (log.end_offset, behind, offset + 1):
            with pytest.raises(Damage, match=f"records are missing up to offset {behind}"):
                log.read(offset, bound, 1 << 20)
    assert split(read_bytes(log, 0, max_bytes=1 << 20))[-1][0].last_offset == end - 1
    assert log.read(end, end, 1 << 20) is None
    assert split(read_bytes(log, behind))[0][0].base_offset == behind


def test_a_log_start_behind_a_missing_segment_is_read_from(tmp_path: Path) -> None:
    log = without_segment(tmp_path, 0)
    log.advance_start(log.bases[0] + 3)
    assert split(read_bytes(log, log.start_offset))[0][0].base_offset == log.start_offset


@pytest.mark.parametrize("overrides", [{"was_compacted": True}, {"cleanup_policy": "compact"}])
def test_a_gap_is_passed_over_where_records_may_be_missing(
    tmp_path: Path, overrides: dict[str, int | str]
) -> None:
    log = without_segment(tmp_path, 1, **overrides)
    end = log.segments[0].size // SIZE
    assert split(read_bytes(log, end))[0][0].base_offset == log.bases[1]


@pytest.mark.parametrize("place", [0, 1])
def test_a_log_that_kafka_has_compacted_is_known_by_its_gaps(tmp_path: Path, place: int) -> None:
    """Whatever the policy is now, and whoever knows what it was."""
    log = without_segment(tmp_path, 1)
    damage(log, place, 5 * SIZE + COUNT_AT, pack(">i", 0))  # as compaction leaves the bare header of a batch
    end = log.segments[0].size // SIZE
    assert split(read_bytes(log, end))[0][0].base_offset == log.bases[1]


def test_a_base_offset_that_the_segment_cannot_have_is_damage(tmp_path: Path) -> None:
    log = filled(tmp_path, segment_bytes=50_000)
    damage(log, 0, 3 * SIZE, pack(">q", 2**40))
    with pytest.raises(Damage, match="offset 1099511627776"):
        log.read(3, log.end_offset, 1 << 20)


def test_walks_stop_at_what_is_no_batch(tmp_path: Path) -> None:
    log = filled(tmp_path, 20)
    damage(log, 0, 7 * SIZE + MAGIC_AT, b"\1")
    assert len(list(walk_headers(log.active.file, 0, log.active.size))) == 7


def test_a_large_segment_s_index_is_rebuilt_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 2)
    log = filled(tmp_path)
    index = log.active.offset_index
    place, (key, position) = 60, index.at(60)
    index.replace(index.packed_from(0)[: 8 * place] + pack(">ii", key, position + 3))
    reads = count_reads(monkeypatch)
    with pytest.raises(Unready) as first:
        log.read(key, log.end_offset, 1 << 20)
    with pytest.raises(Unready) as second:
        log.read(key, log.end_offset, 1 << 20)
    assert first.value.work is second.value.work and len(reads) < 20
    assert split(read_bytes(log, 5))[0][0].base_offset == 5, "what the index is right about is served"
    append(log, make_batch(value=VALUE))
    pieces = 0
    while not first.value.work.step():
        pieces += 1
    assert pieces > 5
    for offset in (key, 399, 400, 0):
        assert split(read_bytes(log, offset))[0][0].base_offset == offset
    append(log, make_batch(value=VALUE))
    assert split(read_bytes(log, 401))[0][0].base_offset == 401


def test_a_rebuilt_index_keeps_what_lies_behind_the_damage(tmp_path: Path) -> None:
    log = filled(tmp_path)
    index = log.active.offset_index
    key, position = index.at(50)
    damage(log, 0, position, pack(">q", 3) + bytes(20))  # the index is right, and nothing there says so
    for _ in range(2):
        with pytest.raises(Damage, match=f"damaged at {position}"):
            log.read(key, log.end_offset, 1 << 20)
    behind = index.floor(key + 10)
    assert behind is not None
    assert split(read_bytes(log, behind[0]))[0][0].base_offset == behind[0]
    assert split(read_bytes(log, key - 1, max_bytes=SIZE))[0][0].base_offset == key - 1


def test_an_index_with_too_few_entries_is_rebuilt_as_the_segment_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "LOOKUP_CHUNKS_MAX", 8)
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 1_000)
    log = filled(tmp_path, index_interval_bytes=1 << 30)
    for _ in range(2):
        for offset in (0, 3, log.end_offset // 2, log.end_offset - 1):
            assert split(read_bytes(log, offset))[0][0].base_offset == offset
        for _ in range(100):
            append(log, make_batch(value=VALUE))
    assert log.active.offset_index.count > 50


def test_an_index_file_that_was_cut_by_hand_is_rebuilt(tmp_path: Path) -> None:
    log = filled(tmp_path, 150)
    segment = log.active
    segment.seal()
    path = tmp_path / segment.offset_index.name
    for size in (12, 0):
        path.write_bytes(path.read_bytes()[:size])
        for offset in (0, 70, 149):
            assert split(read_bytes(log, offset))[0][0].base_offset == offset


def test_a_rebuild_ends_with_the_segment_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 1)
    for end in ("cut", "closed"):
        log = filled(tmp_path / end)
        segment = log.active
        segment.offset_index.replace(pack(">ii", 100, 7))
        with pytest.raises(Unready) as waiting:
            segment.locate(200)
        if end == "cut":
            segment.truncate(50 * SIZE)
            segment.reset_indexes()
        else:
            segment.close()
        assert waiting.value.work.step()


def test_an_empty_segment_has_nothing_to_be_damaged(tmp_path: Path) -> None:
    assert Segment(DiskDirectory(str(tmp_path)), 5, 0, NOW_MS).locate(7) is None
