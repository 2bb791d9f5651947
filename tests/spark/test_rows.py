"""Arrow to record batches, read back by the reader without compiled code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from tests.spark.batches import sealed
from tidelog.protocol.batch import read_header
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.records import read_records
from tidelog.spark.rows import RowEncoder

NOW_MS = 1_700_000_000_000
PARTITIONS = {"clicks": 3, "orders": 1, "views": 200}

Row = dict[str, Any]
Plain = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

BLOBS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=300))
TEXTS = st.one_of(st.none(), st.text(max_size=20))
PAIRS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": BLOBS}), max_size=3)
BINARY_TYPES = st.sampled_from([pa.binary(), pa.large_binary()])
STRING_TYPES = st.sampled_from([pa.string(), pa.large_string()])


def encoder(**options: Any) -> RowEncoder:
    return RowEncoder(
        **{
            "partition_count": PARTITIONS.__getitem__,
            "topic": None,
            "codec": 0,
            "batch_bytes": 16_384,
            "now_ms": lambda: NOW_MS,
            **options,
        }
    )


def encode(rows: RowEncoder, pieces: Sequence[pa.RecordBatch]) -> list[tuple[str, int, bytearray, int]]:
    return [*(batch for piece in pieces for batch in rows.add(piece)), *rows.finish()]


def read_back(batches: list[tuple[str, int, bytearray, int]]) -> dict[tuple[str, int], list[Plain]]:
    got: dict[tuple[str, int], list[Plain]] = defaultdict(list)
    for topic, partition, batch, count in batches:
        records = read_records(sealed(batch))
        assert [record.offset for record in records] == list(range(count))
        assert {record.timestamp for record in records} == {NOW_MS}
        got[topic, partition] += [(record.key, record.value, list(record.headers)) for record in records]
    return got


def plain(row: Row) -> Plain:
    headers = [(pair["key"], pair["value"]) for pair in row.get("headers") or []]
    return as_bytes(row.get("key")), as_bytes(row["value"]), headers


def as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows with any of the columns, in any of the types, as a slice of a larger piece."""
    count = draw(st.integers(0, 12))
    columns: dict[str, tuple[Any, Any]] = {"value": draw(blobs_or_texts()), "topic": topics(draw)}
    if draw(st.booleans()):
        columns["key"] = draw(blobs_or_texts())
    if draw(st.booleans()):
        columns["headers"] = headers(draw)
    if draw(st.booleans()):
        columns["partition"] = (st.one_of(st.none(), st.just(0)), pa.int32())
    if draw(st.booleans()):
        columns["timestamp"] = (st.just(5), pa.timestamp("us", tz="UTC"))
    arrays = [
        pa.array(draw(st.lists(content, min_size=count, max_size=count)), kind)
        for content, kind in columns.values()
    ]
    whole = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    start = draw(st.integers(0, count))
    return whole.slice(start, draw(st.integers(0, count - start)))


@st.composite
def blobs_or_texts(draw: st.DrawFn) -> tuple[Any, Any]:
    kinds = [(BLOBS, draw(BINARY_TYPES)), (TEXTS, draw(STRING_TYPES)), (st.none(), pa.null())]
    chosen: tuple[Any, Any] = draw(st.sampled_from(kinds))
    return chosen


def topics(draw: st.DrawFn) -> tuple[Any, Any]:
    return st.sampled_from(sorted(PARTITIONS)), draw(STRING_TYPES)


def headers(draw: st.DrawFn) -> tuple[Any, Any]:
    pair = pa.struct([("key", draw(STRING_TYPES)), ("value", draw(BINARY_TYPES))])
    kind = draw(st.sampled_from([pa.list_(pair), pa.large_list(pair)]))
    return st.one_of(st.none(), PAIRS), kind


