"""The segments that a round has written take the place of those it has read, in a log that is open.

| step | what                                                            | a crash finds, recovery       |
|------|-----------------------------------------------------------------|-------------------------------|
| a    | `prepare`: `.cleaned` becomes `.swap`, the log first            | some `.cleaned`: drops new    |
| b    | the folder is synced, off the loop: the swap is decided         | `.swap` is whole: finishes    |
| c    | `carry_out`: the old segments are closed, marked for removal    | some of them: finishes        |
| d    | the new files get their names, the log first                    | some of them: renames         |
| e    | the list of segments changes                                    |                               |

Between a and e nothing else may change the sealed segments: neither a cut, nor retention, nor a move. New
segments of one round go one by one, the lowest first: the `.cleaned` of a later one do not undo an earlier.

**Invariant:** what is found after a crash is the old segments or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import EIO

from tidelog.base.files import Directory
from tidelog.log.compaction.request import NewSegment
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    base_in_name,
    file_name,
)
from tidelog.log.log import Log
from tidelog.log.segment import Segment

_FILE_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)


class Sources:
    """Sealed segments of a log, from its first one on, as they were when a round was begun."""

    def __init__(self, log: Log, count: int) -> None:
        self.log = log
        self.segments = log.segments[:count]
        self._sizes = [segment.size for segment in self.segments]
        self._change_count = log.change_count

    def are_unchanged(self) -> bool:
        """Whether they are what the round has read. What was appended behind them does not matter."""
        log, count = self.log, len(self.segments)
        return (
            log.change_count == self._change_count
            and len(log.segments) > count
            and all(now is before for now, before in zip(log.segments, self.segments, strict=False))
            and [segment.size for segment in self.segments] == self._sizes
        )

    def note_swapped(self, new: NewSegment) -> None:
        """Some of them are one segment now."""
        self._change_count = self.log.change_count
        replaced = len(new.sources)
        place = [segment.base_offset for segment in self.segments].index(new.base_offset)
        self.segments[place : place + replaced] = [self.log.segments[place]]
        self._sizes[place : place + replaced] = [new.size]


def prepare(directory: Directory, new: NewSegment) -> bool:
    """Step a; False, and nothing is done, if the round's files are not there."""
    names = directory.sizes()
    base = new.base_offset
    first = file_name(base, LOG_SUFFIX)
    if names.get(first + CLEANED_SUFFIX) != new.size:
        return False
    for name in names:
        found = base_in_name(name.removesuffix(CLEANED_SUFFIX)) if name.endswith(CLEANED_SUFFIX) else None
        if found is not None and found < base:
            directory.remove(name)
    for suffix in _FILE_SUFFIXES:
        name = file_name(base, suffix)
        if name + CLEANED_SUFFIX in names:
            directory.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
    return True


def carry_out(log: Log, new: NewSegment, now_ms: int) -> list[str]:
    """Steps c to e, in one turn; the names of the old files, for removal. OSError means that the disk has
    failed: the files are not those of the list any more."""
    place = log.bases.index(new.base_offset)
    old: Sequence[Segment] = log.segments[place : place + len(new.sources)]
    assert tuple(segment.base_offset for segment in old) == new.sources
    try:
        renamed = log.set_aside(old)
        for suffix in _FILE_SUFFIXES:
            name = file_name(new.base_offset, suffix)
            if log.directory.exists(name + SWAP_SUFFIX):
                log.directory.rename(name + SWAP_SUFFIX, name)
        log.replace_segments(place, len(old), new.size, now_ms)
    except OSError as failure:
        raise OSError(EIO, f"a swap was begun and not carried out: {failure}") from failure
    return renamed
