"""What an interrupted removal, replacement or compaction leaves in a partition's folder.

| name                    | what becomes of it                                                       |
|-------------------------|--------------------------------------------------------------------------|
| `*.deleted`, `*.tmp`    | removed                                                                  |
| `*.cleaned`             | removed: compaction's unfinished output                                  |
| `*.swap`                | unfinished too if a `.cleaned` lies at or below it: removed; otherwise   |
|                         | finished: it replaces the segments in its range                          |
| an index without a log  | removed                                                                  |

**Invariant:** at every moment either the old segments or the finished new ones are there.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.files import Directory
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TMP_SUFFIX,
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
    cleaned = [
        offset for name in names if (offset := offset_in_name(name, LOG_SUFFIX + CLEANED_SUFFIX)) is not None
    ]
    unfinished_from = min(cleaned, default=None)
    for base in sorted(o for n in names if (o := offset_in_name(n, LOG_SUFFIX + SWAP_SUFFIX)) is not None):
        if unfinished_from is None or base < unfinished_from:
            _finish_swap(directory, base)
    for name in directory.names():
        if name.endswith(_UNFINISHED):
            directory.remove(name)
    _remove_orphans(directory)


def _finish_swap(directory: Directory, base: int) -> None:
    """Remove the segments that the new one was made from, then give it its name."""
    file = directory.open(file_name(base, LOG_SUFFIX + SWAP_SUFFIX))
    end_offset = base
    for batch in walk_headers(file, 0, file.size):
        end_offset = batch.header.last_offset + 1
    file.close()
    for name in directory.names():
        old = offset_in_name(name, LOG_SUFFIX)
        if old is not None and base <= old < max(end_offset, base + 1):
            for suffix in SEGMENT_SUFFIXES:
                directory.remove(file_name(old, suffix))
    for suffix in SEGMENT_SUFFIXES:
        name = file_name(base, suffix)
        if directory.exists(name + SWAP_SUFFIX):
            directory.rename(name + SWAP_SUFFIX, name)


def _remove_orphans(directory: Directory) -> None:
    names = directory.names()
    for name in names:
        for suffix in INDEX_SUFFIXES:
            offset = offset_in_name(name, suffix)
            if offset is not None and file_name(offset, LOG_SUFFIX) not in names:
                directory.remove(name)
