"""One change of the store: decided from the image, written, and decided again where somebody else was faster.

| seen                                              | then                                                |
|---------------------------------------------------|-----------------------------------------------------|
| nothing is to be written, or it must not be       | ended: `Settled`, with its row                      |
| `Done`                                            | ended                                               |
| `Refused`: something is not as the image had it   | decided again; refused for good after the last one  |
|                                                   | of `attempts_max` writes                            |
| `Refused` at `NOWHERE`: more than the store takes | ended: it would be as much again                    |
| `Unknown`                                         | ended, unconfirmed                                  |

**Invariant:** what may have been written is not written again: an unknown outcome ends the change, and its
row says no more than that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidelog.base.limits import STORE_CHANGE_ATTEMPTS_MAX
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.store import NOWHERE, Outcome, Refused

Wanted = TypeVar("Wanted")
Row = TypeVar("Row")


class Settled(NamedTuple, Generic[Row]):
    """Nothing is written: what was asked for is so already, or cannot be."""

    row: Row


class StoreChange(Generic[Wanted, Row]):
    """`Wanted` is what is written, `Row` what becomes of it in an answer."""

    attempts_max = STORE_CHANGE_ATTEMPTS_MAX

    def begin(self, on_end: Callable[[Row], None]) -> None:
        """`on_end` hears the row, once; at once if nothing is to be written."""
        self._attempt(self.attempts_max, on_end)

    def _attempt(self, attempts_left: int, on_end: Callable[[Row], None]) -> None:
        wanted = self.decide()
        if isinstance(wanted, Settled):
            on_end(wanted.row)
            return

        def on_outcome(outcome: Outcome) -> None:
            if _is_outdated(outcome) and attempts_left > 1:
                self._attempt(attempts_left - 1, on_end)
            else:
                on_end(self.row_of(wanted, outcome))

        self.write(wanted, on_outcome)

    def decide(self) -> Wanted | Settled[Row]:
        """What to write, from the image as it is now."""
        raise AssertionError(f"{type(self).__name__} decides nothing")

    def write(self, wanted: Wanted, on_outcome: OnOutcome) -> None:
        """Ask the store. If it refuses, the image has what stood in the way before `on_outcome` hears."""
        raise AssertionError(f"{type(self).__name__} writes nothing")

    def row_of(self, wanted: Wanted, outcome: Outcome) -> Row:
        """What became of what was written last."""
        raise AssertionError(f"{type(self).__name__} has no row")


def _is_outdated(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and outcome.place != NOWHERE
