"""Waiting for what must come to be, with an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_S = 0.1


class NeverCame(AssertionError):
    """What was awaited did not come to be in time."""


def await_that(holds: Callable[[], object], complaint: Callable[[], str] | str, timeout_s: float) -> float:
    """How many seconds it took. Raises NeverCame."""
    begun = time.monotonic()
    tick = threading.Event()
    while not holds():
        if time.monotonic() - begun > timeout_s:
            said = complaint if isinstance(complaint, str) else complaint()
            raise NeverCame(f"after {timeout_s:.0f} s: {said}")
        tick.wait(LOOK_S)
    return time.monotonic() - begun


def let_pass(seconds: float) -> None:
    """Time that is itself what a test is about: how long a fault lasts."""
    threading.Event().wait(seconds)
