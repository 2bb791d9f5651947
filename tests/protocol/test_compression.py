"""The codecs, held against other implementations, against damage and against bombs."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import reference
from tidelog.protocol import compression
from tidelog.protocol.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from tidelog.protocol.errors import CorruptBatch

MIB = 1024 * 1024
EVERY_CODEC = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
REAL_CODEC = pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, count: piece * count, st.binary(min_size=1, max_size=9), st.integers(0, 20_000)),
)


@EVERY_CODEC
@settings(max_examples=60, deadline=None)
@given(data=CONTENTS, kind=st.sampled_from([bytes, bytearray, memoryview]))
def test_what_was_compressed_unfolds_to_the_same(codec: int, data: bytes, kind: type) -> None:
    assert decompress(codec, kind(compress(codec, kind(data))), len(data)) == data


@EVERY_CODEC
@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 3 * MIB])
def test_the_size_allowed_is_allowed_and_one_byte_more_is_not(codec: int, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert decompress(codec, packed, size) == bytes(size)
    if size:
        with pytest.raises(CorruptBatch, match=f"more than {size - 1} bytes"):
            decompress(codec, packed, size - 1)


@REAL_CODEC
def test_a_bomb_is_stopped_before_it_is_allocated(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, bomb, MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * MIB


def test_a_length_that_snappy_only_announces_is_not_allocated() -> None:
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match="cannot decompress to"):
        decompress(SNAPPY, b"\x80\x80\x80\x20" + bytes(20), 128 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


def test_the_densest_snappy_block_unfolds() -> None:
    data = bytes(64 * MIB)
    packed = bytes(cramjam.snappy.compress_raw(data))
    assert len(data) / len(packed) > compression._SNAPPY_RATIO_MAX - 2
    assert decompress(SNAPPY, packed, len(data)) == data


def test_snappy_is_read_without_framing_and_written_with_xerials() -> None:
    data = b"0123456789" * 10_000
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data
    packed = compress(SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert decompress(SNAPPY, packed, len(data)) == data


def test_lz4_blocks_are_independent_because_kafkas_reader_refuses_linked_ones() -> None:
    assert compress(LZ4, bytes(300_000))[4] & 0x20


@given(data=CONTENTS)
@settings(max_examples=20, deadline=None)
def test_what_another_client_packs_unfolds_here_and_ours_there(data: bytes) -> None:
    pairs = [
        (GZIP, aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
        (SNAPPY, aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
        (LZ4, aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
        (ZSTD, aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
    ]
    for codec, encode, decode in pairs:
        assert decompress(codec, bytes(encode(data)), len(data)) == data
        assert bytes(decode(compress(codec, data))) == data


def test_pythons_own_gzip_agrees() -> None:
    data = b"tide" * 50_000
    assert gzip.decompress(compress(GZIP, data)) == data
    assert decompress(GZIP, gzip.compress(data), len(data)) == data


@REAL_CODEC
def test_every_truncation_is_corrupt(codec: int) -> None:
    data = bytes(range(256)) * 300
    packed = compress(codec, data)
    step = max(1, len(packed) // 150)
    for size in range(1, len(packed), step):
        try:
            whole = decompress(codec, packed[:size], len(data))
        except CorruptBatch:
            continue
        # Xerial's framing has no end: cut between two blocks, it is only shorter.
        assert codec == SNAPPY
        assert data.startswith(whole)


@REAL_CODEC
@settings(max_examples=150, deadline=None)
@given(drawn=st.data())
def test_damage_raises_nothing_else(codec: int, drawn: st.DataObject) -> None:
    packed = compress(codec, b"some text, some text, other text; " * 20)
    damaged = drawn.draw(st.one_of(reference.mutations(packed), st.binary(max_size=60)))
    try:
        assert len(decompress(codec, damaged, 5_000)) <= 5_000
    except CorruptBatch:
        pass


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(codec: int) -> None:
    with pytest.raises(CorruptBatch, match="unknown codec"):
        decompress(codec, b"abc", 10)
    with pytest.raises(ValueError, match="unknown codec"):
        compress(codec, b"abc")


def test_names_and_numbers_are_kafkas() -> None:
    assert compression.CODECS == {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
    assert (NONE, GZIP, SNAPPY, LZ4, ZSTD) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, -1), (GZIP, 9), (LZ4, 9), (LZ4, 17), (ZSTD, -131_072), (ZSTD, 22)]
)
def test_every_level_unfolds_to_what_was_given(codec: int, level: int) -> None:
    data = b"the quick brown fox " * 500
    assert decompress(codec, compress(codec, data, level), len(data)) == data


@pytest.mark.parametrize(("codec", "least", "most"), [(GZIP, 1, 9), (ZSTD, 1, 19)])
def test_a_higher_level_tries_harder(codec: int, least: int, most: int) -> None:
    data = b"".join(str(number * number).encode() for number in range(20_000))
    assert len(compress(codec, data, most)) < len(compress(codec, data, least))
