"""Record batches to Arrow, held against the reader without compiled code."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.protocol.test_records import FROM_JAVA
from tests.spark.batches import columns_for, logs, plain_rows, rows_of, walked
from tidelog.client.spare import SpareBuffers
from tidelog.protocol.batch import read_header
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.records import build_batch
from tidelog.spark import columns as columns_module
from tidelog.spark.page import schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
CONNECTOR: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_schema_is_the_connector_s(include_headers: bool) -> None:
    fields = CONNECTOR | ({"headers": HEADERS} if include_headers else {})
    connector = StructType([StructField(name, kind) for name, kind in fields.items()])
    assert schema(include_headers).equals(to_arrow_schema(connector, timezone="UTC"), check_metadata=True)
    columns = columns_for(include_headers=include_headers)
    batch = build_batch([(b"k", b"v", (), 5)])
    pages = [*columns.add(memoryview(batch), 0, len(batch)), *columns.finish()]
    assert [page.schema for page in pages] == [schema(include_headers)]


@pytest.mark.parametrize("may_overwrite", [False, True])
@given(
    log=logs(), start=st.integers(0, 30), length=st.integers(0, 40), rows=st.integers(1, 12), data=st.data()
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batches_give_the_rows_that_they_hold(
    may_overwrite: bool,
    monkeypatch: pytest.MonkeyPatch,
    log: list[bytearray],
    start: int,
    length: int,
    rows: int,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(columns_module, "SPARK_MOVED_SIZE_MIN", data.draw(st.sampled_from([1, 500])))
    columns = columns_for(start, start + length, rows=rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=3)))
    pages: list[pa.RecordBatch] = []
    for first, last in pairwise([0, *cuts, len(log)]):
        piece = bytearray(b"junk" + b"".join(log[first:last]) + b"torn")
        for page in columns.add(memoryview(piece), 4, len(piece), may_overwrite=may_overwrite):
            pages.append(page)
            assert columns.next_offset > page.column("offset")[-1].as_py()
        assert columns.position == position_after(log[:last], start, start + length)
    assert may_overwrite or {page.num_rows for page in pages} <= {rows}
    assert all(0 < page.num_rows <= rows for page in pages)
    pages += columns.finish()
    assert [row for page in pages for row in plain_rows(page)] == rows_of(log, start, start + length)
    assert columns.next_offset == columns.position
    assert list(columns.finish()) == []


def position_after(log: list[bytearray], start: int, end: int) -> int:
    """The first offset that is not known after these batches."""
    ends = [read_header(batch).last_offset + 1 for batch in log]
    return min(end, max([start, *ends]))


@given(log=logs(), rows=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_rows_that_wait_are_not_handed_out_yet(log: list[bytearray], rows: int) -> None:
    columns = columns_for(rows=rows)
    piece = b"".join(log)
    handed_out = sum(page.num_rows for page in columns.add(memoryview(piece), 0, len(piece)))
    waiting = [row[4] for row in rows_of(log)][handed_out:]
    assert columns.next_offset == (waiting[0] if waiting else columns.position)
    assert [row for page in columns.add(memoryview(piece), 0, len(piece)) for row in plain_rows(page)] == []


@given(log=logs())
@settings(max_examples=50, deadline=None)
def test_headers_are_left_out_unless_asked_for(log: list[bytearray]) -> None:
    expected = [(*row[:7], None) for row in rows_of(log)]
    assert walked(columns_for(include_headers=False), b"".join(log)) == expected


@pytest.mark.parametrize("codec", FROM_JAVA)
def test_what_kafka_itself_wrote_is_read(codec: str) -> None:
    batch = bytes.fromhex(FROM_JAVA[codec])
    assert walked(columns_for(), batch) == rows_of([batch])


@pytest.mark.parametrize("may_overwrite", [False, True])
@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_large_and_small_values_come_in_pages_of_bounded_size(codec: int, may_overwrite: bool) -> None:
    sizes = [1_000_000, 10, 0, 20_000_000, 15, 1_000_000] + [1_000] * 20_000 + [1_000_000] * 20
    log = [
        build_batch([(b"%d" % number, b"v" * size, (), 7)], base_offset=number, codec=codec)
        if size > 1_000
        else build_batch([(b"%d" % number, b"%d" % number * (size // 10), (), 7)], base_offset=number)
        for number, size in enumerate(sizes)
    ]
    columns = columns_for(rows=10_000, include_headers=False)
    data = bytearray(b"".join(log))
    pages = [
        *columns.add(memoryview(data), 0, len(data), may_overwrite=may_overwrite),
        *columns.finish(),
    ]
    assert [row for page in pages for row in plain_rows(page)] == [(*row[:7], None) for row in rows_of(log)]
    assert all(page.num_rows == 1 or page.nbytes < 5 * 2**20 for page in pages)
    assert len(pages) < 40


def test_values_stay_where_they_were_fetched_if_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [(b"k", b"%d" % number * 100, (), 5) for number in range(1_000)]
    fetched = build_batch(records) + build_batch(records, base_offset=1_000)
    monkeypatch.setattr(columns_module, "SPARK_MOVED_SIZE_MIN", len(fetched))
    columns = columns_for(rows=300)
    pages = list(columns.add(memoryview(fetched), 0, len(fetched), may_overwrite=True))
    assert [page.num_rows for page in pages] == [300] * 6 + [200]
    inside = pa.py_buffer(fetched)
    for page in pages:
        values = page.column("value").buffers()[2]
        assert inside.address <= values.address
        assert values.address + values.size <= inside.address + inside.size


def test_memory_that_rows_are_in_is_not_received_into() -> None:
    spares = SpareBuffers()
    batch = build_batch([(None, b"v" * 1_000, (), 5)] * 2_000)
    view = spares.spare(len(batch))
    assert view is not None
    first = view.obj
    view[: len(batch)] = batch
    pages = list(columns_for().add(view, 0, len(batch), may_overwrite=True))
    del view
    other = spares.spare(len(batch))
    assert other is not None and other.obj is not first
    assert [row for page in pages for row in plain_rows(page)] == rows_of([batch])
    pages.clear()
    again = spares.spare(len(batch))
    assert again is not None and again.obj is first


def test_many_headers_find_room() -> None:
    headers = [(f"h{number}", None if number % 7 else b"v" * number) for number in range(150)]
    log = [build_batch([(None, None, headers, 7)] * 50, base_offset=50 * number) for number in range(10)]
    assert walked(columns_for(), b"".join(log)) == rows_of(log)


def test_bytes_may_come_from_any_buffer() -> None:
    batch = build_batch([(b"k", b"v", (), 5)])
    for data in (bytes(batch), batch, memoryview(bytes(batch)), memoryview(batch).toreadonly()):
        assert walked(columns_for(), data) == rows_of([batch])
    assert walked(columns_for(), b"") == []


def test_many_batches_at_once_are_all_read() -> None:
    log: list[Any] = [build_batch([(None, b"%d" % n, (), n)], base_offset=n) for n in range(5_000)]
    assert walked(columns_for(rows=700), b"".join(log)) == rows_of(log)
