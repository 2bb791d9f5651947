"""Records in a batch, held against Kafka's own bytes, another client and damage."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import reference
from tidelog.protocol import batch as batches
from tidelog.protocol.compression import CODEC_NAMES, ZSTD, compress
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import (
    Marker,
    Record,
    build_batch,
    build_control_batch,
    find_timestamp,
    read_marker,
    read_records,
    recompress,
)

CODECS = st.integers(0, 4)
BYTES = st.one_of(st.none(), st.binary(max_size=100))
TIMESTAMPS = st.integers(-1, 2**50)
HEADERS = st.lists(st.tuples(reference.TEXT, BYTES), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, TIMESTAMPS), min_size=1, max_size=12)
Plain = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]

# Three records, as Kafka 4.3's own MemoryRecords writes them with each codec.
JAVA_HEAD = "000000000000002a"
JAVA_TAIL = "0000000200000000000003e800000000000003ed000000000000000700010000000500000003"
FROM_JAVA = {
    "gzip": f"{JAVA_HEAD}0000006a00000003027cd9d2520001{JAVA_TAIL}1f8b08000000000000fffbc6c2c0c0c0947d83a5"
    "6c14100d589832982a98f218f91818991899ca19f818b858984a181900a9a8ee564d010000",
    "snappy": f"{JAVA_HEAD}0000007a0000000302a9b951c00002{JAVA_TAIL}82534e41505059000000000100000001000000"
    "35cd0224f604000000026bd80476fe0100fe0100fe0100fe0100aa01005c0402680278026e010e000102010277000e000a04"
    "02740100",
    "lz4": f"{JAVA_HEAD}000000690000000302732a6b2e0003{JAVA_TAIL}04224d1860408229000000aff604000000026bd8"
    "04760100ff19f0090402680278026e010e000102010277000e000a040274010000000000",
    "zstd": f"{JAVA_HEAD}00000067000000030286964cd30004{JAVA_TAIL}28b52ffd00585401002402f604000000026bd804"
    "760402680278026e010e000102010277000e000a04027401000100282a4002010000",
}
JAVA_RECORDS = [
    Record(42, 1000, b"k", b"v" * 300, [("h", b"x"), ("n", None)]),
    Record(43, 999, None, b"w", []),
    Record(44, 1005, b"t", None, []),
]


def sealed(batch: bytes | bytearray) -> bytearray:
    """The batch with the length and the checksum that its bytes need."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - batches.LENGTH_OVERHEAD)
    struct.pack_into(">I", out, batches.CRC_POSITION, crc32c(out[batches.ATTRIBUTES_POSITION :]))
    return out


@given(plain=RECORDS, codec=CODECS, base_offset=st.integers(0, 2**62))
@settings(max_examples=150, deadline=None)
def test_what_was_built_reads_back(plain: Plain, codec: int, base_offset: int) -> None:
    batch = build_batch(plain, base_offset=base_offset, codec=codec)
    expected = [
        Record(base_offset + delta, timestamp, key, value, headers)
        for delta, (key, value, headers, timestamp) in enumerate(plain)
    ]
    assert read_records(batch) == expected
    assert read_records(memoryview(bytes(batch))) == expected


@pytest.mark.parametrize("codec", FROM_JAVA)
def test_what_kafka_itself_wrote_is_read(codec: str) -> None:
    batch = bytes.fromhex(FROM_JAVA[codec])
    assert read_records(batch) == JAVA_RECORDS
    header = batches.read_header(batch)
    assert CODEC_NAMES[header.codec] == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)


def test_uncompressed_records_are_byte_for_byte_kafkas() -> None:
    plain = [(record.key, record.value, record.headers, record.timestamp) for record in JAVA_RECORDS]
    built = build_batch(
        plain, base_offset=42, producer_id=7, producer_epoch=1, base_sequence=5, leader_epoch=3
    )
    assert recompress(bytes.fromhex(FROM_JAVA["zstd"]), 0) == built
    assert built[17:21].hex() == "785d1ed2", "the checksum that Kafka computed"


@given(plain=RECORDS, codec=CODECS)
@settings(max_examples=60, deadline=None)
def test_another_client_reads_the_same_records(plain: Plain, codec: int) -> None:
    theirs = DefaultRecordBatch(bytes(build_batch(plain, codec=codec)))
    assert theirs.validate_crc()
    found = [(each.key, each.value, each.headers, each.timestamp) for each in theirs]
    assert found == plain


@given(plain=RECORDS, codec=CODECS)
@settings(max_examples=60, deadline=None)
def test_records_of_another_client_are_read(plain: Plain, codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10**7)
    # That builder takes a first timestamp of -1 for none yet.
    plain = [(key, value, headers, max(timestamp, 0)) for key, value, headers, timestamp in plain]
    for offset, (key, value, headers, timestamp) in enumerate(plain):
        builder.append(offset, timestamp, key, value, headers)
    assert [
        (each.key, each.value, each.headers, each.timestamp) for each in read_records(builder.build())
    ] == plain


