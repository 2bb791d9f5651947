"""The keys of the dirty records, and which of those records are dead, in plain Python.

Records are numbered in the order in which they are put. The map has the number of each key's last record; to
put a key once more marks the record before it as dead, so that no key of the dirty part is looked up again.

**Invariant:** map and marks have the bounds that they were made with; a body is read as far as it is what its
header says, else CorruptBatch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar, NamedTuple, Protocol

from tidelog.base.files import Buffer
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import walk_outlines
from tidelog.protocol.wire import write_varint

_KEY_KEPT_SIZE = 32  # bytes of a key that is its own name in the map; a longer one has its hash there
_HASH_SIZE = 16
_DEAD_SIZE_FIRST = 1 << 13  # of the marks; they grow
_NO_TIME = -(2**63)


class Kept(NamedTuple):
    """The records that stay of a batch."""

    body: Buffer  # decompressed
    record_count: int
    last_time_delta: int  # the largest timestamp delta
    has_tombstones: bool


class KeyMap(Protocol):
    """The inner loops of a round. Bodies are decompressed; `number` is that of a batch's first record. A body
    that is returned is valid until the next call of the same kind."""

    key_size: ClassVar[int]  # bytes that a key takes

    def __init__(self, keys_max: int, seed: int) -> None: ...

    @property
    def used(self) -> int:
        """Keys that are in the map."""

    def put(self, body: Buffer, header: BatchHeader, number: int) -> bool:
        """Put the batch's keys; whether it has tombstones. Records without a key are dead at once."""

    def has_dead(self, number: int, count: int) -> bool:
        """Whether one of so many records is dead."""

    def keep_living(self, body: Buffer, header: BatchHeader, number: int, tombstones: bool) -> Kept:
        """The records that are not dead; without tombstones if these may go."""

    def keep_unknown(self, body: Buffer, header: BatchHeader, tombstones: bool) -> Kept:
        """The same of a batch that was not put: its records are older than all that were."""

    def move_times(self, body: Buffer, header: BatchHeader, difference: int) -> Buffer | None:
        """The records with their timestamp deltas changed by `difference`; None if one does not fit then."""


class PlainKeyMap:
    key_size: ClassVar[int] = 165  # entry, name, number

    def __init__(self, keys_max: int, seed: int) -> None:
        self._last: dict[bytes, int] = {}
        self._hash = blake2b(key=seed.to_bytes(_HASH_SIZE, "big"), digest_size=_HASH_SIZE)
        self._dead = bytearray(_DEAD_SIZE_FIRST)

    @property
    def used(self) -> int:
        return len(self._last)

    def _name(self, key: bytes) -> bytes:
        hashed = self._hash.copy()
        hashed.update(key)
        return hashed.digest() + b"\0" * (_KEY_KEPT_SIZE + 1 - _HASH_SIZE)  # as long as no key kept

    def put(self, body: Buffer, header: BatchHeader, number: int) -> bool:
        last, dead = self._last, self._dead
        if (missing := (number + header.record_count >> 3) + 1 - len(dead)) > 0:
            dead += bytes(max(missing, len(dead)))
        body = bytes(body)
        has_tombstones = False
        for place, (_, _, _, key, key_size, value_size) in enumerate(walk_outlines(body, header), number):
            if value_size < 0:
                has_tombstones = True
            if key_size < 0:
                dead[place >> 3] |= 1 << (place & 7)
                continue
            name = body[key : key + key_size]
            if key_size > _KEY_KEPT_SIZE:
                name = self._name(name)
            before = last.get(name)
            if before is not None:
                dead[before >> 3] |= 1 << (before & 7)
            last[name] = place
        return has_tombstones

    def has_dead(self, number: int, count: int) -> bool:
        dead = self._dead
        first, last = number >> 3, number + count - 1 >> 3
        if first == last:
            return bool(dead[first] >> (number & 7) & (1 << count) - 1)
        if dead[first] >> (number & 7) or dead[last] & (2 << (number + count - 1 & 7)) - 1:
            return True
        return any(dead[first + 1 : last])

    def keep_living(self, body: Buffer, header: BatchHeader, number: int, tombstones: bool) -> Kept:
        dead = self._dead
        keeping = _Keeping(bytes(body))
        for place, outline in enumerate(walk_outlines(keeping.body, header), number):
            if not dead[place >> 3] >> (place & 7) & 1 and (tombstones or outline[5] >= 0):
                keeping.keep(outline)
        return keeping.kept()

    def keep_unknown(self, body: Buffer, header: BatchHeader, tombstones: bool) -> Kept:
        last = self._last
        keeping = _Keeping(body := bytes(body))
        for outline in walk_outlines(body, header):
            _, _, _, key, key_size, value_size = outline
            if key_size < 0 or (value_size < 0 and not tombstones):
                continue
            name = body[key : key + key_size]
            if (self._name(name) if key_size > _KEY_KEPT_SIZE else name) not in last:
                keeping.keep(outline)
        return keeping.kept()

    def move_times(self, body: Buffer, header: BatchHeader, difference: int) -> bytes | None:
        body = bytes(body)
        out = bytearray()
        head = bytearray()
        for start, stop, time_delta, _, _, _ in walk_outlines(body, header):
            moved = time_delta + difference
            if not -(2**63) <= moved < 2**63:
                return None
            position = start
            while body[position] & 0x80:
                position += 1
            rest = position + 2  # behind size and attributes
            while body[rest] & 0x80:
                rest += 1
            head[:] = body[position + 1 : position + 2]
            write_varint(head, moved)
            write_varint(out, len(head) + stop - rest - 1)
            out += head
            out += body[rest + 1 : stop]
        return bytes(out)


class _Keeping:
    """Runs of records that stay, so that most of them are copied together."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._pieces: list[bytes] = []
        self._run_start = self._run_end = 0
        self._count = 0
        self._last_time_delta = _NO_TIME
        self._has_tombstones = False

    def keep(self, outline: tuple[int, int, int, int, int, int]) -> None:
        start, stop, time_delta, _, _, value_size = outline
        if start != self._run_end:
            self._pieces.append(self.body[self._run_start : self._run_end])
            self._run_start = start
        self._run_end = stop
        self._count += 1
        if time_delta > self._last_time_delta:
            self._last_time_delta = time_delta
        if value_size < 0:
            self._has_tombstones = True

    def kept(self) -> Kept:
        self._pieces.append(self.body[self._run_start : self._run_end])
        return Kept(b"".join(self._pieces), self._count, self._last_time_delta, self._has_tombstones)
