"""Producer snapshots: the layout byte for byte, and damage that never passes for a snapshot."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c

from tidelog.log.format.snapshot import ProducerEntry, decode_snapshot, encode_snapshot, pack_entry
from tidelog.protocol.errors import CorruptBatch

ENTRIES = [ProducerEntry(7, 2, 9, 40, 3, 1_000, -1, -1), ProducerEntry(2**40, 0, -1, -1, 0, 1_001, 4, 38)]


def test_the_layout_is_the_one_that_is_documented() -> None:
    entries = b"".join(
        pack(">q", entry.producer_id)
        + pack(">h", entry.producer_epoch)
        + pack(">i", entry.last_sequence)
        + pack(">q", entry.last_offset)
        + pack(">i", entry.offset_delta)
        + pack(">q", entry.timestamp)
        + pack(">i", entry.coordinator_epoch)
        + pack(">q", entry.open_transaction_offset)
        for entry in ENTRIES
    )
    body = pack(">i", 2) + entries
    content = encode_snapshot([pack_entry(*entry) for entry in ENTRIES])
    assert content == pack(">h", 1) + pack(">I", crc32c(body)) + body
    assert decode_snapshot(content) == ENTRIES
    assert decode_snapshot(encode_snapshot([])) == []


def test_a_damaged_snapshot_is_told_from_a_whole_one() -> None:
    content = encode_snapshot([pack_entry(*ENTRIES[0])])
    damaged = [content[:size] for size in range(len(content))]
    damaged += [content + b"\0", b"\0\2" + content[2:], bytes(len(content))]
    for place in range(2, len(content)):
        damaged.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    for bad in damaged:
        with pytest.raises(CorruptBatch):
            decode_snapshot(bad)
