"""What a producer's batch must be: each field wrong once, and the code that says so."""

from __future__ import annotations

from pathlib import Path
from struct import pack_into

import pytest
from crc32c import crc32c

from tests.log.making import NOW_MS, append, make_batch, open_new, refusal
from tidelog.base.limits import RECORDS_READ_MAX
from tidelog.log.admission import RefusedRecords
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import build_batch

HOUR_MS = 3_600_000


def changed(place: int, layout: str, value: int, count: int = 2) -> bytearray:
    """A good batch with one field of its header replaced, and the right checksum for it."""
    batch = make_batch(count)
    pack_into(layout, batch, place, value)
    pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


@pytest.mark.parametrize(
    ("place", "layout", "value", "code"),
    [
        (0, ">q", 5, ErrorCode.invalid_record),
        (8, ">i", 10**6, ErrorCode.invalid_record),
        (8, ">i", -1, ErrorCode.corrupt_message),
        (8, ">i", 0, ErrorCode.corrupt_message),
        (16, ">b", 1, ErrorCode.invalid_record),
        (21, ">h", 0x20, ErrorCode.invalid_record),
        (21, ">h", 0x40, ErrorCode.invalid_record),
        (21, ">h", 0x80, ErrorCode.invalid_record),
        (21, ">h", 5, ErrorCode.invalid_record),
        (23, ">i", 0, ErrorCode.invalid_record),
        (23, ">i", 2, ErrorCode.invalid_record),
        (23, ">i", -1, ErrorCode.invalid_record),
        (57, ">i", 0, ErrorCode.invalid_record),
        (57, ">i", -1, ErrorCode.invalid_record),
        (57, ">i", 3, ErrorCode.invalid_record),
        (43, ">q", 9, ErrorCode.invalid_record),
    ],
)
def test_a_wrong_header_field_is_refused(
    tmp_path: Path, place: int, layout: str, value: int, code: ErrorCode
) -> None:
    assert refusal(open_new(tmp_path), changed(place, layout, value)) == code


def test_a_flipped_bit_anywhere_under_the_checksum_is_refused(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for place in range(17, len(make_batch())):
        batch = make_batch()
        batch[place] ^= 0x10
        assert refusal(log, batch) == ErrorCode.corrupt_message, place


def test_a_batch_shorter_than_its_header_is_refused(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for size in (0, 1, 60):
        assert refusal(log, make_batch()[:size]) == ErrorCode.invalid_record


def test_two_batches_in_one_request_are_refused(tmp_path: Path) -> None:
    assert refusal(open_new(tmp_path), make_batch() + make_batch()) == ErrorCode.invalid_record


def test_max_message_bytes_is_taken_exactly_and_not_one_byte_more(tmp_path: Path) -> None:
    batch = make_batch(value=b"x" * 200)
    log = open_new(tmp_path, max_message_bytes=len(batch))
    append(log, batch)
    assert refusal(log, make_batch(value=b"x" * 201)) == ErrorCode.message_too_large


def test_a_batch_that_recompression_makes_too_large_is_refused(tmp_path: Path) -> None:
    batch = make_batch(value=b"x" * 5_000, codec=4)
    log = open_new(tmp_path, max_message_bytes=1_000, compression_type="uncompressed")
    assert len(batch) < 1_000
    assert refusal(log, batch) == ErrorCode.message_too_large


def test_records_that_cannot_be_read_are_refused_where_they_must_be_read(tmp_path: Path) -> None:
    broken = make_batch()
    broken[61] ^= 0x7F
    pack_into(">I", broken, 17, crc32c(broken[21:]))
    append(open_new(tmp_path / "opaque"), bytearray(broken))
    compacted = open_new(tmp_path / "compacted", cleanup_policy="compact")
    assert refusal(compacted, bytearray(broken)) == ErrorCode.corrupt_message


def test_a_compacted_topic_refuses_a_record_without_a_key(tmp_path: Path) -> None:
    log = open_new(tmp_path, cleanup_policy="compact")
    append(log, make_batch(key=b""))
    assert refusal(log, make_batch(key=None)) == ErrorCode.invalid_record
    append(open_new(tmp_path / "deleting"), make_batch(key=None))


@pytest.mark.parametrize("codec", range(5))
def test_every_record_without_a_key_is_reported_by_its_place(tmp_path: Path, codec: int) -> None:
    log = open_new(tmp_path, cleanup_policy="compact")
    keys = [b"a", None, b"b" * 200, None, b""]
    batch = build_batch([(key, None, (), NOW_MS) for key in keys], codec=codec)
    with pytest.raises(RefusedRecords) as refused:
        append(log, batch)
    assert refused.value.code == ErrorCode.invalid_record
    assert [place for place, _ in refused.value.record_errors] == [1, 3]


def test_timestamps_out_of_bounds_are_refused(tmp_path: Path) -> None:
    log = open_new(tmp_path, message_timestamp_before_max_ms=1_000)
    append(log, make_batch(timestamp=NOW_MS + HOUR_MS))
    append(log, make_batch(timestamp=NOW_MS - 1_000))
    append(log, make_batch(timestamp=-1))
    assert refusal(log, make_batch(timestamp=NOW_MS + HOUR_MS + 1)) == ErrorCode.invalid_timestamp
    assert refusal(log, make_batch(timestamp=NOW_MS - 1_001)) == ErrorCode.invalid_timestamp


def test_log_append_time_does_not_mind_the_producer_s_timestamps(tmp_path: Path) -> None:
    log = open_new(tmp_path, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    append(log, make_batch(timestamp=1))
    append(log, make_batch(timestamp=NOW_MS + 100 * HOUR_MS))


def test_a_batch_in_the_topic_s_own_codec_is_kept_byte_for_byte(tmp_path: Path) -> None:
    log = open_new(tmp_path, compression_type="lz4")
    batch = make_batch(3, codec=3)
    body = bytes(batch[61:])
    append(log, batch)
    assert (tmp_path / f"{0:020}.log").read_bytes()[61:] == body


def test_a_batch_of_too_many_records_is_not_unfolded_where_each_must_be_looked_at(tmp_path: Path) -> None:
    many = make_batch(RECORDS_READ_MAX + 1, value=b"", codec=4)
    compacted = open_new(tmp_path / "compacted", cleanup_policy="compact")
    assert refusal(compacted, bytearray(many)) == ErrorCode.message_too_large
    assert append(open_new(tmp_path / "plain"), bytearray(many)).end_offset == RECORDS_READ_MAX + 1
