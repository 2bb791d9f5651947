"""Free memory that is there when it is needed.

A virtual machine may give memory that nobody uses back to its host within seconds. Whoever writes to it next
waits for the host, ten times as long as the copying takes: of a broker that writes to the page cache this
would measure the host.
"""

from __future__ import annotations

import mmap


def take_back(size: int) -> None:
    """Use so many bytes and let go of them: for the next two seconds they are this machine's."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:: mmap.PAGESIZE] = bytes(-(-size // mmap.PAGESIZE))