def test_the_header_says_what_it_was_told() -> None:
    plain: Plain = [(None, b"a", [], 30), (None, b"b", [], 10), (None, b"c", [], 20)]
    batch = build_batch(
        plain,
        base_offset=5,
        codec=3,
        producer_id=11,
        producer_epoch=12,
        base_sequence=13,
        transactional=True,
        leader_epoch=14,
    )
    header = batches.check_whole(memoryview(batch), 0, len(batch))
    assert header.attributes == 3 | batches.TRANSACTIONAL_BIT
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (5, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (30, 30)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 12, 13)
    assert header.leader_epoch == 14


def test_with_append_time_every_record_has_the_batchs() -> None:
    batch = build_batch([(None, b"a", [], 5), (None, b"b", [], 9)], append_time_ms=77)
    assert [record.timestamp for record in read_records(batch)] == [77, 77]


def test_a_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    name = b"\xff\xfe".decode(errors="surrogateescape")
    batch = build_batch([(None, None, [(name, b"x")], 0)])
    assert b"\xff\xfe" in batch
    assert read_records(batch)[0].headers == [(name, b"x")]


@given(plain=RECORDS, before=CODECS, after=CODECS)
@settings(max_examples=80, deadline=None)
def test_recompressing_changes_the_codec_and_nothing_else(plain: Plain, before: int, after: int) -> None:
    batch = build_batch(plain, base_offset=9, codec=before, producer_id=5, transactional=True, leader_epoch=2)
    again = recompress(batch, after)
    assert read_records(again) == read_records(batch)
    old, new = batches.read_header(batch), batches.read_header(again)
    assert new.codec == after
    unchanged = {"length": 0, "crc": 0, "attributes": 0}
    assert new._replace(**unchanged) == old._replace(**unchanged)
    assert new.attributes & ~7 == old.attributes & ~7


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    batch = build_batch([(b"k", b"v", [], 0)], codec=4)[:61]
    struct.pack_into(">i", batch, 57, 0)
    assert read_records(sealed(batch)) == []


def test_a_batch_that_compaction_thinned_keeps_its_offsets() -> None:
    one = build_batch([(b"k", b"v", [], 0)] * 3, base_offset=10)
    last_record = (len(one) - 61) // 3
    thinned = one[:61] + one[61 + last_record :]
    struct.pack_into(">i", thinned, 57, 2)
    assert [record.offset for record in read_records(sealed(thinned))] == [11, 12]


def corrupted(change: str) -> bytearray:
    plain: Plain = [(b"key", b"value", [("h", b"x")], 1), (b"key", b"value", [("h", b"x")], 2)]
    batch = build_batch(plain)
    match change:
        case "more records than there are":
            struct.pack_into(">i", batch, 57, 3)
        case "fewer records than there are":
            struct.pack_into(">i", batch, 57, 1)
        case "a negative count":
            struct.pack_into(">i", batch, 57, -1)
        case "a byte too many":
            batch.append(0)
        case "an offset past the last":
            struct.pack_into(">i", batch, 23, 0)
        case "an offset twice":
            batch[(61 + len(batch)) // 2 + 3] = 0
        case "offsets that overflow":
            struct.pack_into(">q", batch, 0, 2**63 - 1)
        case "a timestamp that overflows":
            struct.pack_into(">q", batch, 27, 2**63 - 1)
        case "a record longer than its content":
            batch[61] += 2
        case "a codec that does not exist":
            batch[22] = 5
    return sealed(batch)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("more records than there are", "record length: the request ends"),
        ("fewer records than there are", "bytes after the last record"),
        ("a negative count", "cannot hold -1 records"),
        ("a byte too many", "1 bytes after the last record"),
        ("an offset past the last", "offset delta 1 after 0 of 0"),
        ("an offset twice", "offset delta 0 after 0 of 1"),
        ("offsets that overflow", "cannot be"),
        ("a timestamp that overflows", "a timestamp does not fit 64 bits"),
        ("a record longer than its content", "1 bytes more than its content"),
        ("a codec that does not exist", "unknown codec 5"),
    ],
)
def test_a_batch_that_contradicts_itself_is_corrupt(change: str, complaint: str) -> None:
    with pytest.raises(CorruptBatch, match=complaint):
        read_records(corrupted(change))


def test_a_flipped_bit_is_corrupt() -> None:
    batch = build_batch([(b"k", b"v", [], 0)])
    for position in range(batches.ATTRIBUTES_POSITION, len(batch)):
        batch[position] ^= 1
        with pytest.raises(CorruptBatch, match="checksum"):
            read_records(batch)
        batch[position] ^= 1


