"""Replicas that begin to move, move elsewhere, have moved, or go back (R11, KIP-455)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cluster.test_elections import NODES, SAFE, image_with, settings_of
from tidelog.base.config import TopicSettings
from tidelog.cluster.facts import NOBODY, Answer, PartitionFacts, TopicFacts
from tidelog.cluster.image import Image
from tidelog.cluster.reassignments import (
    decide_cancellation,
    decide_completion,
    decide_due,
    decide_move,
    target_problem,
)
from tidelog.protocol.errors import ErrorCode, Problem

ALL = [1, 2, 3, 4, 5]


def facts_of(
    replicas: list[int],
    isr: list[int],
    leader: int = 1,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    eligible: tuple[int, ...] = (),
) -> PartitionFacts:
    members = dict.fromkeys((*isr, *eligible), 5)
    return PartitionFacts(leader, 9, isr, replicas, 4, list(eligible), members, [*adding], [*removing])


def moved(
    facts: PartitionFacts, target: list[int], settings: TopicSettings = SAFE, image: Image | None = None
) -> PartitionFacts:
    found = decide_move(image or image_with(ALL), facts, target, settings)
    assert isinstance(found, PartitionFacts)
    return found


def test_a_move_begins_with_the_target_first_and_then_those_that_leave() -> None:
    begun = moved(facts_of([1, 2, 3], [1, 2, 3]), [4, 3, 5])
    assert (begun.replicas, begun.adding, begun.removing) == ([4, 3, 5, 1, 2], [4, 5], [1, 2])
    assert (begun.replicas_before, begun.replicas_after) == ([3, 1, 2], [4, 3, 5])
    assert (begun.leader, begun.leader_epoch, begun.version) == (1, 10, 4)
    assert (begun.in_sync_replicas, begun.members) == ([1, 2, 3], {1: 5, 2: 5, 3: 5})


def test_what_is_asked_for_twice_changes_nothing() -> None:
    begun = moved(facts_of([1, 2, 3], [1, 2, 3]), [4, 3, 5])
    assert decide_move(image_with(ALL), begun, [4, 3, 5], SAFE) is None
    assert decide_move(image_with(ALL), facts_of([1, 2], [1, 2]), [1, 2], SAFE) is None


def test_another_order_and_fewer_replicas_are_there_at_once() -> None:
    turned = moved(facts_of([1, 2, 3], [1, 2]), [3, 2, 1])
    assert (turned.replicas, turned.leader, turned.leader_epoch) == ([3, 2, 1], 1, 10)
    fewer = moved(facts_of([1, 2, 3], [1, 2, 3]), [2, 3])
    assert (fewer.replicas, fewer.in_sync_replicas, fewer.is_moving) == ([2, 3], [2, 3], False)
    assert (fewer.leader, fewer.leader_epoch, set(fewer.members)) == (2, 10, {2, 3})


def test_fewer_replicas_wait_until_those_are_in_sync() -> None:
    begun = moved(facts_of([1, 2, 3], [1, 2]), [2, 3])
    assert (begun.replicas, begun.adding, begun.removing) == ([2, 3, 1], [], [1])
    assert begun.in_sync_replicas == [1, 2]


def test_another_target_starts_from_who_was_there_before_the_first() -> None:
    begun = facts_of([3, 4, 5, 1, 2], [1, 2, 3, 4, 5], 4, (4, 5), (1, 2))
    again = moved(begun, [3, 4, 2])
    assert (again.replicas, again.in_sync_replicas) == ([3, 4, 2], [2, 3, 4])  # all are in sync: it is there
    again = moved(facts_of([3, 4, 5, 1, 2], [1, 2, 3, 5], 5, (4, 5), (1, 2)), [3, 4, 2])
    assert (again.replicas, again.adding, again.removing) == ([3, 4, 2, 1], [4], [1])
    assert (again.in_sync_replicas, again.leader, again.leader_epoch) == ([3, 2, 1], 3, 10)


def test_back_to_where_the_replicas_were_is_no_move_any_more() -> None:
    back = moved(facts_of([4, 5, 1, 2], [1, 2], 1, (4, 5), (1, 2)), [1, 2])
    assert (back.replicas, back.is_moving, back.leader_epoch) == ([1, 2], False, 10)


def test_a_move_is_complete_when_the_whole_target_is_in_sync_trusted_and_there() -> None:
    facts = facts_of([4, 3, 1, 2], [1, 2, 3, 4], 1, (4,), (1, 2))
    done = decide_completion(image_with(ALL), facts, SAFE)
    assert done is not None and not done.is_moving
    assert (done.replicas, done.in_sync_replicas) == ([4, 3], [4, 3])
    assert (done.leader, done.leader_epoch, done.members) == (4, 10, {4: 7, 3: 5})
    assert decide_completion(image_with([1, 2, 4, 5]), facts, SAFE) is None
    assert decide_completion(image_with(ALL, distrusted=(3,)), facts, SAFE) is None
    lagging = facts_of([4, 3, 1, 2], [1, 2, 4], 1, (4,), (1, 2))
    assert decide_completion(image_with(ALL), lagging, SAFE) is None
    assert decide_completion(image_with(ALL), facts_of([1, 2], [1, 2]), SAFE) is None


def test_a_leader_that_stays_leads_on_under_a_new_epoch() -> None:
    facts = facts_of([2, 1, 3], [1, 2, 3], 1, (2,), (3,))
    done = decide_completion(image_with(ALL), facts, SAFE)
    assert done is not None and (done.leader, done.leader_epoch) == (1, 10)


def test_a_move_that_is_cancelled_leaves_who_was_there_before() -> None:
    facts = facts_of([4, 3, 1, 2], [1, 2, 3, 4], 4, (4,), (1, 2))
    back = decide_cancellation(image_with(ALL), facts, SAFE)
    assert isinstance(back, PartitionFacts)
    assert (back.replicas, back.is_moving, back.in_sync_replicas) == ([3, 1, 2], False, [3, 1, 2])
    assert (back.leader, back.leader_epoch) == (3, 10)


def test_what_does_not_move_cannot_be_cancelled() -> None:
    refused = decide_cancellation(image_with(ALL), facts_of([1, 2], [1, 2]), SAFE)
    assert isinstance(refused, Problem) and refused.error is ErrorCode.no_reassignment_in_progress


def test_a_move_is_not_undone_if_too_few_have_everything() -> None:
    image = image_with(ALL)
    none_left = facts_of([4, 5, 1, 2], [4, 5], 4, (4, 5), (1, 2))
    one_left = facts_of([4, 5, 1, 2], [1, 4, 5], 4, (4, 5), (1, 2))
    for facts in (none_left, one_left):
        for refused in (decide_cancellation(image, facts, SAFE), decide_move(image, facts, [1, 2], SAFE)):
            assert isinstance(refused, Problem)
            assert refused.error is ErrorCode.invalid_replica_assignment
    enough = decide_cancellation(image, one_left, settings_of(min_insync_replicas="1"))
    assert isinstance(enough, PartitionFacts) and enough.in_sync_replicas == [1]
    gone = decide_cancellation(image_with([2, 3, 4, 5]), one_left, settings_of(min_insync_replicas="1"))
    assert isinstance(gone, Problem)


def test_a_target_needs_brokers_that_are_known_and_none_twice() -> None:
    image, facts = image_with([1]), facts_of([1, 2], [1, 2])
    wrong = ErrorCode.invalid_replica_assignment
    for target in ([], [9], [1, 1], [1, -1]):
        refused = target_problem(image, facts, target, True)
        assert refused is not None and refused.error is wrong and refused.message
    assert target_problem(image, facts, [1, 2, 3], True) is None  # whoever is away for a while counts


def test_the_number_of_replicas_is_kept_if_that_is_asked_for() -> None:
    image, facts = image_with(ALL), facts_of([4, 5, 3, 1, 2], [1, 2], 1, (4, 5), (1, 2))
    assert target_problem(image, facts, [1, 2, 3], False) is None
    refused = target_problem(image, facts, [1, 2], False)
    assert refused is not None and refused.error is ErrorCode.invalid_replication_factor


def test_answers_are_of_the_epoch_that_replicas_move_in() -> None:
    facts = replace(facts_of([1, 2, 3], [1, 2, 3], NOBODY), answers={1: Answer(7, 4, 10)})
    moved = decide_move(image_with(ALL), facts, [1, 2, 4], SAFE)
    assert isinstance(moved, PartitionFacts) and moved.answers == {}


def test_the_controller_elects_and_completes_in_one_look() -> None:
    topic = TopicFacts(bytes(16), "t", {}, 0)
    topic.partitions = {
        0: facts_of([1, 2], [1, 2]),
        1: facts_of([2, 1], [2, 1], leader=3),
        2: facts_of([2, 3, 1], [1, 2, 3], 1, (3,), (1,)),
        3: facts_of([2, 3, 1], [1, 2], 1, (3,), (1,)),
    }
    decided = {each.index: each.facts for each in decide_due(image_with([1, 2, 3]), [topic], lambda _: SAFE)}
    assert {index: facts.leader for index, facts in decided.items()} == {1: 2, 2: 2}
    decided = {each.index: each.facts for each in decide_due(image_with([1, 2]), [topic], lambda _: SAFE)}
    assert {index: facts.leader for index, facts in decided.items()} == {1: 2}


@given(
    before=NODES.filter(bool),
    target=NODES.filter(bool),
    other=st.none() | NODES.filter(bool),
    isr=NODES,
    alive=NODES,
    distrusted=NODES,
    min_insync=st.integers(1, 3),
)
def test_nobody_comes_into_an_isr_by_a_move_and_enough_are_left(
    before: list[int],
    target: list[int],
    other: list[int] | None,
    isr: list[int],
    alive: list[int],
    distrusted: list[int],
    min_insync: int,
) -> None:
    image, settings = image_with(alive, tuple(distrusted)), settings_of(min_insync_replicas=str(min_insync))
    adding, removing = [n for n in target if n not in before], [n for n in before if n not in target]
    replicas = [*target, *removing]
    in_sync = [n for n in isr if n in replicas]
    assume(in_sync)
    facts = facts_of(replicas, in_sync, in_sync[0], tuple(adding), tuple(removing))
    step = (
        decide_cancellation(image, facts, settings)
        if other is None
        else decide_move(image, facts, other, settings)
    )
    for found in (step, decide_completion(image, facts, settings)):
        if not isinstance(found, PartitionFacts):
            continue
        assert found.leader_epoch == facts.leader_epoch + 1 and found.version == facts.version
        assert {*found.in_sync_replicas, *found.eligible} <= {*in_sync} & {*found.replicas}
        assert found.leader in found.in_sync_replicas and found.leader != NOBODY
        assert set(found.members) == {*found.in_sync_replicas, *found.eligible}
        assert {*found.adding, *found.removing} <= {*found.replicas}
        kept = {*found.in_sync_replicas, *found.eligible}
        if kept != {*in_sync} and not ({*in_sync} <= {*found.replicas}):
            assert len(kept) >= min(min_insync, len(found.replicas))
