"""How counts are made even over brokers: which broker should give one to which, until none could be better.

First from brokers that have too many to brokers that have too few; then from the one or to the other; then,
where racks of different sizes allow no more than that, between any two that differ by two or more.

**Invariant:** each step takes from a broker with at least two more than the one that gets it, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

Counts = Mapping[int, int]
# Have one of the first give one to one of the others, maybe through third ones; False if that cannot be.
Step = Callable[[Collection[int], Collection[int]], bool]


def even_out(counts: Callable[[], Counts], step: Step) -> None:
    """Take steps until the counts of all brokers are as near to each other as they can be."""
    now = counts()
    low = sum(now.values()) // len(now)
    high = -(-sum(now.values()) // len(now))
    for above, below in ((high, low), (high, high), (low, low)):
        while True:
            now = counts()
            givers = [broker for broker in now if now[broker] > above]
            takers = [broker for broker in now if now[broker] < below]
            if not givers or not takers or not step(givers, takers):
                break
    while _take_any(counts(), step):
        pass


def _take_any(now: Counts, step: Step) -> bool:
    for giver in sorted(now, key=lambda broker: (-now[broker], broker)):
        takers = [broker for broker in now if now[broker] <= now[giver] - 2]
        if takers and step([giver], takers):
            return True
    return False
