"""Each check of what clients saw: quiet about a log that is right, and loud about its own kind of wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.anomalies import ALL, UNKNOWN_OFFSET, Witness

AUDIENCES = ("alone", "group")
Story = Callable[[Witness], None]


def right(witness: Witness) -> None:
    """Two writers, three records; a reader alone, and two members of which one took over from the other."""
    witness.acknowledged("a", 0, 0, 0)
    witness.acknowledged("b", 0, 0, 1)
    witness.acknowledged("a", 0, 1, UNKNOWN_OFFSET)
    for offset, writer, number in ((0, "a", 0), (1, "b", 0), (2, "a", 1)):
        witness.polled("alone", 0, offset, writer, number)
    witness.polled("group/0", 0, 0, "a", 0)
    witness.committed("group", 0, 1)
    witness.polled("group/0", 0, 1, "b", 0)
    witness.placed("group/1", 0)
    witness.polled("group/1", 0, 1, "b", 0)
    witness.polled("group/1", 0, 2, "a", 1)


def acknowledged_and_overtaken(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 0)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 1, "c", 1)


def missed_by_a_group_alone(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 0)
    witness.polled("alone", 1, 0, "c", 0)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 1, "c", 1)


def acknowledged_and_never_read(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 0)


def without_an_offset_and_never_read(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, UNKNOWN_OFFSET)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 0, "c", 1)


def twice_in_the_log(witness: Witness) -> None:
    witness.polled("alone", 1, 0, "c", 0)
    witness.polled("alone", 1, 1, "c", 0)


def acknowledged_elsewhere(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 1)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 0, "c", 0)


def two_at_one_offset(witness: Witness) -> None:
    witness.polled("alone", 1, 0, "c", 0)
    witness.polled("group/0", 1, 0, "d", 0)


def acknowledged_over_another(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 0)
    witness.acknowledged("d", 1, 0, 0)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 0, "c", 0)


def sent_later_and_put_before(witness: Witness) -> None:
    witness.acknowledged("c", 1, 0, 1)
    witness.acknowledged("c", 1, 1, 0)
    for audience in AUDIENCES:
        witness.polled(audience, 1, 0, "c", 1)
        witness.polled(audience, 1, 1, "c", 0)


def read_backwards(witness: Witness) -> None:
    for offset in (0, 1, 0):
        witness.polled("alone", 1, offset, "c", offset)


def read_with_a_gap(witness: Witness) -> None:
    for offset in (0, 2):
        witness.polled("alone", 1, offset, "c", offset)


def placed_before_what_is_committed(witness: Witness) -> None:
    for offset in (0, 1):
        witness.polled("group/0", 1, offset, "c", offset)
    witness.committed("group", 1, 2)
    witness.placed("group/1", 1)
    witness.polled("group/1", 1, 1, "c", 1)


def test_a_group_that_was_taken_back_by_its_own_members_has_lost_nothing() -> None:
    witness = Witness()
    for offset in (0, 1, 2, 3):
        witness.polled("group/0", 1, offset, "c", offset)
    witness.commit_asked("group/0", 1, 4)
    witness.committed("group/0", 1, 4)
    witness.commit_asked("group/0", 1, 2)
    witness.placed("group/1", 1)
    witness.polled("group/1", 1, 2, "c", 2)  # it may have been carried out
    witness.commit_failed("group/0")
    witness.commit_asked("group/1", 1, 3)
    witness.placed("group/2", 1)
    witness.polled("group/2", 1, 2, "c", 2)  # it may have been carried out
    assert witness.tally["lost-commit"] == 0
    witness.committed("group/1", 1, 3)
    witness.placed("group/3", 1)
    witness.polled("group/3", 1, 2, "c", 2)  # by now it would be undone
    assert witness.tally["lost-commit"] == 1


STORIES: list[tuple[Story, dict[str, int]]] = [
    (acknowledged_and_overtaken, {"lost-write": 2}),
    (missed_by_a_group_alone, {"lost-write": 1}),
    (acknowledged_and_never_read, {"unseen": 2}),
    (without_an_offset_and_never_read, {"lost-write": 2}),
    (twice_in_the_log, {"duplicate": 1}),
    (acknowledged_elsewhere, {"duplicate": 2}),
    (two_at_one_offset, {"inconsistent-offsets": 1}),
    (acknowledged_over_another, {"inconsistent-offsets": 1, "unseen": 2}),
    (sent_later_and_put_before, {"nonmonotonic-send": 1}),
    (read_backwards, {"nonmonotonic-poll": 1}),
    (read_with_a_gap, {"poll-skip": 1}),
    (placed_before_what_is_committed, {"lost-commit": 1}),
]


def test_of_a_log_that_is_right_nothing_is_found() -> None:
    witness = Witness()
    right(witness)
    assert set(witness.end(AUDIENCES).values()) == {0}
    assert witness.examples == []
    assert (witness.acknowledged_count, witness.polled_count) == (3, 7)


@pytest.mark.parametrize(("story", "expected"), STORIES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_found_under_its_name(story: Story, expected: dict[str, int]) -> None:
    witness = Witness()
    right(witness)
    story(witness)
    found = {kind: count for kind, count in witness.end(AUDIENCES).items() if count}
    assert found == expected
    assert {example.partition(":")[0] for example in witness.examples} == set(expected)


def test_every_check_is_shown_to_go_red() -> None:
    assert {kind for _, expected in STORIES for kind in expected} == set(Witness().tally)
    assert len(ALL) == len(Witness().tally)
