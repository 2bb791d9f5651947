"""The four codecs of a record batch, by Kafka's numbers.

The output is readable by Kafka's own client: snappy in xerial's framing, lz4 frames of independent
blocks without a content checksum, zstd at level 3. Snappy is read with and without the framing.

**Invariant:** `decompress` allocates at most `size_max` and raises only `CorruptBatch`, for bytes
that are damaged or decompress to more.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

import cramjam

from tidelog.base.files import Buffer
from tidelog.protocol.errors import CorruptBatch, OversizedBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS = {name: codec for codec, name in enumerate(CODEC_NAMES)}

_ZSTD_LEVEL = 3
_LZ4_FAST_LEVEL = 1
_LZ4_USUAL_LEVEL = 9  # Kafka's default, by which it means the fast method
_GZIP_USUAL_LEVEL = 6
_FIRST_GUESS_SIZE = 64 * 1024
_GROWTH = 8

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
# A snappy element of three bytes can expand to 64: no block decompresses to more than this factor.
_SNAPPY_RATIO_MAX = 22  # a copy of 64 bytes takes three


class _DecompressInto(Protocol):
    def __call__(self, input: Buffer, output: bytearray) -> int: ...


_INTO: dict[int, _DecompressInto] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The compressed data. `level` is by Kafka's numbers; None, -1 for gzip and 9 for lz4 are the default."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            gzip_level = _GZIP_USUAL_LEVEL if level is None or level < 0 else level
            return bytes(cramjam.gzip.compress(data, level=gzip_level))
        case 2:
            return _compress_xerial(data)
        case 3:
            lz4_level = _LZ4_FAST_LEVEL if level in (None, _LZ4_USUAL_LEVEL) else level
            compressor = cramjam.lz4.Compressor(lz4_level, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
        case _:
            raise ValueError(f"unknown codec {codec}")


def decompress(codec: int, data: Buffer, size_max: int) -> bytes:
    """The decompressed data; CorruptBatch if it has more than `size_max` bytes."""
    if codec == NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    if codec == SNAPPY:
        if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            return _decompress_xerial(data, size_max)
        return _decompress_snappy(data, 0, size_max)
    if codec not in _INTO:
        raise CorruptBatch(f"unknown codec {codec}")
    return _decompress_growing(codec, data, size_max)


def _decompress_growing(codec: int, data: Buffer, size_max: int) -> bytes:
    """Decompress with growing buffers: the sizes in the data are not trusted."""
    decompress_into = _INTO[codec]
    size = min(size_max, max(_FIRST_GUESS_SIZE, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as problem:
            if "write whole buffer" not in str(problem):
                raise CorruptBatch(f"{CODEC_NAMES[codec]}: {problem}") from None
        else:
            return bytes(memoryview(out)[:written])
        if size >= size_max:
            raise _too_large(codec, size_max)
        size = min(size_max, size * _GROWTH)


def _too_large(codec: int, size_max: int) -> OversizedBatch:
    return OversizedBatch(f"{CODEC_NAMES[codec]}: decompresses to more than {size_max} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    # One block even for empty data: some readers take a bare header for raw snappy.
    for start in range(0, max(1, len(view)), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_xerial(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptBatch("snappy: ends in the middle of its header")
    out = bytearray()
    while position < len(view):
        if position + 4 > len(view):
            raise CorruptBatch("snappy: ends in the middle of a block's length")
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += 4
        if not 0 <= length <= len(view) - position:
            raise CorruptBatch(f"snappy: a block of {length} bytes where {len(view) - position} are left")
        out += _decompress_snappy(view[position : position + length], len(out), size_max)
        position += length
    return bytes(out)


def _decompress_snappy(data: Buffer, size_before: int, size_max: int) -> bytes:
    """One block, when `size_before` bytes of the limit are used already."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size_before + size > size_max:
            raise _too_large(SNAPPY, size_max)
        if size > _SNAPPY_RATIO_MAX * len(data):
            raise CorruptBatch(f"snappy: {len(data)} bytes cannot decompress to {size}")
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as problem:
        raise CorruptBatch(f"snappy: {problem}") from None
    return bytes(memoryview(out)[:written])
