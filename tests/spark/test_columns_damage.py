"""Damaged record batches: an error that names the place, or the right rows; never a crash.

`python -m tests.spark.test_columns_damage <seed> <rounds>` damages batches in a process of its own, so that
reading outside a buffer ends that process and fails the test.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.batches import (
    Plain,
    Row,
    batches_at,
    columns_for,
    rebodied,
    rows_of,
    sealed,
    thinned,
    walked,
)
from tidelog.protocol import compression, wire
from tidelog.protocol.batch import check_whole, read_header
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, build_batch, build_control_batch
from tidelog.spark.columns import CorruptRecords

RECORDS: list[Plain] = [
    (b"k", b"v" * 30, [("h", b"x"), ("n", None)], 1_000),
    (None, b"w", [], 999),
    (b"t", None, [("größe", b"")], 5_000),
]
MICROSECONDS_MAX = 2**63 - 1


def expected_rows(batch: bytes | bytearray) -> list[Row] | None:
    """What the reader without compiled code makes of the batch; None if it is damaged."""
    try:
        check_whole(memoryview(batch), 0, len(batch))
        rows = rows_of([batch])
    except CorruptBatch:
        return None
    return None if any(abs(row[5]) > MICROSECONDS_MAX for row in rows) else rows


def walked_rows(batch: bytes | bytearray) -> list[Row] | None:
    try:
        return walked(columns_for(rows=2), batch)
    except CorruptRecords as problem:
        assert str(problem).startswith("topic clicks, partition 3, the batch at offset ")
        return None


def damaged(choose: random.Random) -> bytearray:
    """A batch with a few other bytes: in its header, its body, or its records before they are compressed."""
    records = [RECORDS[choose.randrange(3)] for _ in range(choose.randrange(1, 6))]
    append_time = choose.choice([None, None, 77])
    batch = build_batch(records, base_offset=40, codec=choose.randrange(5), append_time_ms=append_time)
    if choose.random() < 0.3:
        batch = thinned(batch, {choose.randrange(len(records)) for _ in range(3)})
    where = choose.choice(["header", "body", "records", "records", "records"])
    if where == "records":
        plain = bytearray(unfolded(batch))
        return rebodied(batch, spoiled(plain, choose, 0))
    first = 21 if where == "header" else min(61, len(batch) - 1)
    return sealed(spoiled(batch, choose, first, 61 if where == "header" else None))


def unfolded(batch: bytearray) -> bytes:
    body = bytes(batch[61:])
    return compression.decompress(read_header(batch).codec, body, 2**20) if body else b""


def spoiled(data: bytearray, choose: random.Random, first: int, end: int | None = None) -> bytearray:
    for _ in range(choose.randrange(1, 4)):
        place = choose.randrange(first, max(first + 1, end or len(data)))
        kind = choose.randrange(5)
        if kind == 0:
            del data[place : place + choose.randrange(1, 4)]
        elif kind == 1:
            data[place:place] = choose.randbytes(choose.randrange(1, 4))
        elif place < len(data):
            data[place] = choose.choice([0, 1, 2, 0x7F, 0x80, 0xFF, choose.randrange(256)])
    return data


@given(seed=st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_damage_is_noticed_or_changes_nothing(seed: int) -> None:
    batch = damaged(random.Random(seed))
    if len(batch) >= 61:
        assert walked_rows(batch) == expected_rows(batch)


@pytest.mark.parametrize("checked", [False, True], ids=["as it is", "with numba's bounds checked"])
def test_no_damage_makes_the_walk_leave_its_buffers(checked: bool, tmp_path: Path) -> None:
    """Code that checks bounds must not be kept where others find it."""
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "MALLOC_PERTURB_": "165"}
    environment = os.environ | (checks if checked else {})
    command = [sys.executable, "-m", "tests.spark.test_columns_damage", "7", "6000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "6000 batches\n", "")


@given(batch=batches_at(3), place=st.integers(8, 400), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_is_found_by_the_checksum(batch: bytearray, place: int, byte: int) -> None:
    """But for what brokers stamp: base offset, leader epoch. With a larger length a batch looks cut off."""
    changed = bytearray(batch)
    changed[place % len(batch)] = byte
    if changed[8:12] + changed[16:] == batch[8:12] + batch[16:]:
        return
    is_cut_off = struct.unpack_from(">i", changed, 8)[0] > len(batch) - 12
    assert walked_rows(changed) == ([] if is_cut_off and changed[16] == 2 else None)


def with_field(position: int, form: str, value: int) -> bytearray:
    batch = build_batch(RECORDS, base_offset=40)
    struct.pack_into(form, batch, position, value)
    return batch if position < 21 else sealed(batch)


def with_record(*numbers: int) -> bytearray:
    """One record: its length, attributes, then these varints."""
    record = bytearray(1)
    for number in numbers:
        wire.write_varint(record, number)
    body = bytearray()
    wire.write_varint(body, len(record))
    return rebodied(build_batch([(None, None, (), 0)], base_offset=40), body + record)


DAMAGE = {
    "message set 0": (with_field(16, ">b", 0), "clients before 0.11"),
    "message set 1": (with_field(16, ">b", 1), "clients before 0.11"),
    "negative length": (with_field(8, ">i", -5), "length"),
    "short length": (with_field(8, ">i", 48), "length"),
    "checksum": (with_field(17, ">I", 1), "checksum"),
    "negative last offset": (with_field(23, ">i", -1), "offsets cannot be"),
    "last offset too small": (with_field(23, ">i", 1), "not in order or beyond the last"),
    "negative count": (with_field(57, ">i", -1), "count is negative"),
    "count too large": (with_field(57, ">i", 4), "a number is cut off"),
    "count too small": (with_field(57, ">i", 2), "more than the records"),
    "count absurd": (with_field(57, ">i", 2**31 - 1), "a number is cut off"),
    "codec unknown": (with_field(21, ">h", 5), "unknown codec 5"),
    "base timestamp": (with_field(27, ">q", 2**63 - 1), "timestamp"),
    "key size": (with_record(0, 0, 9, 0, 0), "a key or value"),
    "key size below -1": (with_record(0, 0, -2, 0, 0), "a key or value"),
    "value size": (with_record(0, 0, -1, 2**31 - 1, 0), "a key or value"),
    "value size below -1": (with_record(0, 0, -1, -(2**31), 0), "a key or value"),
    "offset delta": (with_record(0, 1, -1, -1, 0), "not in order"),
    "negative offset delta": (with_record(0, -1, -1, -1, 0), "not in order"),
    "header count": (with_record(0, 0, -1, -1, 1), "headers"),
    "negative header count": (with_record(0, 0, -1, -1, -1), "headers"),
    "header key size": (with_record(0, 0, -1, -1, 1, 5, -1), "headers"),
    "header key null": (with_record(0, 0, -1, -1, 1, -1, -1), "headers"),
    "header value size": (with_record(0, 0, -1, -1, 1, 0, 77), "headers"),
    "header value size below -1": (with_record(0, 0, -1, -1, 1, 0, -2), "headers"),
    "bytes after the headers": (with_record(0, 0, -1, -1, 0, 0), "headers"),
    "empty record": (rebodied(build_batch([(None, None, (), 0)], base_offset=40), b"\0"), "a record is"),
    "long varint": (rebodied(build_batch([(None, None, (), 0)], base_offset=40), b"\xff" * 9), "a number"),
    "gzip": (sealed(build_batch(RECORDS, base_offset=40, codec=1)[:-9]), "gzip"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_error_says_where_and_what(name: str) -> None:
    batch, problem = DAMAGE[name]
    before = build_batch(RECORDS, base_offset=30)
    with pytest.raises(
        CorruptRecords, match=rf"topic clicks, partition 3, the batch at offset 40: .*{problem}"
    ):
        walked(columns_for(), before + batch)
    with pytest.raises(CorruptRecords, match="offset 40"):
        walked(columns_for(include_headers=False), before + batch)


def test_a_small_batch_does_not_unfold_to_gigabytes() -> None:
    batch = rebodied(build_batch(RECORDS, base_offset=40, codec=4), bytes(129 * 2**20))
    assert len(batch) < 20_000
    with pytest.raises(CorruptRecords, match="offset 40: zstd: decompresses to more than"):
        walked(columns_for(), batch)


def test_damage_before_and_after_the_range_is_not_looked_at() -> None:
    good = build_batch(RECORDS, base_offset=10)
    early, late = with_field(17, ">I", 1), build_batch(RECORDS, base_offset=13)
    struct.pack_into(">q", early, 0, 7)
    late[70] ^= 1
    assert walked(columns_for(10, 13), early + good + late) == rows_of([good])


def test_a_damaged_marker_names_its_offset() -> None:
    batch = build_batch(RECORDS[:1], base_offset=39, producer_id=5, transactional=True)
    marker = build_control_batch(Marker.ABORT, 5, 0, 0, 0, base_offset=40)
    del marker[70:]
    columns = columns_for(committed_only=True)
    data = batch + sealed(marker)
    with pytest.raises(CorruptRecords, match="the batch at offset 40"):
        list(columns.add(memoryview(data), 0, len(data), [(5, 39)]))


def main() -> None:
    choose, rounds = random.Random(int(sys.argv[1])), int(sys.argv[2])
    for _ in range(rounds):
        batch = damaged(choose)
        assert len(batch) < 61 or walked_rows(batch) == expected_rows(batch), bytes(batch)
    print(f"{rounds} batches")


if __name__ == "__main__":
    main()
