"""What a refused batch excuses of those behind it, and for how long."""

from __future__ import annotations

import pytest

from tidelog.base.limits import GAPS_EXCUSED_MS, REFUSALS_KEPT
from tidelog.broker.refusals import Numbered, Refusals, is_before
from tidelog.protocol.errors import ErrorCode

PLACE = ("t", 0)
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
FIRST = Numbered(producer_id=7, epoch=2, sequence=10)
NEXT = FIRST._replace(sequence=11)


@pytest.fixture
def refusals() -> Refusals:
    refusals = Refusals()
    refusals.note(PLACE, FIRST, NOT_LEADER, 0)
    return refusals


def test_a_batch_behind_a_refused_one_is_refused_in_the_same_way(refusals: Refusals) -> None:
    assert refusals.excuse(PLACE, NEXT, expected=10, now_ms=5) == NOT_LEADER
    assert refusals.excuse(PLACE, NEXT, expected=None, now_ms=5) == NOT_LEADER, "the producer is new here"


@pytest.mark.parametrize(
    "place, batch, expected",
    [
        (("t", 1), NEXT, 10),
        (PLACE, NEXT._replace(epoch=3), 10),
        (PLACE, NEXT._replace(producer_id=8), 10),
        (PLACE, NEXT, 9),
        (PLACE, FIRST._replace(sequence=9), 10),
    ],
    ids=["another partition", "another epoch", "another producer", "another gap", "a batch before it"],
)
def test_no_other_gap_is_excused(
    refusals: Refusals, place: tuple[str, int], batch: Numbered, expected: int
) -> None:
    assert refusals.excuse(place, batch, expected, now_ms=5) == 0


def test_a_refusal_excuses_for_a_while_only(refusals: Refusals) -> None:
    assert refusals.excuse(PLACE, NEXT, 10, GAPS_EXCUSED_MS) == NOT_LEADER
    assert not refusals.are_over(GAPS_EXCUSED_MS)
    assert refusals.excuse(PLACE, NEXT, 10, GAPS_EXCUSED_MS + 1) == 0
    assert refusals.are_over(GAPS_EXCUSED_MS + 1)


def test_only_the_last_refusals_are_kept(refusals: Refusals) -> None:
    for sequence in range(REFUSALS_KEPT):
        refusals.note(("other", 0), FIRST._replace(sequence=sequence), NOT_LEADER, 1)
    assert refusals.excuse(PLACE, NEXT, 10, 2) == 0


def test_sequences_go_on_at_0_behind_the_largest() -> None:
    assert is_before(2**31 - 1, 0) and is_before(2**31 - 1, 4) and is_before(3, 4)
    assert not is_before(0, 2**31 - 1) and not is_before(4, 4)
