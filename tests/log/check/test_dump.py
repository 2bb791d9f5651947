"""What a dump makes of files that no broker of ours would write."""

from __future__ import annotations

from pathlib import Path

from tidelog.base.reading import ReadOnlyFile
from tidelog.log.check.dump import Dump, dump_file
from tidelog.protocol.records import Marker, build_batch, build_control_batch

NAME = "00000000000000000100"


def dumped(path: Path, suffix: str, records: bool) -> Dump:
    with ReadOnlyFile(str(path)) as file:
        return dump_file(file, suffix, records)


def test_an_index_that_kafka_made_at_full_size_ends_where_the_zeros_begin(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(b"\0\0\0\x05\0\0\0\x00" + b"\0\0\0\x09\0\0\x10\x00" + bytes(1_024))
    found = dumped(path, ".index", records=False)
    assert (found.rows, found.problem) == ([(105, 0), (109, 4_096)], None)


def test_an_index_that_goes_back_is_reported_there(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(b"\0\0\0\x05\0\0\0\x10" + b"\0\0\0\x03\0\0\0\x20")
    found = dumped(path, ".index", records=False)
    assert found.rows == [(105, 16)]
    assert found.problem is not None and "at 8 is corrupt" in found.problem


def test_an_aborted_transaction_is_shown_with_its_marker(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.log"
    data = build_batch(
        [(b"k", None, (), 5)],
        base_offset=100,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    path.write_bytes(data + build_control_batch(Marker.ABORT, 7, 0, 3, 6, base_offset=101))
    kinds = [row[11] for row in dumped(path, ".log", records=False).rows]
    assert kinds == ["transactional", "control"]
    _, marker = dumped(path, ".log", records=True).rows
    assert marker == (101, 6, "producer 7", "abort by coordinator epoch 3", [])


def test_a_torn_transaction_index_is_reported(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.txnindex"
    entry = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (7, 100, 105, 100))
    path.write_bytes(entry + entry[:10])
    found = dumped(path, ".txnindex", records=False)
    assert found.rows == [(7, 100, 105, 100)]
    assert found.problem is not None and "at 34 " in found.problem


def test_offsets_beyond_31_bits_are_shown_whatever_the_file_is_called(tmp_path: Path) -> None:
    offset = 5_000_000_000
    data = build_batch([(b"k", b"v", (), 5)], base_offset=offset)
    for name in (f"{offset:020}.log", "copy.log"):
        (tmp_path / name).write_bytes(data)
        found = dumped(tmp_path / name, ".log", records=True)
        assert ([row[0] for row in found.rows], found.problem) == ([offset], None)
