"""What the records of a journal say: the last value of each key, as far as they have been read.

Batches of a transaction are pending (`base/pending`) until its marker.

**Invariant:** a batch whose checksum does not match is not taken.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from tidelog.base.decision import Entry
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.base.pending import Pending
from tidelog.protocol.batch import CODEC_MASK, CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, read_marker, read_pairs, read_records

# Base offset, length, crc, attributes, last offset delta, producer id, record count.
_HEAD = Struct(">qi5xIhi16xq6xi")
assert _HEAD.size == BATCH_HEADER_SIZE
_CRC_FROM = 21


Pairs = list[tuple[bytes | None, bytes | None]]


class JournalReader:
    def __init__(self, start_offset: int, pending: Pending | None = None) -> None:
        self.next_offset = start_offset
        self.latest: dict[bytes, bytes] = {}
        self.pending = pending if pending is not None else Pending()

    def take(self, data: bytes) -> None:
        """Whole batches, from the one with `next_offset` on; what is cut off is left. CorruptBatch if one is
        damaged."""
        position, end = 0, len(data)
        while position + BATCH_HEADER_SIZE <= end:
            base_offset, length, crc, attributes, last_delta, producer_id, count = _HEAD.unpack_from(
                data, position
            )
            stop = position + LENGTH_OVERHEAD + length
            if stop > end:
                break
            if crc32c(memoryview(data)[position + _CRC_FROM : stop]) != crc:
                raise CorruptBatch("the checksum of a batch does not match")
            if attributes & (CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT):
                self._take_unusual(data[position:stop], attributes, producer_id)
            else:
                self._take(read_pairs(data, position + BATCH_HEADER_SIZE, stop, count))
            self.next_offset = base_offset + last_delta + 1
            position = stop
        if position == 0:
            raise CorruptBatch("a batch is cut off")

    def _take(self, pairs: Pairs) -> None:
        if self.pending:
            self.pending.overwrite(key for key, _ in pairs if key is not None)
        self._put(pairs)

    def _put(self, pairs: Pairs) -> None:
        latest = self.latest
        for key, value in pairs:
            if key is None:
                raise CorruptBatch("a record without a key")
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value

    def _take_unusual(self, batch: bytes, attributes: int, producer_id: int) -> None:
        """Compressed batches, those of transactions, and markers."""
        if attributes & CONTROL_BIT:
            ended = read_marker(batch)
            is_commit = ended is not None and ended[0] is Marker.COMMIT
            self._put([(entry.key, entry.value) for entry in self.pending.end(producer_id, is_commit)])
            return
        pairs: Pairs = [(record.key, record.value) for record in read_records(batch)]
        if attributes & TRANSACTIONAL_BIT:
            entries = [Entry(key, value) for key, value in pairs if key is not None]
            self.pending.add(producer_id, entries)
        else:
            self._take(pairs)