@given(
    pieces=st.lists(tables(), max_size=4),
    codec=st.integers(0, 4),
    batch_bytes=st.sampled_from([1, 200, 1_000, 100_000]),
    seed=st.integers(0, 3),
)
@settings(max_examples=300, deadline=None)
def test_every_row_comes_back_in_order_in_the_partition_of_its_key(
    pieces: list[pa.RecordBatch], codec: int, batch_bytes: int, seed: int
) -> None:
    batches = encode(encoder(codec=codec, batch_bytes=batch_bytes, seed=seed), pieces)
    got = read_back(batches)
    rows: list[Row] = [row for piece in pieces for row in piece.to_pylist()]
    by_topic: dict[str, list[Plain]] = defaultdict(list)
    by_place: dict[tuple[str, int], list[Plain]] = defaultdict(list)
    for row in rows:
        key = as_bytes(row.get("key"))
        by_topic[row["topic"]].append(plain(row))
        if row.get("partition") is not None:
            by_place[row["topic"], row["partition"]].append(plain(row))
        elif key is not None:
            by_place[row["topic"], java_partition(key, PARTITIONS[row["topic"]])].append(plain(row))
    for place, expected in by_place.items():
        assert is_subsequence(expected, got[place])
    for topic, expected in by_topic.items():
        assert sorted(map(repr, expected)) == sorted(
            repr(record) for (name, _), records in got.items() for record in records if name == topic
        )
    assert all(codec == read_header(batch).codec for _, _, batch, _ in batches)


def is_subsequence(expected: list[Plain], got: list[Plain]) -> bool:
    left = iter(got)
    return all(any(record == other for other in left) for record in expected)


def java_partition(key: bytes, count: int) -> int:
    """As kafka-python has it, which has it from Java."""
    return int((kafka_python_murmur2(key) & 0x7FFFFFFF) % count)


# Kafka's own test has these: the hash of each key, as a signed number.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_partitions_are_those_of_the_java_client(key: bytes) -> None:
    piece = pa.RecordBatch.from_pydict({"key": [key], "value": [b"v"]})
    for topic, count in PARTITIONS.items():
        ((_, partition, _, _),) = encode(encoder(topic=topic), [piece])
        assert partition == (JAVA_HASHES[key] & 0x7FFFFFFF) % count


@given(key=st.binary(max_size=70))
@settings(max_examples=200, deadline=None)
def test_partitions_are_those_of_kafka_python(key: bytes) -> None:
    rows = encoder(partition_count=lambda _: 1_000, topic="any")
    ((_, partition, _, _),) = encode(rows, [pa.RecordBatch.from_pydict({"key": [key], "value": [b"v"]})])
    assert partition == java_partition(key, 1_000)


def test_a_batch_is_cut_before_it_gets_too_large() -> None:
    values = [b"v" * size for size in [100] * 500 + [5_000] + [10] * 30]
    batches = encode(
        encoder(topic="orders", batch_bytes=1_000), [pa.RecordBatch.from_pydict({"value": values})]
    )
    assert [len(batch) for _, _, batch, count in batches if count > 1 and len(batch) > 1_000] == []
    assert [len(batch) for _, _, batch, _ in batches[1:40] if len(batch) < 880] == []
    assert [count for _, _, batch, count in batches if len(batch) > 5_000] == [1]
    assert [value for _, value, _ in read_back(batches)["orders", 0]] == values


def test_rows_without_a_key_fill_one_batch_after_the_other_everywhere() -> None:
    piece = pa.RecordBatch.from_pydict({"value": [b"v" * 100] * 10_000})
    batches = encode(encoder(topic="clicks", batch_bytes=2_000), [piece])
    assert len(batches) < 700
    partitions = [partition for _, partition, _, _ in batches[:-3]]
    assert set(partitions) == {0, 1, 2}
    assert all(first != second for first, second in pairwise(partitions))
    again = encode(encoder(topic="clicks", batch_bytes=2_000), [piece])
    other = encode(encoder(topic="clicks", batch_bytes=2_000, seed=1), [piece])
    assert [batch[:2] for batch in again] == [batch[:2] for batch in batches]
    assert [batch[:2] for batch in other] != [batch[:2] for batch in batches]


