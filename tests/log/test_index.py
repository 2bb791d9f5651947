"""The sparse indexes against a plain list."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest

from tidelog.base.files import DiskDirectory
from tidelog.base.limits import INDEX_TAIL_ENTRIES_MAX
from tidelog.log.index import OffsetIndex, TimeIndex


@pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 1_200, 2_000])
def test_floor_finds_what_a_scan_of_all_entries_finds(tmp_path: Path, count: int) -> None:
    index = OffsetIndex(DiskDirectory(str(tmp_path)), "x.index")
    keys = [3 * number + 2 for number in range(count)]
    for key in keys:
        index.append(key, key * 10)
    for key in range(0, 3 * count + 4, max(count // 100, 1)):
        place = bisect_right(keys, key)
        assert index.place_after(key) == place
        assert index.floor(key) == ((keys[place - 1], keys[place - 1] * 10) if place else None)
    assert index.count == count
    assert index.last() == ((keys[-1], keys[-1] * 10) if keys else None)


def test_entries_survive_closing_and_opening(tmp_path: Path) -> None:
    index = OffsetIndex(DiskDirectory(str(tmp_path)), "x.index")
    for key in range(1, INDEX_TAIL_ENTRIES_MAX + 50):
        index.append(key, key)
    index.close()
    index = OffsetIndex(DiskDirectory(str(tmp_path)), "x.index")
    assert index.count == INDEX_TAIL_ENTRIES_MAX + 49
    assert index.floor(600) == (INDEX_TAIL_ENTRIES_MAX + 49, INDEX_TAIL_ENTRIES_MAX + 49)


def test_an_index_is_opened_only_when_it_is_used(tmp_path: Path) -> None:
    index = OffsetIndex(DiskDirectory(str(tmp_path)), "x.index")
    assert index.files() == [] and not (tmp_path / "x.index").exists()
    index.append(1, 1)
    index.write_tail()
    assert len(index.files()) == 1


def test_a_timestamp_that_is_not_larger_gets_no_entry(tmp_path: Path) -> None:
    index = TimeIndex(DiskDirectory(str(tmp_path)), "x.timeindex")
    for timestamp, offset in ((5, 1), (5, 2), (4, 3), (6, 4)):
        index.maybe_append(timestamp, offset)
    assert [index.at(place) for place in range(index.count)] == [(5, 1), (6, 4)]


def test_a_record_without_a_timestamp_gets_no_entry(tmp_path: Path) -> None:
    index = TimeIndex(DiskDirectory(str(tmp_path)), "x.timeindex")
    for timestamp, offset in ((-1, 1), (0, 2), (-1, 3)):
        index.maybe_append(timestamp, offset)
    assert [index.at(place) for place in range(index.count)] == [(0, 2)]


def test_reset_forgets_what_is_in_memory_and_in_the_file(tmp_path: Path) -> None:
    index = OffsetIndex(DiskDirectory(str(tmp_path)), "x.index")
    index.append(1, 1)
    index.write_tail()
    index.append(2, 2)
    index.reset()
    assert index.count == 0 and index.last() is None
    assert (tmp_path / "x.index").stat().st_size == 0
