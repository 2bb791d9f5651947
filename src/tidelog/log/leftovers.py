"""What an interrupted removal, replacement or compaction leaves in a partition's folder.

| name                    | what becomes of it                                                       |
|-------------------------|--------------------------------------------------------------------------|
| `*.deleted`, `*.tmp`    | removed                                                                  |
| `*.cleaned`             | removed: compaction's unfinished output, whichever file of it remains     |
| `*.swap`                | unfinished too if a `.cleaned` lies at or below it: removed; otherwise   |
|                         | finished: it replaces the files of the segments in its range, but the    |
|                         | snapshot at its base, which is its own                                   |
| `*.swap` of an index    | the same beside the segment's log, which got its name first; without it  |
|                         | removed                                                                  |
| an index without a log  | removed                                                                  |

What is unfinished leaves before its `.cleaned`, and an old segment before the new one gets its
name: a crash in here leaves a state of the same table.

**Invariant:** at every moment either the old segments or the finished new ones are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidelog.base.files import Directory
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TMP_SUFFIX,
    base_in_name,
    file_name,
    offset_in_name,
)
from tidelog.log.scan import walk_headers

_UNFINISHED = (DELETED_SUFFIX, TMP_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def has_leftovers(names: Collection[str]) -> bool:
    """Whether there is anything to tidy in a folder with those files; mostly there is not."""
    for name in names:
        if name.endswith(_UNFINISHED):
            return True
        if name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] + LOG_SUFFIX not in names:
            return True
    return False


def tidy_leftovers(directory: Directory) -> None:
    names = directory.names()
    unfinished_from = min((base for name in names for base in _bases(name, CLEANED_SUFFIX)), default=None)
    swapped: dict[int, list[str]] = {}
    for name in names:
        for base in _bases(name, SWAP_SUFFIX):
            if unfinished_from is not None and base >= unfinished_from:
                directory.remove(name)
            else:
                swapped.setdefault(base, []).append(name)
    for base in sorted(swapped):
        _finish_swap(directory, base, swapped[base])
    for name in directory.names():
        if name.endswith(_UNFINISHED):
            directory.remove(name)
    _remove_orphans(directory)


def _bases(name: str, mark: str) -> Iterator[int]:
    """The base of a segment's file that bears the mark, if it is one."""
    base = base_in_name(name.removesuffix(mark)) if name.endswith(mark) else None
    if base is not None:
        yield base


def _finish_swap(directory: Directory, base: int, marked: Collection[str]) -> None:
    """Remove the segments that the new one was made from, then give it its name, the log first."""
    log_name = file_name(base, LOG_SUFFIX)
    if log_name + SWAP_SUFFIX in marked:
        _remove_replaced(directory, base)
    elif not directory.exists(log_name):
        return
    for name in sorted(marked, key=lambda each: each != log_name + SWAP_SUFFIX):
        directory.rename(name, name.removesuffix(SWAP_SUFFIX))


def _remove_replaced(directory: Directory, base: int) -> None:
    file = directory.open(file_name(base, LOG_SUFFIX + SWAP_SUFFIX))
    end_offset = base + 1
    for batch in walk_headers(file, 0, file.size):
        end_offset = batch.header.last_offset + 1
    file.close()
    own = file_name(base, SNAPSHOT_SUFFIX)
    for name in directory.names():
        old = base_in_name(name)
        if old is not None and base <= old < end_offset and name != own:
            directory.remove(name)


def _remove_orphans(directory: Directory) -> None:
    names = directory.names()
    for name in names:
        for suffix in INDEX_SUFFIXES:
            offset = offset_in_name(name, suffix)
            if offset is not None and file_name(offset, LOG_SUFFIX) not in names:
                directory.remove(name)
