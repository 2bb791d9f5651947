"""Walking a segment: by headers, and whole with checksums."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.log.making import make_batch
from tidelog.base.files import DiskDirectory, DiskFile
from tidelog.log import scan as scan_module
from tidelog.log.scan import Scan, walk_headers
from tidelog.protocol.batch import stamp


def file_of(folder: Path, *batches: bytes | bytearray) -> DiskFile:
    file = DiskDirectory(str(folder)).open("x.log")
    for batch in batches:
        file.append(batch)
    return file


def made(*sizes: int) -> list[bytearray]:
    batches = [make_batch(value=b"v" * size) for size in sizes]
    for number, batch in enumerate(batches):
        stamp(memoryview(batch), 0, number, 0)
    return batches


def test_both_walks_visit_every_batch_across_chunk_borders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    batches = made(*(random.choice((1, 50, 2_000, 9_000, 20_000)) for _ in range(60)))
    file = file_of(tmp_path, *batches)
    for chunk_size in (61, 100, 4_096, 1 << 20):
        monkeypatch.setattr(scan_module, "SCAN_CHUNK_SIZE", chunk_size)
        assert [bytes(data) for _, data in Scan(file, 0, file.size).batches()] == batches
    assert [batch.header.base_offset for batch in walk_headers(file, 0, file.size)] == list(range(60))


def test_a_scan_stops_where_the_good_part_ends_and_says_why(tmp_path: Path) -> None:
    batches = made(10, 10, 10)
    good = len(batches[0]) + len(batches[1])
    batches[2][-1] ^= 1
    file = file_of(tmp_path, *batches)
    scan = Scan(file, 0, file.size)
    assert len(list(scan.batches())) == 2
    assert scan.position == good and scan.problem is not None and "checksum" in scan.problem


def test_every_cut_of_the_last_batch_is_noticed(tmp_path: Path) -> None:
    first, last = made(10, 10)
    file = file_of(tmp_path, first, last)
    for cut in range(1, len(last)):
        scan = Scan(file, 0, file.size - cut)
        assert len(list(scan.batches())) == 1
        assert scan.position == len(first) and scan.problem is not None
        assert len(list(walk_headers(file, 0, file.size - cut))) == 1


def test_a_file_that_ends_with_a_batch_has_no_problem(tmp_path: Path) -> None:
    file = file_of(tmp_path, *made(10, 20))
    scan = Scan(file, 0, file.size)
    assert len(list(scan.batches())) == 2 and scan.problem is None and scan.position == file.size


def test_an_announced_length_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    (batch,) = made(10)
    batch[8:12] = b"\x7f\xff\xff\xff"
    file = file_of(tmp_path, batch)
    scan = Scan(file, 0, file.size)
    assert list(scan.batches()) == [] and scan.position == 0
