"""A stand-in for a round of compaction: it writes what a round writes, by a rule that is easy to follow.

**Invariant:** as a round does, it keeps the last batch of each new segment and makes durable what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.log.making import make_settings
from tidelog.base.files import Directory
from tidelog.log.compaction.request import NewSegment
from tidelog.log.format.names import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog.log.format.txnindex import AbortedTransaction, encode_aborted
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.log import Log
from tidelog.log.scan import walk_headers

INTERVAL = int(make_settings().index_interval_bytes)


def write_cleaned(
    log: Log, groups: list[list[int]], is_kept: Callable[[int], bool], aborted: bool = True
) -> list[NewSegment]:
    """A new segment for each group of bases, with the batches whose base offset is kept, and the last one."""
    made = [_write_group(log, group, is_kept, aborted) for group in groups]
    log.directory.sync()
    return made


def _write_group(log: Log, group: list[int], is_kept: Callable[[int], bool], aborted: bool) -> NewSegment:
    folder, base = log.directory, group[0]
    batches = [
        (batch.header, segment.file.read(batch.position, batch.header.size))
        for segment in log.segments
        if segment.base_offset in group
        for batch in walk_headers(segment.file, 0, segment.size)
    ]
    kept = [each for each in batches if is_kept(each[0].base_offset) or each is batches[-1]]
    data = b"".join(data for _, data in kept)
    _write(folder, file_name(base, LOG_SUFFIX), data)
    index, times, position, since, largest = b"", b"", 0, 0, -1
    for header, _ in kept:
        if since > INTERVAL:
            index += OffsetIndex.entry.pack(header.last_offset - base, position)
            since = 0
        largest = max(largest, header.max_timestamp)
        since, position = since + header.size, position + header.size
    times += TimeIndex.entry.pack(largest, kept[-1][0].last_offset - base)
    _write(folder, file_name(base, INDEX_SUFFIX), index)
    _write(folder, file_name(base, TIME_INDEX_SUFFIX), times)
    entries: list[AbortedTransaction] = [
        entry for each in group if aborted and each in log.aborted for entry in log.aborted[each].entries
    ]
    if entries:
        _write(folder, file_name(base, ".txnindex"), b"".join(map(encode_aborted, entries)))
    return NewSegment(base, tuple(group), len(data))


def _write(folder: Directory, name: str, data: bytes) -> None:
    folder.remove(name + CLEANED_SUFFIX)
    file = folder.open(name + CLEANED_SUFFIX)
    if data:
        file.append(data)
    file.sync()
    file.close()
