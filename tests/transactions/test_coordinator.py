"""The transaction machine: its stories, and what it refuses, lists and describes."""

from __future__ import annotations

import pytest

from tests.transactions.desk import Desk, Waiting, code_of
from tests.transactions.stories import STORIES, A, B, Story, raised, told
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.listing import Filters
from tidelog.transactions.transaction import EPOCH_MAX, NO_IDENTITY, Identity, State
from tidelog.transactions.turn import Add, End, ProducerAnswer


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_story_ends_as_it_should(story: Story) -> None:
    story()


def test_what_is_decided_in_one_turn_is_seen_by_the_next_command_of_it() -> None:
    desk = Desk()
    producer = desk.producer()
    first, second, ended = Waiting(), Waiting(), Waiting()
    adds = [Add("t", producer, (spot,), is_new_protocol=True) for spot in (A, B)]
    end = End("t", producer, is_commit=True, is_new_protocol=True)
    desk.run(
        lambda turn: desk.coordinator.add(turn, adds[0], first),
        lambda turn: desk.coordinator.add(turn, adds[1], second),
        lambda turn: desk.coordinator.end(turn, end, ended),
    )
    assert (desk.state, desk.found().partitions) == ("PrepareCommit", frozenset({A, B}))
    desk.mark_all()
    assert (first.answer, second.answer) == ([ErrorCode.none], [ErrorCode.none])
    assert ended.answer == told(raised(producer))


def test_partitions_that_are_in_the_transaction_are_not_written_again() -> None:
    desk = Desk()
    producer = desk.begin(A, B)
    size = len(desk.journal)
    assert desk.add(producer, B, A).answer == [ErrorCode.none] * 2
    assert len(desk.journal) == size


def test_if_one_partition_cannot_be_added_none_is() -> None:
    desk = Desk()
    producer = desk.producer()
    problems = {("gone", 0): ErrorCode.unknown_topic_or_partition}
    codes = desk.add(producer, A, ("gone", 0), problems=problems).answer
    assert codes == [ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition]
    assert desk.state == "Empty"


@pytest.mark.parametrize("tid", ["", "x" * 2**15, "ü" * 2**14])
def test_an_id_that_has_no_place_in_a_record_is_refused(tid: str) -> None:
    desk = Desk()
    assert desk.init(tid=tid).answer == ProducerAnswer(ErrorCode.invalid_request)
    assert desk.journal == []


def test_without_an_id_nothing_is_added_verified_or_ended() -> None:
    desk, nobody = Desk(), Identity(1, 0)
    codes = [desk.add(nobody, A, tid=""), desk.verify(nobody, A, tid=""), desk.end(nobody, tid="")]
    assert [code_of(each) for each in codes] == [ErrorCode.invalid_request] * 3


def test_without_a_producer_id_at_hand_a_client_asks_again() -> None:
    desk = Desk()
    desk.ids.is_empty = True
    assert code_of(desk.init()) is ErrorCode.coordinator_load_in_progress
    desk.ids.is_empty = False
    desk.producer()
    desk.run(lambda turn: turn.decide(desk.found()._replace(producer_epoch=EPOCH_MAX - 1)))
    producer = desk.found().identity
    desk.ids.is_empty = True
    assert code_of(desk.init()) is ErrorCode.coordinator_load_in_progress
    assert code_of(desk.abort_new(producer)) is ErrorCode.coordinator_load_in_progress
    desk.add(producer, A)
    assert code_of(desk.commit_new(producer)) is ErrorCode.coordinator_load_in_progress
    desk.tick(61_000)  # nor can its timeout abort it yet
    assert desk.state == "Ongoing"
    desk.ids.is_empty = False
    desk.tick(1_000)
    assert desk.found().identity == Identity(producer.producer_id, EPOCH_MAX)


def test_the_old_protocol_keeps_the_last_epoch_until_init() -> None:
    desk = Desk()
    desk.producer()
    desk.run(lambda turn: turn.decide(desk.found()._replace(producer_epoch=EPOCH_MAX - 1)))
    producer = desk.found().identity
    desk.add(producer, A)
    ended = desk.end(producer)
    desk.mark_all()
    assert ended.answer == told(producer)
    following = desk.init(producer).answer
    assert following.identity.epoch == 0
    assert desk.init(producer).answer == following  # a repeat
    assert code_of(desk.init(Identity(producer.producer_id, 5))) is ErrorCode.producer_fenced


def test_a_prepared_transaction_without_partitions_completes_by_itself() -> None:
    """Kafka writes PrepareAbort for an empty abort; a log of Kafka may end there."""
    desk = Desk()
    desk.begin(A)
    held = desk.found()._replace(state=State.PREPARE_ABORT, partitions=frozenset())
    desk.run(lambda turn: turn.decide(held))
    desk.restart()
    desk.tick(1_000)
    assert (desk.state, desk.sender.sent) == ("CompleteAbort", [])


