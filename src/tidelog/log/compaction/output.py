"""A new segment under `.cleaned` names: its log, its indexes, its aborted transactions.

**Invariant:** once `finish` has returned, all of its files are durable; their names are when the folder is.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.files import Buffer, Directory
from tidelog.base.limits import CLEANED_SYNC_SIZE, CLEANED_WRITE_SIZE
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import AbortedTransaction, encode_aborted
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.protocol.batch import NO_TIMESTAMP

_POSITION_MAX = 2**31 - 1  # that an index has room for


class SegmentOutput:
    def __init__(
        self, directory: Directory, base_offset: int, index_interval_bytes: int, pace: Callable[[int], None]
    ) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._pace = pace
        self._names = [self._name(LOG_SUFFIX), self._name(INDEX_SUFFIX), self._name(TIME_INDEX_SUFFIX)]
        self._file = directory.open(self._names[0])
        self._offset_index = OffsetIndex(directory, self._names[1])
        self._time_index = TimeIndex(directory, self._names[2])
        self._buffer = bytearray()
        self._unsynced_size = 0
        self._since_entry = 0
        self._largest = (NO_TIMESTAMP, 0)  # timestamp and relative offset
        self._aborted: list[AbortedTransaction] = []
        self.size = 0

    def _name(self, suffix: str) -> str:
        return file_name(self._base_offset, suffix) + CLEANED_SUFFIX

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """One batch, indexed as an append to a log is."""
        position, size = self.size, len(batch)
        if max_timestamp > self._largest[0]:
            self._largest = (max_timestamp, last_offset - self._base_offset)
        if self._since_entry > self._interval and position <= _POSITION_MAX:
            self._offset_index.append(last_offset - self._base_offset, position)
            self._time_index.maybe_append(*self._largest)
            self._since_entry = 0
        self._since_entry += size
        self._buffer += batch
        self.size = position + size
        if len(self._buffer) >= CLEANED_WRITE_SIZE:
            self._write()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Its marker is in this segment."""
        self._aborted.append(transaction)

    def _write(self) -> None:
        size = len(self._buffer)
        self._file.append(self._buffer)
        self._buffer = bytearray()
        self._unsynced_size += size
        self._pace(size)
        if self._unsynced_size >= CLEANED_SYNC_SIZE:
            self._file.sync()
            self._unsynced_size = 0

    def finish(self, modified_ms: int) -> None:
        """Make it durable; `modified_ms` is when its last source was changed last."""
        if self._buffer:
            self._write()
        if self._largest[0] != NO_TIMESTAMP:
            self._time_index.maybe_append(*self._largest)
        self._offset_index.open()
        self._time_index.open()
        self._offset_index.write_tail()
        self._time_index.write_tail()
        if self._aborted:
            self._names.append(self._name(TRANSACTION_INDEX_SUFFIX))
            aborted = self._directory.open(self._names[-1])
            aborted.append(b"".join(map(encode_aborted, self._aborted)))
            aborted.close()
        self.close()
        self._directory.set_modified(self._names[0], modified_ms)
        for name in self._names:
            self._directory.sync(name)

    def close(self) -> None:
        self._file.close()
        self._offset_index.abandon()
        self._time_index.abandon()
        self._offset_index.close()
        self._time_index.close()
