"""A change of the store from its decision to its end."""

from __future__ import annotations

import pytest

from tidelog.base.limits import STORE_CHANGE_ATTEMPTS_MAX
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.store import NOWHERE, Done, Outcome, Refused, Unknown

OUTDATED, TOO_MUCH = Refused(1, "BadVersionError"), Refused(NOWHERE, "ask for less at a time")


class Scripted(StoreChange[int, str]):
    """It wants what `image` is by now; the store answers when it is told to."""

    def __init__(self) -> None:
        self.image = 0
        self.problem = ""
        self.written: list[int] = []
        self.ends: list[str] = []
        self._on_outcome: OnOutcome | None = None
        self.begin(self.ends.append)

    def decide(self) -> int | Settled[str]:
        return Settled(self.problem) if self.problem else self.image

    def write(self, wanted: int, on_outcome: OnOutcome) -> None:
        self.written.append(wanted)
        self._on_outcome = on_outcome

    def row_of(self, wanted: int, outcome: Outcome) -> str:
        return f"{wanted} {type(outcome).__name__}"

    def answer(self, outcome: Outcome) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        assert on_outcome is not None, "the store was not asked"
        on_outcome(outcome)


def test_what_is_refused_is_decided_again_from_what_is_there_now() -> None:
    change = Scripted()
    change.image = 5
    change.answer(OUTDATED)
    assert (change.written, change.ends) == ([0, 5], [])
    change.answer(Done())
    assert (change.written, change.ends) == ([0, 5], ["5 Done"])


def test_what_somebody_else_has_settled_meanwhile_is_not_written_again() -> None:
    change = Scripted()
    change.problem = "it is gone"
    change.answer(OUTDATED)
    assert (change.written, change.ends) == ([0], ["it is gone"])


def test_what_is_refused_each_time_is_written_a_number_of_times() -> None:
    change = Scripted()
    while not change.ends:
        change.answer(OUTDATED)
    assert (len(change.written), change.ends) == (STORE_CHANGE_ATTEMPTS_MAX, ["0 Refused"])


@pytest.mark.parametrize("outcome", [Unknown("the store does not answer"), TOO_MUCH, Done()])
def test_what_may_be_written_or_never_can_be_is_not_written_again(outcome: Outcome) -> None:
    change = Scripted()
    change.image = 5
    change.answer(outcome)
    assert (change.written, change.ends) == ([0], [f"0 {type(outcome).__name__}"])


def test_an_unknown_outcome_ends_a_change_that_was_refused_before() -> None:
    change = Scripted()
    change.answer(OUTDATED)
    change.answer(Unknown("the store does not answer"))
    assert (change.written, change.ends) == ([0, 0], ["0 Unknown"])
