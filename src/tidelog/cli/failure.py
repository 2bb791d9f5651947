"""What ends a command early: a line for each thing that failed, and an exit code.

Exit code 1: the world refused (no broker, no such topic, a damaged file). Exit code 2: the words were wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


class Failure(Exception):
    """The command could not do what was asked; `str()` is the one line that says why."""

    exit_code = 1


class BadWord(Failure):
    """The command line or an input line is wrong; the message names the word and the fix."""

    exit_code = 2


class Failures(Failure):
    """Some of the things that were named failed; the others were done, and printed."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.failures = tuple(failures)
        self.exit_code = max(failure.exit_code for failure in failures)


def raise_failures(failures: Sequence[Failure]) -> None:
    """Call it after what was done is printed."""
    if failures:
        raise Failures(failures)


def report(failure: Failure) -> int:
    """Print a line for each failure and return the exit code."""
    for each in failure.failures if isinstance(failure, Failures) else (failure,):
        print("tidelog: " + " ".join(str(each).split()), file=sys.stderr)
    return failure.exit_code
