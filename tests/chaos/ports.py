"""Ports of this machine: one that nobody has, and which process a connection belongs to, as Linux tells it.

**Invariant:** a port that is given out is not among those that the system gives to outgoing connections, so
that it is still free when a server that was killed comes back to it; nor is it given out again, here or by
another process of the same test run: a JVM takes seconds until it has it.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_GIVEN_OUT = range(12_000, 30_000)
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OWN = list(_GIVEN_OUT[_WORKER::_WORKERS])
random.SystemRandom().shuffle(_OWN)  # others, of which nobody knows, may look for one at the same time
_CONNECTIONS = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _INODE = 1, 2, 9


def unused_port() -> int:
    while True:
        port = _OWN.pop()
        with socket.socket() as found, suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(("127.0.0.1", port))
            return port


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
