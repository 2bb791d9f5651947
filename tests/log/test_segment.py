"""One segment: its index entries, look-ups, and what a wrong index may not do."""

from __future__ import annotations

from pathlib import Path
from struct import iter_unpack, pack

import pytest

from tests.log.making import NOW_MS, make_batch, make_settings
from tidelog.base.files import DiskDirectory
from tidelog.log.segment import Segment
from tidelog.protocol.batch import stamp

BASE = 1_000


def filled(folder: Path, count: int, interval: int = 0, each: int = 2) -> Segment:
    """A segment of `count` batches of `each` records, 100 ms apart."""
    segment = Segment(DiskDirectory(str(folder)), BASE, 0, NOW_MS)
    settings = make_settings(index_interval_bytes=interval)
    for number in range(count):
        batch = make_batch(each, timestamp=NOW_MS + 100 * number)
        base = BASE + number * each
        stamp(memoryview(batch), 0, base, 0)
        segment.append(batch, base + each - 1, NOW_MS + 100 * number + each - 1, settings)
    return segment


def test_an_entry_follows_each_interval_and_names_the_last_offset_of_a_batch(tmp_path: Path) -> None:
    size = len(make_batch(2))
    segment = filled(tmp_path, 10, interval=2 * size)
    segment.seal()
    content = (tmp_path / f"{BASE:020}.index").read_bytes()
    assert list(iter_unpack(">ii", content)) == [(7, 3 * size), (13, 6 * size), (19, 9 * size)]


def test_the_time_index_ends_with_the_largest_timestamp_once_sealed(tmp_path: Path) -> None:
    size = len(make_batch(2))
    segment = filled(tmp_path, 8, interval=2 * size)
    segment.seal()
    content = (tmp_path / f"{BASE:020}.timeindex").read_bytes()
    assert list(iter_unpack(">qi", content)) == [
        (NOW_MS + 301, 7),
        (NOW_MS + 601, 13),
        (NOW_MS + 701, 15),
    ]


def test_every_offset_is_located_in_its_batch(tmp_path: Path) -> None:
    for interval in (0, 300, 10**6):
        segment = filled(tmp_path / str(interval), 30, interval)
        for offset in range(BASE, BASE + 60):
            found = segment.locate(offset)
            assert found is not None and found.base_offset == offset - offset % 2
        assert segment.locate(BASE + 60) is None


@pytest.mark.parametrize(
    "entries",
    [
        [(3, 77), (9, 300)],  # into the middle of batches
        [(3, 10**9)],  # behind the end
        [(3, 30 * len(make_batch(2)) - 5)],  # to the last few bytes
        [(3, -8)],
        [(0, 0)] * 5,
        [(5, 0)],  # a batch, but another one
    ],
)
def test_an_index_that_points_nowhere_is_not_believed(tmp_path: Path, entries: list[tuple[int, int]]) -> None:
    filled(tmp_path, 30).close()
    (tmp_path / f"{BASE:020}.index").write_bytes(b"".join(pack(">ii", *entry) for entry in entries))
    segment = Segment(DiskDirectory(str(tmp_path)), BASE, 0, NOW_MS)
    assert segment.file.size == 30 * len(make_batch(2))
    for offset in range(BASE, BASE + 60):
        found = segment.locate(offset)
        assert found is not None and found.base_offset == offset - offset % 2


def test_the_first_timestamp_is_the_first_batch_s(tmp_path: Path) -> None:
    assert filled(tmp_path / "a", 3).first_timestamp() == NOW_MS + 1
    assert filled(tmp_path / "b", 0).first_timestamp() is None
    reopened = Segment(DiskDirectory(str(tmp_path / "a")), BASE, 0, NOW_MS)
    assert reopened.file.size and reopened.first_timestamp() == NOW_MS + 1


def test_relative_offsets_that_do_not_fit_make_the_segment_full(tmp_path: Path) -> None:
    segment = filled(tmp_path, 1)
    assert not segment.is_full(10, BASE + 2**31 - 1, 10**9)
    assert segment.is_full(10, BASE + 2**31, 10**9)


def test_a_batch_that_was_cut_off_is_not_located_any_more(tmp_path: Path) -> None:
    segment = filled(tmp_path, 3)
    found = segment.locate(BASE + 4)
    assert found is not None
    segment.truncate(found.position)
    assert segment.locate(BASE + 4) is None