def test_rows_gather_across_pieces_until_a_batch_is_full() -> None:
    rows = encoder(topic="orders", batch_bytes=10_000)
    piece = pa.RecordBatch.from_pydict({"value": [b"v" * 100]})
    early = [batch for _ in range(50) for batch in rows.add(piece)]
    assert early == []
    assert [count for _, _, _, count in rows.finish()] == [50]
    assert list(rows.finish()) == []


def test_the_header_leaves_to_the_sender_what_is_the_sender_s() -> None:
    batches = encode(encoder(topic="orders", codec=4), [pa.RecordBatch.from_pydict({"value": [b"v"] * 3})])
    header = read_header(batches[0][2])
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.crc) == (-1, -1, -1, 0)
    assert (header.base_offset, header.magic, header.last_offset_delta, header.record_count) == (0, 2, 2, 3)
    assert (header.base_timestamp, header.max_timestamp, header.attributes) == (NOW_MS, NOW_MS, 4)
    assert header.size == len(batches[0][2])


def test_the_option_wins_over_the_topic_column() -> None:
    piece = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "topic": ["clicks", None]})
    assert {topic for topic, _, _, _ in encode(encoder(topic="orders"), [piece])} == {"orders"}


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_thousands_of_partitions_and_large_values_are_written(codec: int) -> None:
    keys = [b"%d" % number for number in range(5_000)]
    values = [b"v" * (1_000_000 if number % 1_000 == 0 else 20) for number in range(5_000)]
    topics = [f"topic-{number % 3}" for number in range(5_000)]
    piece = pa.RecordBatch.from_pydict({"key": keys, "value": values, "topic": topics})
    got = read_back(encode(encoder(partition_count=lambda _: 2_000, codec=codec), [piece]))
    expected: dict[tuple[str, int], list[Plain]] = defaultdict(list)
    for key, value, topic in zip(keys, values, topics, strict=True):
        expected[topic, java_partition(key, 2_000)].append((key, value, []))
    assert got == expected


LIST_OF_TEXT = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
REFUSED: list[tuple[dict[str, pa.Array], str]] = [
    ({"key": pa.array([b"k"])}, "Required attribute 'value' not found"),
    ({"value": pa.array([1])}, "value attribute unsupported type int64.*string or binary"),
    ({"value": pa.array([b"v"]), "key": pa.array([1.5])}, "key attribute unsupported type double"),
    ({"value": pa.array([b"v"]), "partition": pa.array([1], pa.int64())}, "partition attribute unsupported"),
    (
        {"value": pa.array([b"v"]), "partition": pa.array([3], pa.int32())},
        "partition 3 of topic clicks",
    ),
    ({"value": pa.array([b"v"]), "partition": pa.array([-1], pa.int32())}, "partition -1 of topic clicks"),
    ({"value": pa.array([b"v"]), "headers": pa.array([b"h"])}, "headers attribute unsupported type binary"),
    ({"value": pa.array([b"v"]), "headers": pa.array([[]], LIST_OF_TEXT)}, "headers attribute unsupported"),
]


@pytest.mark.parametrize(("columns", "problem"), REFUSED)
def test_what_the_connector_refuses_is_refused(columns: dict[str, pa.Array], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode(encoder(topic="clicks"), [pa.RecordBatch.from_pydict(columns)])


def test_a_row_without_a_topic_is_refused_with_what_to_do() -> None:
    for topics in ({}, {"topic": pa.array(["clicks", None])}, {"topic": pa.nulls(2)}):
        piece = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], **topics})
        with pytest.raises(ValueError, match="Use the topic option"):
            encode(encoder(), [piece])
    with pytest.raises(ValueError, match="topic attribute unsupported type int64"):
        encode(encoder(), [pa.RecordBatch.from_pydict({"value": [b"a"], "topic": [1]})])


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key_is_refused(header: dict[str, Any] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    piece = pa.RecordBatch.from_pydict({"value": [b"v"], "headers": pa.array([[header]], kind)})
    with pytest.raises(ValueError, match="a header without a key"):
        encode(encoder(topic="clicks"), [piece])
