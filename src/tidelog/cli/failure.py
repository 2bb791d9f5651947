"""Errors that end a command: one line for each failure, and an exit code.

Exit code 1: the operation failed (no broker, no such topic, a damaged file). Exit code 2: invalid usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


class Failure(Exception):
    """The command failed; `str()` is the one line that says why."""

    exit_code = 1


class BadWord(Failure):
    """The command line or an input line is invalid; the message names the word and the fix."""

    exit_code = 2


class Failures(Failure):
    """Some of the named things failed; the others were done, and printed."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.failures = tuple(failures)
        self.exit_code = max(failure.exit_code for failure in failures)


def raise_failures(failures: Sequence[Failure]) -> None:
    """Raise the failures, if any. Call it after printing the results."""
    if failures:
        raise Failures(failures)


def report(failure: Failure) -> int:
    """Print a line for each failure and return the exit code."""
    for each in failure.failures if isinstance(failure, Failures) else (failure,):
        print("tidelog: " + " ".join(str(each).split()), file=sys.stderr)
    return failure.exit_code
