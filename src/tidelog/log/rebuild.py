"""The offset index of a segment, rebuilt from the headers of its batches, in pieces.

It is wanted when the index led a look-up to a place where its batch is not. Others are served between the
pieces, also by this segment as far as its old index is right.

**Invariant:** the new index names batches that a walk from the beginning has come by. If the log is damaged,
what the old one said of batches behind that place is kept: the walk does not get there.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.files import Cold, File
from tidelog.base.limits import BATCH_HEADER_SIZE, RELATIVE_OFFSET_MAX, SEARCH_CHUNK_SIZE, SEARCH_CHUNKS
from tidelog.log.format.index import OFFSET_ENTRY
from tidelog.log.pages import PageRead, Unready
from tidelog.log.scan import Damage, damage_at
from tidelog.protocol.batch import LENGTH_MIN, LENGTH_OVERHEAD, MAGIC, PLACE

_INTERVAL = 4_096
_unpack = PLACE.unpack_from
_pack = OFFSET_ENTRY.pack


class Indexed(Protocol):
    """The segment whose index it is."""

    base_offset: int
    rebuild: IndexRebuild | None

    @property
    def file(self) -> File: ...

    @property
    def size(self) -> int: ...

    def use_index(self, entries: bytearray, last_key: int, end: int, damage: Damage | None) -> None: ...


class IndexRebuild:
    def __init__(self, segment: Indexed, position: int, entries: bytes, last_key: int) -> None:
        """From `position` on, a batch's beginning; `entries` are those of the batches before it."""
        self._segment = segment
        self._position = position
        self._entries = bytearray(entries)
        self._last_key = last_key
        self._since = 0

    def step(self) -> bool:
        """Walk on for one piece; whether the index is done, or not wanted any more. Unready if the disk would
        have to be waited for."""
        segment = self._segment
        for _ in range(SEARCH_CHUNKS):
            if segment.rebuild is not self:
                return True
            try:
                if self._position < segment.size:
                    self._walk_chunk()
            except Cold as cold:
                raise Unready(PageRead(cold)) from None
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
        chunk = file.read_now(start, min(SEARCH_CHUNK_SIZE, end - start))
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
