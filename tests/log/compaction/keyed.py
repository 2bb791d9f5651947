"""Keyed logs for the tests of compaction: written from a script, cleaned in rounds, read as by consumers.

A log is a folder of segments and what a broker knows beside them: producers, aborted transactions, the first
dirty offset. A round takes the place of its sources at once, as `log.swap` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.log.making import NOW_MS, split
from tidelog.base.files import Directory
from tidelog.log.compaction.cleaning import clean
from tidelog.log.compaction.keys import KeyMap, PlainKeyMap
from tidelog.log.compaction.request import CleaningRequest, CleaningResult, LiveProducer, Source
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import AbortedTransaction, decode_aborted, encode_aborted
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import (
    Marker,
    Record,
    build_batch,
    build_control_batch,
    read_records,
)

MIB = 1 << 20
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
Pairs = Sequence[tuple[bytes | None, bytes | None]]


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]


@dataclass
class _Writer:
    """One producer of the script."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    last_data_offset: int = -1
    first_open_offset: int = -1  # of its transaction


@dataclass
class KeyedLog:
    directory: Directory
    bases: list[int] = field(default_factory=lambda: [0])
    dirty_offset: int = 0
    leader_epoch: int = 0
    end_offset: int = 0
    timestamp: int = NOW_MS
    writers: dict[int, _Writer] = field(default_factory=dict)
    open_offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.open(file_name(0, LOG_SUFFIX)).close()

    def put(self, pairs: Pairs, codec: int = 0, producer_id: int = -1, transactional: bool = False) -> None:
        writer = self.writers.setdefault(producer_id, _Writer(producer_id)) if producer_id >= 0 else None
        self.timestamp += 3
        times = [self.timestamp + (7 * place) % 5 for place in range(len(pairs))]
        batch = build_batch(
            [(key, value, (), time) for (key, value), time in zip(pairs, times, strict=True)],
            base_offset=self.end_offset,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=writer.epoch if writer else -1,
            base_sequence=writer.sequence if writer else -1,
            transactional=transactional,
            leader_epoch=self.leader_epoch,
        )
        if writer is not None:
            writer.sequence += len(pairs)
            writer.last_data_offset = self.end_offset + len(pairs) - 1
        if transactional:
            self.open_offsets.setdefault(producer_id, self.end_offset)
        self._append(batch, len(pairs))

    def end(self, producer_id: int, marker: Marker, raises_epoch: bool) -> None:
        """End a transaction, if one is open."""
        first_offset = self.open_offsets.pop(producer_id, None)
        if first_offset is None:
            return
        writer = self.writers[producer_id]
        if raises_epoch:
            writer.epoch, writer.sequence, writer.last_data_offset = writer.epoch + 1, 0, -1
        self.timestamp += 1
        batch = build_control_batch(
            marker,
            producer_id,
            writer.epoch,
            0,
            self.timestamp,
            base_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
        )
        if marker is Marker.ABORT:
            entry = AbortedTransaction(producer_id, first_offset, self.end_offset, self.end_offset)
            self.directory.open(file_name(self.bases[-1], TRANSACTION_INDEX_SUFFIX)).append(
                encode_aborted(entry)
            )
        self._append(batch, 1)

    def _append(self, batch: bytearray, count: int) -> None:
        file = self.directory.open(file_name(self.bases[-1], LOG_SUFFIX))
        file.append(batch)
        file.close()
        self.end_offset += count

    def roll(self) -> None:
        if self.end_offset > self.bases[-1]:
            self.bases.append(self.end_offset)
            self.directory.open(file_name(self.end_offset, LOG_SUFFIX)).close()

    @property
    def bound(self) -> int:
        """The base of the first segment that may not be cleaned."""
        stable = min(self.open_offsets.values(), default=self.end_offset)
        return max(base for base in self.bases if base <= min(stable, self.bases[-1]))

    def request(
        self,
        now_ms: int,
        retention_ms: int = 1_000,
        memory_max: int = MIB,
        segment_bytes: int = MIB,
        index_interval_bytes: int = 200,
    ) -> CleaningRequest:
        sizes = self.directory.sizes()
        return CleaningRequest(
            sources=tuple(
                Source(base, sizes[file_name(base, LOG_SUFFIX)], NOW_MS + base)
                for base in self.bases
                if base < self.bound
            ),
            dirty_offset=self.dirty_offset,
            end_offset=self.bound,
            producers=tuple(
                LiveProducer(w.producer_id, w.epoch, w.last_data_offset) for w in self.writers.values()
            ),
            aborted=tuple(self.aborted()),
            now_ms=now_ms,
            delete_retention_ms=retention_ms,
            segment_bytes=segment_bytes,
            segment_index_bytes=10 * MIB,
            index_interval_bytes=index_interval_bytes,
            memory_max=memory_max,
            bytes_per_second=float("inf"),
            hash_seed=99,
        )

    def aborted(self) -> list[AbortedTransaction]:
        names = (file_name(base, TRANSACTION_INDEX_SUFFIX) for base in self.bases)
        return [entry for name in names for entry in decode_aborted(self.directory.read_whole(name) or b"")]

    def clean(self, request: CleaningRequest, key_map: type[KeyMap] = PlainKeyMap) -> CleaningResult:
        """One round, and its segments in place of their sources."""
        result = clean(self.directory, request, key_map=key_map)
        self.swap(result)
        return result

    def swap(self, result: CleaningResult) -> None:
        for segment in result.segments:
            for source in segment.sources:
                self.bases.remove(source)
                for suffix in SUFFIXES:
                    self.directory.remove(file_name(source, suffix))
            self.bases.append(segment.base_offset)
            for suffix in SUFFIXES:
                name = file_name(segment.base_offset, suffix)
                if self.directory.exists(name + CLEANED_SUFFIX):
                    self.directory.rename(name + CLEANED_SUFFIX, name)
        self.bases.sort()
        self.dirty_offset = result.dirty_offset

    def batches(self, end_offset: int) -> list[Batch]:
        """Those below `end_offset`."""
        found = []
        for base in self.bases:
            content = self.directory.read_whole(file_name(base, LOG_SUFFIX)) or b""
            found += [Batch(header, read_records(data)) for header, data in split(content)]
        return [batch for batch in found if batch.header.base_offset < end_offset]

    def committed(self, end_offset: int) -> list[Record]:
        """What a read_committed consumer gets below `end_offset`, in order."""
        aborted = self.aborted()
        return [
            record
            for header, records in self.batches(end_offset)
            if not header.is_control and not _is_aborted(header, aborted)
            for record in records
        ]


def _is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted
    )


def markers(batches: Iterable[Batch]) -> list[int]:
    """The offsets of control batches that still have their record."""
    return [header.base_offset for header, records in batches if header.is_control and records]


def cleaned_files(directory: Directory) -> dict[str, bytes]:
    names = [name for name in directory.names() if name.endswith(CLEANED_SUFFIX)]
    return {name: directory.read_whole(name) or b"" for name in names}
