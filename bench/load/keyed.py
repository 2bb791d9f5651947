"""Records with keys, some of which come again, in batches of 16 kB before compression; and segments of them.

**Invariant:** the same arguments give the same bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import cramjam
from crc32c import crc32c

from bench.load.batches import CODECS, TIMESTAMP_MS, Batch, varint

BATCH_BYTES = 16_384
KEY_SIZE = 16
_RECORD_OVERHEAD = 8
_POOL_SIZE = 1 << 20  # of text that values are cut from
_NO_HEADERS = b"\x00"
_CHECKED = struct.Struct(">hiqqqhii")


def keyed_batches(total_bytes: int, value_size: int, superseded: float, codec: str) -> Iterator[Batch]:
    """Batches of that many bytes before compression, a share of whose records is superseded by later ones."""
    chance = random.Random(value_size)
    pool = _text(chance)
    count = total_bytes // (KEY_SIZE + value_size + _RECORD_OVERHEAD)
    unique = max(int(count * (1 - superseded)), 1)
    keys = [*range(unique), *(chance.randrange(unique) for _ in range(count - unique))]
    chance.shuffle(keys)
    per_batch = max(BATCH_BYTES // (KEY_SIZE + value_size + _RECORD_OVERHEAD), 1)
    deltas = [b"\x00\x00" + varint(place) + varint(KEY_SIZE) for place in range(per_batch)]
    value_head = varint(value_size)
    for start in range(0, count, per_batch):
        pieces: list[bytes] = []
        for head, key in zip(deltas, keys[start : start + per_batch], strict=False):
            cut = chance.randrange(_POOL_SIZE - value_size)
            value = pool[cut : cut + value_size]
            spread = (key * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
            body = b"%b%016x%b%b%b" % (head, spread, value_head, value, _NO_HEADERS)
            pieces += (varint(len(body)), body)
        yield _batch(b"".join(pieces), len(pieces) // 2, codec)


def _text(chance: random.Random) -> bytes:
    """Like events in JSON: it compresses, but not to nothing."""
    words = [
        b"order",
        b"customer",
        b"status",
        b"shipped",
        b"pending",
        b"amount",
        b"street",
        b"city",
        b"total",
    ]
    text = bytearray()
    while len(text) < _POOL_SIZE:
        text += b'{"%b":"%b","id":%d},' % (
            chance.choice(words),
            chance.choice(words),
            chance.randrange(1 << 40),
        )
    return bytes(text[:_POOL_SIZE])


def _batch(records: bytes, count: int, codec: str) -> Batch:
    if codec == "zstd":
        records = bytes(cramjam.zstd.compress(records, level=3))
    times = (TIMESTAMP_MS, TIMESTAMP_MS)
    checked = _CHECKED.pack(CODECS[codec], count - 1, *times, -1, -1, -1, count) + records
    return Batch(struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked, count)


def write_segments(folder: Path, batches: list[Batch], segment_bytes: int) -> list[tuple[Path, int]]:
    """As a broker rolls them: each segment's file, and its base offset."""
    folder.mkdir(parents=True)
    found: list[tuple[Path, int]] = []
    offset, size, pieces = 0, 0, list[bytes]()
    base = 0
    for batch in [*batches, None]:
        if batch is None or size + batch.size > segment_bytes:
            found.append((folder / f"{base:020d}.log", base))
            found[-1][0].write_bytes(b"".join(pieces))
            base, size, pieces = offset, 0, []
        if batch is not None:
            pieces.append(struct.pack(">qii", offset, batch.size - 12, 0) + batch.content[16:])
            offset += batch.record_count
            size += batch.size
    return found