def test_who_waits_is_told_when_the_partition_is_led_elsewhere() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended = desk.commit_new(producer)
    early = desk.add(raised(producer), B, is_new_protocol=True)
    desk.run(desk.coordinator.stop)
    assert ended.answer == ProducerAnswer(ErrorCode.not_coordinator)
    assert early.answer == [ErrorCode.not_coordinator]


def test_an_answer_waits_until_what_it_reflects_is_committed() -> None:
    desk = Desk()
    producer = desk.producer()
    desk.is_committing = False
    asked = [
        desk.add(producer, A),
        desk.add(producer, A),
        desk.verify(producer, A),
        desk.end(raised(producer)),
        desk.init(raised(producer)),
    ]
    assert not any(each.answers for each in asked)
    desk.commit()
    codes = [code_of(each) for each in asked]
    assert codes == [ErrorCode.none] * 3 + [ErrorCode.producer_fenced] * 2


def test_a_list_goes_by_state_producer_age_and_pattern() -> None:
    desk = Desk()
    first = desk.producer(tid="orders-1")
    desk.tick(1_000)
    second = desk.producer(tid="orders-2")
    desk.add(second, A, tid="orders-2")
    desk.tick(500)

    def names(**filters: object) -> list[str]:
        return [each.transactional_id for each in desk.listed(Filters(**filters)).found]  # type: ignore[arg-type]

    assert names() == ["orders-1", "orders-2"]
    assert names(states=("Ongoing",)) == ["orders-2"]
    assert names(states=("Ongoing", "Empty")) == ["orders-1", "orders-2"]
    assert names(producer_ids=frozenset({first.producer_id})) == ["orders-1"]
    assert names(longer_than_ms=500) == ["orders-1"]  # it was never begun; Kafka lists it as well
    assert names(longer_than_ms=499) == ["orders-1", "orders-2"]
    assert names(pattern="orders-.") == ["orders-1", "orders-2"]
    assert names(pattern="orders") == []
    assert desk.listed(Filters(pattern="(")).code is ErrorCode.invalid_regular_expression
    assert desk.listed(Filters(pattern="x" * 2_000)).code is ErrorCode.invalid_regular_expression
    assert desk.listed(Filters(states=("Dead", "Nope"))).unknown_states == ("Nope",)


def test_only_its_own_identity_ends_a_transaction() -> None:
    desk = Desk()
    producer = desk.begin(A)
    for other in (NO_IDENTITY, raised(producer), raised(producer, -1), Identity(1, producer.epoch)):
        assert code_of(desk.commit_new(other)) in (
            ErrorCode.producer_fenced,
            ErrorCode.invalid_producer_id_mapping,
        )
    assert desk.state == "Ongoing"


def test_an_instance_that_was_fenced_is_not_told_that_a_later_one_committed() -> None:
    """Kafka tells it, when the later one speaks the old protocol."""
    desk = Desk()
    zombie = desk.producer()
    producer = desk.producer()
    desk.add(producer, A)
    desk.end(producer)
    desk.mark_all()
    assert code_of(desk.commit_new(zombie)) is ErrorCode.producer_fenced


def test_a_transaction_does_not_become_too_large_to_be_ended() -> None:
    desk = Desk()
    desk.record_size_max = 300
    producer = desk.producer()
    added, code = 0, ErrorCode.none
    while code is ErrorCode.none:
        code = code_of(desk.add(producer, ("a", added), is_new_protocol=True))
        added += code is ErrorCode.none
    assert (code, added > 10) == (ErrorCode.unknown_server_error, True)
    ended = desk.commit_new(producer)
    desk.mark_all()
    assert ended.answer == told(raised(producer))


def test_a_repeated_init_is_not_known_once_a_transaction_has_begun() -> None:
    desk = Desk()
    producer = desk.producer()
    current = desk.init(producer).answer.identity
    desk.add(current, A)
    desk.end(current)
    desk.mark_all()
    assert code_of(desk.init(producer)) is ErrorCode.producer_fenced
    assert desk.end(current).answer == told(current)


def test_what_came_early_begins_nothing_if_its_client_has_gone() -> None:
    desk = Desk()
    producer = desk.begin(A)
    desk.commit_new(producer)
    early = desk.add(raised(producer), B, is_new_protocol=True)
    early.is_gone = True
    desk.mark_all()
    assert desk.state == "CompleteCommit"
    assert early.answers == [[ErrorCode.concurrent_transactions]]
