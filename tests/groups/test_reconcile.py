"""One member's next step: it gives up first, moves on then, and gets only what nobody has."""

from __future__ import annotations

from itertools import product

import pytest

from tidelog.groups.reconcile import ConsumerMember, Goal, MemberState, reconcile
from tidelog.groups.records import MemberValue, Owned

T, U = b"t".rjust(16), b"u".rjust(16)
VALUE = MemberValue(None, None, "", "", ("t", "u"), None, 1_000, None, None)
FREE = frozenset[tuple[bytes, int]]()


def member(
    epoch: int = 1,
    assigned: Owned | None = None,
    revoking: Owned | None = None,
    state: MemberState = MemberState.STABLE,
) -> ConsumerMember:
    return ConsumerMember("m", VALUE, epoch, epoch, state, assigned or {}, revoking or {})


def step(
    before: ConsumerMember,
    goal: Goal,
    reported: dict[bytes, tuple[int, ...]] | None = None,
    taken: frozenset[tuple[bytes, int]] = FREE,
    subscribed: tuple[bytes, ...] = (T, U),
    has_changed: bool = False,
) -> ConsumerMember:
    owners = {topic: {index: "x" for each, index in taken if each == topic} for topic, _ in taken}
    return reconcile(before, goal, subscribed, has_changed, reported, owners)


def test_one_that_has_what_it_should_stays_as_it_is() -> None:
    before = member(2, {T: {0: 1}})
    assert step(before, Goal(2, {T: (0,)})) is before


def test_it_gets_what_is_free_in_the_new_epoch_and_keeps_the_epochs_of_the_rest() -> None:
    after = step(member(1, {T: {0: 1}}), Goal(2, {T: (0, 1)}), taken=frozenset({(T, 0)}))
    assert (after.epoch, after.previous_epoch, after.state) == (2, 1, MemberState.STABLE)
    assert after.assigned == {T: {0: 1, 1: 2}}


def test_it_gives_up_first_in_its_old_epoch() -> None:
    after = step(member(1, {T: {0: 1, 1: 1}}), Goal(2, {T: (0,), U: (0,)}))
    assert (after.epoch, after.state) == (1, MemberState.UNREVOKED)
    assert (after.assigned, after.revoking) == ({T: {0: 1}}, {T: {1: 1}})


def test_as_many_others_are_not_what_it_has() -> None:
    after = step(member(1, {T: {0: 1, 1: 1}}), Goal(2, {T: (1, 2)}))
    assert (after.epoch, after.state) == (1, MemberState.UNREVOKED)
    assert (after.assigned, after.revoking) == ({T: {1: 1}}, {T: {0: 1}})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_it_has_is_not_given_up_in_whichever_order_it_came(order: tuple[int, int]) -> None:
    after = step(member(1, {T: dict.fromkeys(order, 1)}), Goal(2, {T: (0, 1)}))
    assert (after.epoch, after.state, after.assigned) == (2, MemberState.STABLE, {T: {0: 1, 1: 1}})


@pytest.mark.parametrize("reported", [None, {T: (0, 1)}, {T: (1,)}])
def test_it_does_not_move_on_before_it_says_that_it_owns_none_of_that(
    reported: dict[bytes, tuple[int, ...]] | None,
) -> None:
    before = member(1, {T: {0: 1}}, {T: {1: 1}}, MemberState.UNREVOKED)
    assert step(before, Goal(2, {T: (0,), U: (0,)}), reported) is before


def test_then_it_moves_on_and_gets_more() -> None:
    before = member(1, {T: {0: 1}}, {T: {1: 1}}, MemberState.UNREVOKED)
    after = step(before, Goal(2, {T: (0,), U: (0,)}), {T: (0,)}, frozenset({(T, 0), (T, 1)}))
    assert (after.epoch, after.state, after.revoking) == (2, MemberState.STABLE, {})
    assert after.assigned == {T: {0: 1}, U: {0: 2}}


def test_what_others_have_is_waited_for() -> None:
    after = step(member(), Goal(2, {T: (0, 1)}), taken=frozenset({(T, 1)}))
    assert (after.epoch, after.state, after.assigned) == (2, MemberState.UNRELEASED, {T: {0: 2}})
    again = step(after, Goal(2, {T: (0, 1)}), taken=frozenset({(T, 0), (T, 1)}))
    assert (again.state, again.assigned) == (MemberState.UNRELEASED, {T: {0: 2}})
    last = step(again, Goal(2, {T: (0, 1)}), taken=frozenset({(T, 0)}))
    assert (last.state, last.assigned) == (MemberState.STABLE, {T: {0: 2, 1: 2}})


def test_what_it_does_not_subscribe_to_any_more_it_gives_up_before_there_is_a_new_target() -> None:
    before = member(2, {T: {0: 1}, U: {0: 1}})
    after = step(before, Goal(2, {T: (0,), U: (0,)}), subscribed=(U,), has_changed=True)
    assert (after.epoch, after.state) == (2, MemberState.UNREVOKED)
    assert (after.assigned, after.revoking) == ({U: {0: 1}}, {T: {0: 1}})


def test_what_it_does_not_subscribe_to_it_is_not_given_by_an_older_target() -> None:
    after = step(member(1, {U: {0: 1}}), Goal(2, {T: (0,), U: (0,)}), subscribed=(U,))
    assert (after.epoch, after.assigned) == (2, {U: {0: 1}})


def test_no_step_takes_what_another_has_or_lowers_the_epoch() -> None:
    parts: list[dict[bytes, dict[int, int]]] = [{}, {T: {0: 1}}, {T: {0: 1, 1: 1}}, {T: {1: 1}, U: {0: 1}}]
    targets: list[dict[bytes, tuple[int, ...]]] = [{}, {T: (0,)}, {T: (0, 1), U: (0,)}, {U: (0,)}]
    reports: list[dict[bytes, tuple[int, ...]] | None] = [None, {}, {T: (0, 1)}]
    for assigned, revoking, target, reported in product(parts, parts, targets, reports):
        if any(set(assigned.get(topic, {})) & set(revoking.get(topic, {})) for topic in (T, U)):
            continue
        state = MemberState.UNREVOKED if revoking else MemberState.STABLE
        before = member(1, assigned, revoking, state)
        own = {(topic, index) for part in (assigned, revoking) for topic in part for index in part[topic]}
        others = frozenset({(T, 0), (T, 1), (U, 0)} - own)
        after = step(before, Goal(2, target), reported, others | own)
        held = {(topic, index) for topic, indexes in after.assigned.items() for index in indexes}
        assert held <= own and before.epoch <= after.epoch <= 2
