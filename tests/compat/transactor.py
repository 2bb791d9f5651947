"""What a transactional client is asked to do, in one set of words.

Each client's `transactor.py` says these in its own API; the claims are in `transactional.py`.

**Invariant:** an instance does nothing by itself: what is not begun, sent or ended here is not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

LAST = b"the last record"
"""Plain, and behind all transactions: a reader that has it has read what there was."""

PATIENCE_S = 120.0
TIMEOUT_MS = 60_000
ABORTED_EVERY = 3
Place = tuple[str, int]


class Ended(Exception):
    """The client says that the transaction, or the instance, is over; `code` is Kafka's error."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"error {code}: {said}")
        self.code = code


class Instance(Protocol):
    """A producer that has initialized its transactional id. What fails raises `Ended`."""

    def begin(self) -> None: ...

    def send(self, place: Place, values: Sequence[bytes]) -> None:
        """Sends them, and waits until all are acknowledged."""
        ...

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commits offsets in the transaction, for a group without members."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


@dataclass(frozen=True)
class Work:
    """What a member of a group does: `count` records of `source`, in transactions of at most `size` records.

    It aborts every third transaction, and consumes again what was in it.
    """

    source: str
    target: str
    group: str
    count: int
    size: int = 10


class Transactor(Protocol):
    name: str
    bootstrap: str

    def instance(
        self, transactional_id: str, timeout_ms: int = TIMEOUT_MS
    ) -> AbstractContextManager[Instance]: ...

    def transform(self, work: Work) -> int:
        """Does the work, with what comes of a record in the partition of the record, and its offset in the
        same transaction; how many transactions there were."""
        ...

    def follow(self, place: Place) -> Callable[[], list[bytes]]:
        """A reader of committed records reads from the start up to `LAST`; what is returned waits for it."""
        ...

    def die_in_the_middle(self, transactional_id: str, place: Place, value: bytes) -> None:
        """A process begins a transaction, sends the value and is killed when the value is acknowledged."""
        ...


def transformed(value: bytes) -> bytes:
    return value[::-1]


def in_background(read: Callable[[], list[bytes]]) -> Callable[[], list[bytes]]:
    pool = ThreadPoolExecutor(1)
    reading = pool.submit(read)
    pool.shutdown(wait=False)
    return reading.result


def run_dying(module: str, bootstrap: str, transactional_id: str, place: Place, value: bytes) -> None:
    """A client's module, which dies as `die_in_the_middle` says."""
    words = [bootstrap, transactional_id, place[0], str(place[1]), value.decode()]
    ended = subprocess.run([sys.executable, "-m", module, *words], check=False, timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGKILL, f"{module} ended with {ended.returncode}"
