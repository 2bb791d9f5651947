"""The process of the cleaner: `python -m tidelog.server.cleaner.worker`. It runs what its broker asks for.

It is as nice as can be, and ends when its broker does: a thread waits for the end of stdin, and ends the
process in the middle of whatever it does. What it has written by then nobody uses.

**Invariant:** it talks to its broker alone, and outlives it by no more than the turn of a thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from tidelog.log.compaction.cleaning import fastest_key_map
from tidelog.log.compaction.keys import PlainKeyMap
from tidelog.server.cleaner.lines import decode_order, encode_end
from tidelog.server.cleaner.round import run_round

NICENESS = 19
_REPORT_S = 0.5


class Reporter:
    """Says how far a round is, now and then."""

    def __init__(self) -> None:
        self._unsaid = 0
        self._said_s = monotonic()

    def report(self, size: int) -> None:
        self._unsaid += size
        if monotonic() - self._said_s >= _REPORT_S:
            say(json.dumps({"done": self._unsaid}))
            self._unsaid, self._said_s = 0, monotonic()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _listen(orders: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its broker decides when it ends
    with suppress(OSError):
        os.nice(NICENESS)
    orders: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(orders,), daemon=True).start()
    key_map = fastest_key_map()
    say(json.dumps({"compiled": key_map is not PlainKeyMap}))
    while True:
        path, request = decode_order(orders.get())
        try:
            end = encode_end(run_round(path, request, Reporter().report, key_map))
        except Exception as problem:
            end = encode_end(problem)
        say(end)


if __name__ == "__main__":
    main()
