"""One round: the keys of the dirty records are read, then all sources are rewritten, group by group.

**Invariant:** what a round writes depends on its request and on the bytes of its sources alone. None of
its files is left after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from tidelog.base.files import Directory, File
from tidelog.base.limits import RELATIVE_OFFSET_MAX
from tidelog.log.compaction.dirt import Dirt
from tidelog.log.compaction.keys import KeyMap, PlainKeyMap
from tidelog.log.compaction.output import SegmentOutput
from tidelog.log.compaction.request import (
    CleaningRequest,
    CleaningResult,
    NewSegment,
    Source,
    SourcesChanged,
)
from tidelog.log.compaction.rules import Transactions
from tidelog.log.compaction.verdicts import Verdicts
from tidelog.log.format.index import TIME_ENTRY
from tidelog.log.format.names import CLEANED_SUFFIX, LOG_SUFFIX, file_name
from tidelog.log.scan import Damage, Scan
from tidelog.protocol.batch import BatchHeader, read_header
from tidelog.protocol.errors import CorruptBatch

Pace = Callable[[int], None]


class Group(NamedTuple):
    """Sources that become one segment."""

    sources: tuple[Source, ...]
    end_offset: int


def clean(
    directory: Directory,
    request: CleaningRequest,
    pace: Pace = lambda size: None,
    key_map: type[KeyMap] = PlainKeyMap,
) -> CleaningResult:
    """Write `.cleaned` files of what the sources keep; `pace` gets the size of each read and write, and may
    wait.

    Raises Damage if a source is not what it must be, SourcesChanged if one is gone, OSError for the disk.
    """
    remove_cleaned(directory)
    try:
        return _Round(directory, request, pace, key_map).run()
    except Exception:
        with suppress(OSError):
            remove_cleaned(directory)
        raise


def fastest_key_map() -> type[KeyMap]:
    """By compiled loops where numba is installed; loads it, so this is for a process of its own."""
    try:
        from tidelog.log.compaction.compiled import CompiledKeyMap
    except ImportError:
        return PlainKeyMap
    return CompiledKeyMap


def remove_cleaned(directory: Directory) -> None:
    """Remove what a round has left: beside a finished swap it would pass for its unfinished part."""
    for name in directory.names():
        if name.endswith(CLEANED_SUFFIX):
            directory.remove(name)


def group_sources(request: CleaningRequest) -> list[Group]:
    """By the sizes before the round, and as far as the indexes of one segment reach."""
    entries_max = request.segment_index_bytes // TIME_ENTRY.size
    size_max = min(request.segment_bytes, entries_max * max(request.index_interval_bytes, 1))
    ends = [source.base_offset for source in request.sources[1:]] + [request.end_offset]
    groups: list[Group] = []
    size = 0
    for source, end_offset in zip(request.sources, ends, strict=True):
        if groups and size + source.size <= size_max:
            sources = groups[-1].sources
            if end_offset - 1 - sources[0].base_offset <= RELATIVE_OFFSET_MAX or not source.size:
                groups[-1] = Group((*sources, source), end_offset)
                size += source.size
                continue
        groups.append(Group((source,), end_offset))
        size = source.size
    return groups


class _Reader:
    """The batches of the sources, each with its checksum checked, in ascending offsets."""

    def __init__(self, directory: Directory, pace: Pace) -> None:
        self._directory = directory
        self._pace = pace
        self.bytes_read = 0

    def batches(self, source: Source, end_offset: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each."""
        with closing(self._open(source)) as file:
            scan = Scan(_Paced(file, self._read), 0, source.size, source.base_offset)
            next_offset = source.base_offset
            for (position, header), batch in scan.batches():
                if header.base_offset < next_offset or header.last_offset >= end_offset:
                    raise Damage(file.name, position, _misplaced(header, next_offset, end_offset))
                if not 0 <= header.record_count <= header.last_offset_delta + 1:
                    raise Damage(file.name, position, f"{header.record_count} records cannot be")
                yield position, header, batch
                next_offset = header.last_offset + 1
            if scan.problem is not None:
                raise Damage(file.name, scan.position, scan.problem)

    def _open(self, source: Source) -> File:
        name = file_name(source.base_offset, LOG_SUFFIX)
        try:
            file = self._directory.open_existing(name)
        except FileNotFoundError:
            raise SourcesChanged(f"{name} is gone") from None
        if file.size < source.size:
            file.close()
            raise SourcesChanged(f"{name} has {file.size} bytes, not {source.size}")
        return file

    def _read(self, size: int) -> None:
        self.bytes_read += size
        self._pace(size)


