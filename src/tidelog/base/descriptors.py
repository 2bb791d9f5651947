"""The table of open file descriptors of one server, kept below the limit of the process.

A file asks here before it opens its descriptor. When every place is occupied, a file that was not used lately
is suspended: its descriptor is closed, and opened again at the next use. A use sets one flag (second chance
algorithm), so appends do not become slower.

**Invariant:** a pinned file keeps its descriptor; only the thread that reads and writes the files opens
descriptors here.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from errno import EMFILE, ENFILE
from typing import Protocol
from weakref import ref

from tidelog.base.limits import (
    OPEN_FILES_DEFAULT,
    OPEN_FILES_MIN,
    OPEN_FILES_YIELDED,
    PAGE_SIZE,
    PINNED_FILES_PASSED,
)

TOO_MANY_OPEN = (EMFILE, ENFILE)


class Tenant(Protocol):
    """A file as this table sees it."""

    was_used: bool

    @property
    def is_pinned(self) -> bool: ...

    def suspend(self) -> None:
        """Close the descriptor; it is opened again when it is needed."""


class Descriptors:
    def __init__(self, count_max: int = OPEN_FILES_DEFAULT) -> None:
        self.count_max = self._count_usual = max(count_max, OPEN_FILES_MIN)
        self.pinned_count = 0
        self.page = memoryview(bytearray(PAGE_SIZE))  # for small reads, one at a time
        self.tells_cold = hasattr(os, "RWF_NOWAIT")  # the file system reports whether a page is in memory
        self._tenants: OrderedDict[int, ref[Tenant]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tenants)

    def open(self, path: str, flags: int, tenant: Tenant) -> int:
        """Open a file; suspend other files first if too many are open."""
        self._make_room()
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in TOO_MANY_OPEN:
                raise
            # The rest of the process uses more descriptors than estimated: lower the bound for files.
            self.count_max = max(min(self.count_max, len(self)) - OPEN_FILES_YIELDED, OPEN_FILES_MIN)
            self._make_room()
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
        else:
            self.count_max = min(self.count_max + 1, self._count_usual)
        self._tenants[descriptor] = ref(tenant)
        return descriptor

    def _make_room(self) -> None:
        """Suspend files that were not used since the last pass. If nearly all files are pinned, the table
        exceeds its bound until some are unpinned."""
        pinned_passed = 0
        while len(self._tenants) >= self.count_max and pinned_passed < PINNED_FILES_PASSED:
            descriptor, known = next(iter(self._tenants.items()))
            tenant = known()
            if tenant is None:
                del self._tenants[descriptor]
            elif tenant.is_pinned or tenant.was_used:
                pinned_passed += tenant.is_pinned
                tenant.was_used = False
                self._tenants.move_to_end(descriptor)
            else:
                tenant.suspend()

    def close(self, descriptor: int) -> None:
        self._tenants.pop(descriptor, None)
        os.close(descriptor)
