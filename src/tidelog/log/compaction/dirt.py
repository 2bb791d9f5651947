"""The dirty records of a round: numbered as they are put into the map, and again when they are rewritten.

**Invariant:** map and marks stay within the request's memory. Both passes number the same batches alike.
"""

from __future__ import annotations

from tidelog.log.compaction.keys import KeyMap
from tidelog.log.compaction.request import CleaningRequest, SourcesChanged
from tidelog.log.compaction.rewriting import read_body
from tidelog.protocol.batch import BatchHeader

_MARKS_PER_BYTE = 4  # of the marks' memory: one of each record, and one of each batch at most
_KEYS_SHARE = 7 / 8  # of the memory; the rest is for marks


class Dirt:
    def __init__(self, request: CleaningRequest, kind: type[KeyMap]) -> None:
        self._dirty_offset = request.dirty_offset
        # There cannot be more keys than offsets.
        distance = max(request.end_offset - request.dirty_offset, 1)
        self._keys_max = max(int(request.memory_max * _KEYS_SHARE) // kind.key_size, 1)
        self._records_max = max(int(request.memory_max * (1 - _KEYS_SHARE)) * _MARKS_PER_BYTE, 1)
        self.keys = kind(min(self._keys_max, distance), request.hash_seed)
        self._tombstones = bytearray()  # a mark for each batch that has some
        self._unmapped: set[int] = set()  # base offsets of batches that are larger than the map
        self._record = self._batch = 0  # the number of the next ones
        self._put_count = 0  # records

    def is_in(self, header: BatchHeader) -> bool:
        return header.last_offset >= self._dirty_offset

    def put(self, header: BatchHeader, batch: memoryview) -> bool:
        """Put the keys of a batch; False if there is no room for as many."""
        count = header.record_count
        if self.keys.used + count > self._keys_max or self._record + count > self._records_max:
            if self.keys.used:
                return False
            self._unmapped.add(header.base_offset)
            return True
        if self.keys.put(read_body(header, batch), header, self._record):
            self._mark_tombstones()
        self._record += count
        self._batch += 1
        return True

    def _mark_tombstones(self) -> None:
        place = self._batch >> 3
        if place >= len(self._tombstones):
            self._tombstones += bytes(place + 1 - len(self._tombstones))
        self._tombstones[place] |= 1 << (self._batch & 7)

    def rewind(self) -> None:
        """All that fit was put: the same batches come once more."""
        self._put_count = self._record
        self._record = self._batch = 0

    def next(self, header: BatchHeader) -> tuple[int, bool] | None:
        """The number of a batch's first record, and whether it has tombstones; None if it was not put."""
        if header.base_offset in self._unmapped:
            return None
        number, place = self._record, self._batch >> 3
        has_tombstones = place < len(self._tombstones) and self._tombstones[place] >> (self._batch & 7) & 1
        self._record += header.record_count
        self._batch += 1
        if self._record > self._put_count:
            raise SourcesChanged(f"the batch at {header.base_offset} was another one before")
        return number, bool(has_tombstones)

    @property
    def utilization(self) -> float:
        return self.keys.used / self._keys_max