class _Paced:
    """A file that reports what was read of it."""

    def __init__(self, file: File, report: Pace) -> None:
        self._file = file
        self._report = report
        self.name = file.name
        self.size = file.size

    def read(self, position: int, size: int) -> bytes:
        data = self._file.read(position, size)
        self._report(len(data))
        return data


def _misplaced(header: BatchHeader, next_offset: int, end_offset: int) -> str:
    return (
        f"offsets {header.base_offset} to {header.last_offset} are not within {next_offset} and {end_offset}"
    )


class _Round:
    def __init__(
        self, directory: Directory, request: CleaningRequest, pace: Pace, key_map: type[KeyMap]
    ) -> None:
        self._directory = directory
        self._request = request
        self._pace = pace
        self._reader = _Reader(directory, pace)
        self._dirt = Dirt(request, key_map)
        self._bytes_written = self._records_read = self._records_kept = 0

    def run(self) -> CleaningResult:
        groups = group_sources(self._request)
        map_end = self._read_keys(groups)
        self._dirt.rewind()
        verdicts = Verdicts(self._request, self._dirt, map_end)
        segments = [
            self._rewrite(group, verdicts) for group in groups if group.sources[0].base_offset < map_end
        ]
        self._directory.sync()
        return CleaningResult(
            tuple(segments),
            map_end,
            verdicts.earliest_horizon_ms,
            self._reader.bytes_read,
            self._bytes_written,
            self._records_read,
            self._records_kept,
            self._dirt.utilization,
        )

    def _read_keys(self, groups: list[Group]) -> int:
        """Put the keys of the dirty records; the offset behind the last batch that fit."""
        transactions = Transactions(self._request.aborted)
        for source, end_offset in _sources(groups):
            if end_offset <= self._request.dirty_offset:
                continue
            for position, header, batch in self._reader.batches(source, end_offset):
                if not self._dirt.is_in(header) or header.is_control or not header.record_count:
                    continue
                if transactions.is_aborted(header):
                    continue
                try:
                    if not self._dirt.put(header, batch):
                        return header.base_offset
                except CorruptBatch as problem:
                    raise _damage(source, position, problem) from None
        return self._request.end_offset

    def _rewrite(self, group: Group, verdicts: Verdicts) -> NewSegment:
        base_offset, interval = group.sources[0].base_offset, self._request.index_interval_bytes
        output = SegmentOutput(self._directory, base_offset, interval, self._pace)
        try:
            self._fill(output, group, verdicts)
            output.finish(group.sources[-1].modified_ms)
        finally:
            output.close()
        self._bytes_written += output.size
        return NewSegment(base_offset, tuple(source.base_offset for source in group.sources), output.size)

    def _fill(self, output: SegmentOutput, group: Group, verdicts: Verdicts) -> None:
        last = max((source for source in group.sources if source.size), default=None)
        for source, end_offset in _sources([group]):
            for position, header, batch in self._reader.batches(source, end_offset):
                is_last = source is last and position + header.size == source.size
                try:
                    made, aborted = verdicts.give(header, batch, is_last)
                except CorruptBatch as problem:
                    raise _damage(source, position, problem) from None
                self._records_read += header.record_count
                if aborted is not None:
                    output.add_aborted(aborted)
                if made is None:
                    continue
                header = read_header(made)
                self._records_kept += header.record_count
                output.append(made, header.last_offset, header.max_timestamp)


def _sources(groups: list[Group]) -> Iterator[tuple[Source, int]]:
    """Each source, and the offset at which the one behind it begins."""
    for group in groups:
        ends = [source.base_offset for source in group.sources[1:]] + [group.end_offset]
        yield from zip(group.sources, ends, strict=True)


def _damage(source: Source, position: int, problem: CorruptBatch) -> Damage:
    return Damage(
        file_name(source.base_offset, LOG_SUFFIX), position, f"a batch whose checksum is right: {problem}"
    )
