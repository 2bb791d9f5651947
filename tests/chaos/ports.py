"""Which process a connection on this machine belongs to, as Linux tells it.

**Invariant:** only asks; a process that is gone has no connections.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_CONNECTIONS = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _INODE = 1, 2, 9


def owner(near_port: int, far_port: int, processes: Mapping[str, int]) -> str | None:
    """Of these processes, by name, the one whose end of the connection has the near port."""
    inode = _inode(near_port, far_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for name, pid in processes.items():
        with suppress(OSError):
            if any(_link(pid, number) == wanted for number in os.listdir(f"/proc/{pid}/fd")):
                return name
    return None


def _inode(near_port: int, far_port: int) -> str | None:
    near, far = f":{near_port:04X}", f":{far_port:04X}"
    for line in _CONNECTIONS.read_text().splitlines()[1:]:
        words = line.split()
        if words[_LOCAL].endswith(near) and words[_REMOTE].endswith(far):
            return words[_INODE]
    return None


def _link(pid: int, number: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return ""
