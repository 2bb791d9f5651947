"""Blocks of a disk for a file that grows fast, had before they are written to.

On ext4 a write into blocks that were found before takes three quarters of one that has to find room for each.
Linux can be asked for them without the file getting longer (`fallocate`, FALLOC_FL_KEEP_SIZE); Python's own
`posix_fallocate` cannot. Elsewhere, and on file systems that do not know it, nothing is reserved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache

_KEEP_SIZE = 1

Fallocate = Callable[[int, int, int, int], int]


def reserve(descriptor: int, position: int, size: int) -> bool:
    """Have blocks for so many bytes from `position` on; False if that cannot be had."""
    fallocate = find_fallocate()
    return fallocate is not None and fallocate(descriptor, _KEEP_SIZE, position, size) == 0


@lru_cache(maxsize=1)
def find_fallocate() -> Fallocate | None:
    """The C library's own, looked for when a large batch comes: `ctypes` takes time to import. It may be
    missing, or need memory that a hardened system does not give it."""
    if sys.platform != "linux" or sys.maxsize < 2**32:  # where an offset has four bytes
        return None
    try:
        import ctypes

        fallocate = ctypes.CDLL(None).fallocate
    except (ImportError, OSError, AttributeError, MemoryError):
        return None
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Fallocate = fallocate
    return found
