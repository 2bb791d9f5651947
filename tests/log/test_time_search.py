"""A search by time: what it finds in a log whose times go up and down, and how little it reads at a time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import pack

import pytest

from tests.log.cold import ColdPages
from tests.log.making import NOW_MS, append, find_timestamp, make_batch, open_new
from tidelog.base.files import DiskFile
from tidelog.log import rebuild as rebuild_module
from tidelog.log import time_search as search_module
from tidelog.log.log import Log
from tidelog.log.pages import PageRead, Unready
from tidelog.log.scan import Damage
from tidelog.log.time_search import TimeSearch
from tidelog.protocol.compression import NONE, ZSTD

VALUE = b"v" * 300
SIZE = len(make_batch(value=VALUE))


def log_of(folder: Path, times: list[int], **overrides: int | str) -> Log:
    log = open_new(folder, index_interval_bytes=1_000, **overrides)
    for time in times:
        append(log, make_batch(value=VALUE, timestamp=NOW_MS + time))
    return log


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    reads: list[int] = []
    read = DiskFile.read

    def counted(file: DiskFile, position: int, size: int) -> bytes:
        reads.append(size)
        return read(file, position, size)

    monkeypatch.setattr(DiskFile, "read", counted)
    return reads


def test_a_time_after_the_newest_record_is_known_not_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path, [1_000_000] + [5] * 500)
    reads = reads_of(monkeypatch)
    search = TimeSearch(log, NOW_MS + 2_000_000, log.end_offset)
    assert search.step() and search.found is None and reads == []


def test_a_long_walk_is_made_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "SEARCH_CHUNKS", 2)
    log = log_of(tmp_path, [1_000] + [5] * 1_000 + [2_000])  # nothing in the time index between the two
    search = TimeSearch(log, NOW_MS + 1_500, log.end_offset)
    reads = reads_of(monkeypatch)
    steps = 1
    while not search.step():
        assert len(reads) <= 8
        reads.clear()
        steps += 1
    assert search.found == (NOW_MS + 2_000, 1_001) and steps > 10


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_times_the_first_record_that_is_not_older_is_found(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    times = [random.choice((0, 5, random.randrange(1_000), place * 7)) for place in range(300)]
    log = log_of(tmp_path, times, segment_bytes=random.choice((20_000, 40_000, 10**6)))
    log.advance_start(random.choice((0, 10, 150)))
    for time in sorted({*times, 1, 999, 3_000}):
        for bound in (300, 200):
            place = next((at for at in range(log.start_offset, 300) if times[at] >= time), None)
            expected = (NOW_MS + times[place], place) if place is not None and place < bound else None
            assert find_timestamp(log, NOW_MS + time, bound) == expected
    largest = max(times[log.start_offset :])
    if largest == max(times):
        place = times.index(largest, log.start_offset)
        assert find_timestamp(log, None, 300) == (NOW_MS + largest, place)


def test_a_search_goes_on_in_a_log_that_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "SEARCH_CHUNKS", 1)
    log = log_of(tmp_path, [1_000] + [5] * 300 + [2_000], segment_bytes=30_000)
    search = TimeSearch(log, NOW_MS + 1_500, 400)
    for _ in range(3):
        assert not search.step()
    log.segments[0].close()
    del log.segments[0], log.bases[0]  # as retention does
    log.advance_start(log.bases[0])
    while not search.step():
        pass
    assert search.found == (NOW_MS + 2_000, 301)


def test_damage_on_the_way_ends_a_search(tmp_path: Path) -> None:
    log = log_of(tmp_path, [1_000] + [5] * 100 + [2_000])
    with (tmp_path / log.active.file.name).open("r+b") as file:
        file.seek(50 * SIZE + 16)
        file.write(b"\1")
    with pytest.raises(Damage, match=f"damaged at {50 * SIZE}"):
        find_timestamp(log, NOW_MS + 1_500, 200)


def test_a_search_rebuilds_an_index_that_leads_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "SEARCH_CHUNKS", 1)
    log = log_of(tmp_path, [place * 10 for place in range(300)])
    log.active.offset_index.replace(pack(">ii", 0, 7) + pack(">ii", 250, 77))
    assert find_timestamp(log, NOW_MS + 1_995, 300) == (NOW_MS + 2_000, 200)


def test_a_batch_whose_checksum_fails_is_damage(tmp_path: Path) -> None:
    log = log_of(tmp_path, [1_000, 2_000])
    with (tmp_path / log.active.file.name).open("r+b") as file:
        file.seek(2 * SIZE - 5)
        file.write(b"V")
    with pytest.raises(Damage, match=f"damaged at {SIZE}: checksum"):
        find_timestamp(log, NOW_MS + 1_500, 2)


@pytest.mark.parametrize("limit", ["SEARCHED_BATCH_SIZE_MAX", "SEARCHED_RECORDS_MAX"])
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_large_batch_is_taken_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int, limit: str
) -> None:
    """To unpack it and to walk its records could take seconds."""
    log = open_new(tmp_path)
    append(log, make_batch(1, timestamp=NOW_MS))
    append(log, make_batch(100, timestamp=NOW_MS + 100, value=VALUE, codec=codec))
    assert find_timestamp(log, NOW_MS + 150, 101) == (NOW_MS + 150, 51)
    monkeypatch.setattr(search_module, limit, 99)
    assert find_timestamp(log, NOW_MS + 150, 101) == (NOW_MS + 199, 1)
    log.advance_start(30)
    assert find_timestamp(log, NOW_MS + 150, 101) == (NOW_MS + 199, 30)
    assert find_timestamp(log, NOW_MS + 200, 101) is None


def test_of_a_batch_that_unpacks_to_too_much_the_header_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_new(tmp_path)
    append(log, make_batch(10, timestamp=NOW_MS, value=bytes(10_000), codec=ZSTD))
    monkeypatch.setattr(search_module, "SEARCHED_BATCH_SIZE_MAX", 50_000)
    assert find_timestamp(log, NOW_MS + 5, 10) == (NOW_MS + 9, 0)


def found_without_waiting(search: TimeSearch, cold: ColdPages) -> int:
    """Go on until the search has ended; how often the disk was waited for, elsewhere."""
    waits = 0
    while True:
        try:
            if search.step():
                return waits
        except Unready as lookup:
            assert isinstance(lookup.work, PageRead) and cold.waited == []
            lookup.step()
            cold.waited.clear()
            waits += 1
        assert cold.waited == []


def test_nothing_is_read_that_the_disk_would_have_to_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path, [1_000] + [5] * 300 + [2_000])
    cold = ColdPages(monkeypatch)
    search = TimeSearch(log, NOW_MS + 1_500, log.end_offset)
    assert found_without_waiting(search, cold) > 10
    assert search.found == (NOW_MS + 2_000, 301)


def test_an_index_is_rebuilt_without_waiting_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path, [place * 10 for place in range(300)])
    index = log.active.offset_index
    index.replace(pack(">ii", 0, 7) + pack(">ii", 250, 77))
    index._search_file(0, index.open().read)  # its pages are in memory
    cold = ColdPages(monkeypatch)
    cold.warm.add((index.name, 0))
    search = TimeSearch(log, NOW_MS + 1_995, log.end_offset)
    assert found_without_waiting(search, cold) > 10
    assert search.found == (NOW_MS + 2_000, 200)
