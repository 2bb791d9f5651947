"""What ends a command early: one line for the person, and an exit code.

Exit code 1: the world refused (no broker, no such topic, a damaged file). Exit code 2: the words were wrong.
"""

from __future__ import annotations

import sys


class Failure(Exception):
    """The command could not do what was asked; `str()` is the one line that says why."""

    exit_code = 1


class BadWord(Failure):
    """The command line or an input line is wrong; the message names the word and the fix."""

    exit_code = 2


def report(failure: Failure) -> int:
    """Print the one line and return the exit code."""
    print("tidelog: " + " ".join(str(failure).split()), file=sys.stderr)
    return failure.exit_code
