"""Balance counts over brokers: which broker gives a replica to which, until no step improves the balance.

First from brokers with too many to brokers with too few; then from or to either of them; then, where racks of
different sizes allow no more, between any two that differ by two or more.

**Invariant:** each step goes from a broker with at least two more than the receiving one, so the steps end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

Counts = Mapping[int, int]
# Move one from a giver to a taker, possibly through other brokers; False if impossible.
Step = Callable[[Collection[int], Collection[int]], bool]


def even_out(counts: Callable[[], Counts], step: Step) -> None:
    """Take steps until the counts of all brokers are as balanced as possible."""
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
