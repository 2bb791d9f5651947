"""What is fuzzed: functions that take any bytes and raise nothing but what they have found.

`parts` is a target's part of the inputs of one run, by what it costs and by what can hide there; `speed` is
roughly how many thousand of them a core takes in a second. Seeds that several targets share may get a prefix,
so that one file serves all.

**Invariant:** every file below `seeds` and `crashes` belongs to a target.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import codecs, groups, serving, sockets, stored

SEEDS = Path(__file__).with_name("seeds")
CRASHES = Path(__file__).with_name("crashes")


class Target(NamedTuple):
    run: Callable[[bytes], None]
    parts: int
    speed: int
    seed_folders: dict[str, bytes]  # to what is put before each

    def seeds(self) -> dict[str, bytes]:
        """The inputs to begin with, by name."""
        return {
            f"{folder}-{path.stem}": prefix + path.read_bytes()
            for folder, prefix in self.seed_folders.items()
            for path in sorted((SEEDS / folder).glob("*.bin"))
        }


TARGETS: dict[str, Target] = {
    "connection": Target(codecs.fuzz_connection, 8, 10, {"connection": b""}),
    "decode": Target(codecs.fuzz_decode, 18, 20, {"requests": b""}),
    "produce": Target(codecs.fuzz_produce, 7, 18, {"produce": b""}),
    "fetch": Target(codecs.fuzz_fetch, 7, 18, {"fetch": b""}),
    "header": Target(codecs.fuzz_header, 8, 50, {"batches": b""}),
    "records": Target(codecs.fuzz_records, 8, 12, {"batches": b""}),
    "telemetry": Target(codecs.fuzz_telemetry, 2, 40, {"telemetry": b""}),
    "request": Target(serving.fuzz_request, 24, 10, {"requests": b""}),
    "groups": Target(groups.fuzz_groups, 1, 1, {"groups": b""}),
    "batch": Target(serving.fuzz_batch, 8, 50, {"batches": b""}),
    "socket": Target(sockets.fuzz_socket, 8, 5, {"requests": bytes([sockets.IS_FRAME]), "socket": b""}),
    "probe": Target(sockets.fuzz_probe, 1, 2, {"probe": b""}),
    "stored": Target(stored.fuzz_stored, 1, 1, {"stored": b""}),
}


def crashes(target: str) -> dict[str, bytes]:
    """What broke the target once, by name."""
    return {path.stem: path.read_bytes() for path in sorted((CRASHES / target).glob("*.bin"))}


def check_what_is_left() -> None:
    """What the inputs so far have left behind is whole."""
    serving.check_what_is_left()
    sockets.check_what_is_left()