@given(drawn=st.data(), codec=st.sampled_from([0, 0, 2, 4]))
@settings(max_examples=400, deadline=None)
def test_damage_under_a_right_checksum_raises_nothing_else(drawn: st.DataObject, codec: int) -> None:
    plain: Plain = [(b"key", b"value", [("h", b"x")], n) for n in range(3)]
    batch = build_batch(plain, codec=codec)
    damaged = bytes(batch[:23]) + drawn.draw(reference.mutations(bytes(batch[23:])))
    if drawn.draw(st.booleans()):
        damaged = drawn.draw(reference.mutations(damaged))
    try:
        found = read_records(sealed(damaged) if len(damaged) >= 61 else damaged, 10_000)
        assert len(found) <= len(damaged)
    except CorruptBatch:
        pass


@given(st.binary(max_size=200))
def test_random_bytes_are_corrupt(data: bytes) -> None:
    for read in (read_records, read_marker):
        with pytest.raises(CorruptBatch):
            read(data)
    with pytest.raises(CorruptBatch):
        recompress(data, 1)


def test_a_bomb_in_a_batch_is_refused() -> None:
    batch = build_batch([(None, bytes(10_000_000), [], 0)], codec=4)
    assert len(batch) < 2_000
    for read in (read_records, lambda batch, size_max: recompress(batch, 0, size_max)):
        with pytest.raises(CorruptBatch, match="more than 1000000 bytes"):
            read(batch, 1_000_000)


@pytest.mark.parametrize("marker", Marker)
def test_a_marker_reads_back(marker: Marker) -> None:
    batch = build_control_batch(marker, 5, 1, 9, 1_234, base_offset=3, leader_epoch=2)
    header = batches.check_whole(memoryview(batch), 0, len(batch))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, -1)
    assert read_marker(batch) == (marker, 9)
    assert read_records(batch) == [Record(3, 1_234, struct.pack(">hh", 0, marker), b"\0\0\0\0\0\x09", [])]


def test_a_control_record_of_another_kind_is_no_marker_and_a_broken_one_is_corrupt() -> None:
    def control(key: bytes | None, value: bytes | None) -> Any:
        return build_batch([(key, value, [], 0)], control=True, transactional=True)

    assert read_marker(control(b"\0\0\0\2", b"")) is None
    for key, value in ((None, None), (b"\0\0\0", b""), (b"\0\0\0\1", b"\0\0"), (b"\0\0\0\1", None)):
        with pytest.raises(CorruptBatch):
            read_marker(control(key, value))


@given(plain=RECORDS, codec=CODECS, append_time=st.none() | TIMESTAMPS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_look_up_by_time_finds_what_reading_every_record_finds(
    plain: Plain, codec: int, append_time: int | None, data: st.DataObject
) -> None:
    batch = build_batch(plain, base_offset=100, codec=codec)
    if append_time is not None:
        view, header = memoryview(batch), batches.read_header(batch)
        batches.stamp_append_time(view, 0, len(batch), header.attributes, append_time)
    records = read_records(batch)
    times = [record.timestamp for record in records]
    timestamp = data.draw(st.sampled_from(times)) + data.draw(st.integers(-1, 1))
    offset_min = data.draw(st.sampled_from([0, *(record.offset for record in records)]))
    expected = [
        (record.timestamp, record.offset)
        for record in records
        if record.timestamp >= timestamp and record.offset >= offset_min
    ]
    assert find_timestamp(batch, timestamp, offset_min) == (expected[0] if expected else None)


def test_a_look_up_by_time_ends_at_records_that_are_all_alike() -> None:
    """A few hundred bytes of zstd unfold to millions of them; the broker's loop may not walk those."""
    head = batches.read_header(build_batch([(None, None, (), 0)]))
    record = b"\x0c\0\0\0\1\1\0"
    body = compress(ZSTD, record * 1_000)
    alike = head._replace(attributes=ZSTD, record_count=1_000, last_offset_delta=999)
    batch = sealed(batches.HEADER.pack(*alike) + body)
    with pytest.raises(CorruptBatch, match="offset delta 0 after 0"):
        find_timestamp(batch, 1, 0)


def test_a_look_up_by_time_answers_no_time_beyond_64_bits() -> None:
    head = batches.read_header(build_batch([(None, None, (), 0)]))
    batch = sealed(batches.HEADER.pack(*head._replace(base_timestamp=2**63 - 1)) + b"\x0c\0\2\0\1\1\0")
    with pytest.raises(CorruptBatch, match="64 bits"):
        find_timestamp(batch, 1, 0)
