"""What the operating system knows of this process, under the names that every Prometheus client uses.

**Invariant:** what a system does not tell is left out; nothing here raises.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from time import process_time

from tidelog.base.limits import OPEN_FILES_RESERVED

Number = tuple[str, str, str, float]  # name, kind, meaning, value
_FDS = "/proc/self/fd"


def process_numbers() -> Iterator[Number]:
    yield "process_cpu_seconds_total", "counter", "Processor time used.", process_time()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_max_fds", "gauge", "The most file descriptors.", limit
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        with open("/proc/stat", encoding="ascii", errors="replace") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, StopIteration):
        return
    started = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    yield "process_start_time_seconds", "gauge", "When it was started, since 1970.", started
    yield "process_virtual_memory_bytes", "gauge", "Address space.", int(fields[20])
    resident = int(fields[21]) * resource.getpagesize()
    yield "process_resident_memory_bytes", "gauge", "Memory in use.", resident


def open_file_count() -> int | None:
    """Takes as long as there are files: off the loop. None where the system does not tell."""
    try:
        return len(os.listdir(_FDS)) - 1  # without the one that listed them
    except OSError:
        return None


def descriptor_share() -> int:
    """How many descriptors connections may have, and as many again the files of the log."""
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OPEN_FILES_RESERVED, 0) // 2


def read_boot_id() -> str:
    """What tells this run of the machine from all others; empty where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
