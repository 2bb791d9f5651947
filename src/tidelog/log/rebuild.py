"""The offset index of a segment, rebuilt from the headers of its batches, in pieces.

It is wanted when the index led a look-up to a place where its batch is not. Others are served between the
pieces, also by this segment as far as its old index is right.

**Invariant:** the new index names batches that a walk from the beginning has come by. If the log is damaged,
what the old one said of batches behind that place is kept: the walk does not get there.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.base.limits import BATCH_HEADER_SIZE, RELATIVE_OFFSET_MAX, SEARCH_CHUNKS
from tidelog.log.index import OffsetIndex
from tidelog.log.scan import Damage, damage_at
from tidelog.protocol.batch import LENGTH_MIN, LENGTH_OVERHEAD, MAGIC

if TYPE_CHECKING:
    from tidelog.log.segment import Segment

_INTERVAL = 4_096
_CHUNK_SIZE = 8 * 1024
_unpack = Struct(">qi4xb6xi").unpack_from
_pack = OffsetIndex.entry.pack


class IndexRebuild:
    def __init__(self, segment: Segment, position: int, entries: bytes, last_key: int) -> None:
        """From `position` on, a batch's beginning; `entries` are those of the batches before it."""
        self._segment = segment
        self._position = position
        self._entries = bytearray(entries)
        self._last_key = last_key
        self._since = 0

    def step(self) -> bool:
        """Walk on for one piece; whether the index is done, or not wanted any more."""
        segment = self._segment
        for _ in range(SEARCH_CHUNKS):
            if segment.rebuild is not self:
                return True
            try:
                if self._position < segment.size:
                    self._walk_chunk()
            except Damage as damage:
                segment.use_index(self._entries, self._last_key, damage.position, damage)
                return True
            if self._position == segment.size:
                segment.use_index(self._entries, self._last_key, self._position, None)
                return True
        return False

    def _walk_chunk(self) -> None:
        file, end = self._segment.file, self._segment.size
        start = self._position
        chunk = file.read(start, min(_CHUNK_SIZE, end - start))
        inside, last_inside = 0, len(chunk) - BATCH_HEADER_SIZE
        if last_inside < 0:
            raise Damage(file.name, start, f"{end - start} bytes are left over")
        base = self._segment.base_offset
        while inside <= last_inside:
            base_offset, length, magic, last_delta = _unpack(chunk, inside)
            key, size = base_offset + last_delta - base, length + LENGTH_OVERHEAD
            if magic != MAGIC or length < LENGTH_MIN or start + inside + size > end:
                raise damage_at(file, start + inside, magic, size, end)
            if not self._last_key < key <= RELATIVE_OFFSET_MAX:
                raise Damage(file.name, start + inside, f"a batch that ends with offset {base + key}")
            if self._since > _INTERVAL:
                self._entries += _pack(key, start + inside)
                self._since = 0
            self._since += size
            self._last_key = key
            inside += size
            self._position = start + inside
