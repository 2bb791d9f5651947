"""What the records of a journal say: the last value of each key, as far as they have been read.

Batches of a transaction count when they are committed, in the order of the markers; but a value that was
written behind them meanwhile stays, as in Kafka.

**Invariant:** a batch whose checksum does not match is not taken.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.protocol.batch import CODEC_MASK, CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, read_marker, read_pairs, read_records

# Base offset, length, crc, attributes, last offset delta, producer id, record count.
_HEAD = Struct(">qi5xIhi16xq6xi")
assert _HEAD.size == BATCH_HEADER_SIZE
_CRC_FROM = 21


Pairs = list[tuple[bytes | None, bytes | None]]


class Written(NamedTuple):
    """A batch of a transaction."""

    base_offset: int
    pairs: Pairs


class JournalReader:
    def __init__(self, start_offset: int) -> None:
        self.next_offset = start_offset
        self.latest: dict[bytes, bytes] = {}
        self._undecided: dict[int, list[Written]] = {}  # of open transactions, by producer
        self._written: dict[bytes, int] = {}  # where the values are that were taken while some were open

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
                self._take_unusual(data[position:stop], attributes, producer_id, base_offset)
            else:
                self._take(read_pairs(data, position + BATCH_HEADER_SIZE, stop, count), base_offset)
            self.next_offset = base_offset + last_delta + 1
            position = stop
        if position == 0:
            raise CorruptBatch("a batch is cut off")

    def _take(self, pairs: Pairs, base_offset: int) -> None:
        latest = self.latest
        if self._undecided:
            self._note(pairs, base_offset)
        for key, value in pairs:
            if key is None:
                raise CorruptBatch("a record without a key")
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value

    def _note(self, pairs: Pairs, base_offset: int) -> None:
        written = self._written
        for key, value in pairs:
            if key is not None and value is not None:
                written[key] = base_offset
            elif key is not None:
                written.pop(key, None)

    def _commit(self, batch: Written) -> None:
        """What the transaction wrote, but for keys with a value that stands behind it."""
        written = self._written
        first = [pair for pair in batch.pairs if written.get(pair[0] or b"", -1) < batch.base_offset]
        self._take(first, batch.base_offset)

    def _take_unusual(self, batch: bytes, attributes: int, producer_id: int, base_offset: int) -> None:
        """Compressed batches, and those of transactions, which count when they are committed."""
        if attributes & CONTROL_BIT:
            ended = read_marker(batch)
            undecided = self._undecided.pop(producer_id, [])
            if ended is not None and ended[0] is Marker.COMMIT:
                for each in undecided:
                    self._commit(each)
            if not self._undecided:
                self._written = {}
            return
        pairs: Pairs = [(record.key, record.value) for record in read_records(batch)]
        if attributes & TRANSACTIONAL_BIT:
            pairs = [pair for pair in pairs if pair[0] is not None]
            self._undecided.setdefault(producer_id, []).append(Written(base_offset, pairs))
        else:
            self._take(pairs, base_offset)

    def drop_undecided(self) -> int:
        """Forget what transactions that are still open have written; how many records that were."""
        count = sum(len(each.pairs) for batches in self._undecided.values() for each in batches)
        self._undecided, self._written = {}, {}
        return count
