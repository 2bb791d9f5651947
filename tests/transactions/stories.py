"""Stories of one transactional id: what must happen, step by step.

Each is told by `test_coordinator` as it should be, and by `test_coordinator_mutants` with a bug in the
package, which it must notice.

**Invariant:** a story fails by an assertion of its own, or by one of the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.transactions.desk import Desk, code_of
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import EPOCH_MAX, Identity
from tidelog.transactions.turn import ProducerAnswer

FOUND = 3  # how a process ends that has found something wrong
A, B = ("a", 0), ("b", 0)
NONE, FENCED, WAIT = ErrorCode.none, ErrorCode.producer_fenced, ErrorCode.concurrent_transactions
Story = Callable[[], None]
STORIES: dict[str, Story] = {}


def story(told: Story) -> Story:
    STORIES[told.__name__.replace("_", "-")] = told
    return told


def raised(identity: Identity, by: int = 1) -> Identity:
    return Identity(identity.producer_id, identity.epoch + by)


def told(identity: Identity) -> ProducerAnswer:
    return ProducerAnswer(NONE, identity)


# The end raises the epoch.


@story
def a_late_write_does_not_open_the_next_transaction() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended = desk.commit_new(producer)
    desk.mark_all()
    assert ended.answer == told(raised(producer))
    assert code_of(desk.add(producer, A, is_new_protocol=True)) is FENCED
    assert desk.state == "CompleteCommit"


@story
def an_empty_abort_raises_the_epoch() -> None:
    desk = Desk()
    producer = desk.producer()
    assert desk.abort_new(producer).answer == told(raised(producer))
    assert desk.state == "CompleteAbort"
    assert code_of(desk.add(producer, A, is_new_protocol=True)) is FENCED
    assert desk.abort_new(producer).answer == told(raised(producer))
    assert desk.abort_new(raised(producer)).answer == told(raised(producer, 2))


def at_the_last_epoch() -> tuple[Desk, Identity]:
    desk = Desk()
    desk.producer()
    desk.run(lambda turn: turn.decide(desk.found()._replace(producer_epoch=EPOCH_MAX - 1)))
    producer = desk.found().identity
    desk.add(producer, A, is_new_protocol=True)
    return desk, producer


@story
def markers_of_the_last_epoch_carry_the_old_id() -> None:
    desk, producer = at_the_last_epoch()
    ended = desk.commit_new(producer)
    assert desk.sender.sent[0].identity == Identity(producer.producer_id, EPOCH_MAX)
    assert desk.coordinator.of_producer(producer.producer_id) == desk.found()
    desk.mark_all()
    following = ended.answer.identity
    assert following.epoch == 0
    assert following.producer_id != producer.producer_id
    assert desk.found().identity == following
    assert desk.coordinator.of_producer(following.producer_id) == desk.found()
    assert desk.coordinator.of_producer(producer.producer_id) is None
    desk.restart()
    assert desk.commit_new(producer).answer == told(following)


@story
def a_producer_that_knows_its_next_id_is_not_fenced_when_complete_is_lost() -> None:
    desk, producer = at_the_last_epoch()
    ended = desk.commit_new(producer)
    desk.is_committing = False
    desk.mark_all()
    desk.restart(losing=1)
    desk.commit()
    following = ended.answer.identity
    assert desk.state == "PrepareCommit"
    assert code_of_end(desk, following) is WAIT
    added = desk.add(following, B, is_new_protocol=True)
    assert not added.answers
    desk.mark_all()
    desk.commit()
    assert added.answer == [NONE]
    assert (desk.found().identity, desk.found().partitions) == (following, frozenset({B}))


def code_of_end(desk: Desk, producer: Identity) -> ErrorCode:
    ended = desk.abort_new(producer)
    desk.commit()
    return code_of(ended)


@story
def a_producer_that_knows_its_next_epoch_is_not_fenced_when_complete_is_lost() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended = desk.commit_new(producer)
    desk.is_committing = False
    desk.mark_all()
    assert ended.answer == told(raised(producer))  # Complete is not waited for
    desk.restart(losing=1)
    desk.commit()
    assert desk.state == "PrepareCommit"
    assert code_of_end(desk, raised(producer)) is WAIT
    added = desk.add(raised(producer), B, is_new_protocol=True)
    desk.mark_all()
    desk.commit()
    assert added.answer == [NONE]
    assert desk.state == "Ongoing"


# A decision is told once, and again.


@story
def an_end_that_is_repeated_is_told_the_same() -> None:
    for is_commit in (True, False):
        for is_new in (True, False):
            desk = Desk()
            producer = desk.begin(A, is_new_protocol=is_new)
            first = desk.end(producer, is_commit, is_new_protocol=is_new)
            early = desk.end(producer, is_commit, is_new_protocol=is_new)
            assert code_of(desk.end(producer, not is_commit, is_new_protocol=is_new)) is WAIT
            desk.mark_all()
            again = desk.end(producer, is_commit, is_new_protocol=is_new)
            desk.restart()
            after = desk.end(producer, is_commit, is_new_protocol=is_new)
            assert first.answer == early.answer == again.answer == after.answer
            assert first.answer == told(raised(producer) if is_new else producer)
            other = desk.end(producer, not is_commit, is_new_protocol=is_new)
            assert code_of(other) is ErrorCode.invalid_txn_state


@story
def an_answer_does_not_know_what_came_after_it() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended = desk.commit_new(producer)
    desk.is_committing = False
    desk.mark_all()
    successor = desk.init()
    desk.commit()
    assert ended.answer.identity == raised(producer)
    assert successor.answer == told(raised(producer, 2))


@story
def an_end_is_told_when_the_markers_are_there() -> None:
    desk = Desk()
    producer = desk.begin(A, B)
    ended = desk.commit_new(producer)
    assert not ended.answers
    markers = desk.sender.sent[0]
    desk.mark(markers, A)
    assert not ended.answers
    desk.mark(markers, B)
    assert ended.answer == told(raised(producer))


@story
def an_end_waits_for_markers_for_a_second_at_most() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended, repeated = desk.commit_new(producer), desk.commit_new(producer)
    early = desk.add(raised(producer), B, is_new_protocol=True)
    desk.tick(999)
    assert not ended.answers
    desk.tick(1)
    assert ended.answer == repeated.answer == told(raised(producer))
    assert code_of(early) is WAIT
    assert desk.commit_new(producer).answer == told(raised(producer))
    assert code_of(desk.add(raised(producer), B, is_new_protocol=True)) is WAIT
    assert desk.state == "PrepareCommit"
    desk.mark_all()
    assert desk.state == "CompleteCommit"


# Markers.


@story
def markers_leave_when_the_decision_is_committed() -> None:
    desk = Desk()
    producer = desk.begin(A)
    desk.is_committing = False
    desk.commit_new(producer)
    assert not desk.sender.sent
    desk.commit()
    (markers,) = desk.sender.sent
    assert markers.identity == raised(producer)
    assert (markers.is_commit, markers.partitions) == (True, (A,))


@story
def markers_of_a_loaded_decision_leave_when_it_is_committed() -> None:
    desk = Desk()
    producer = desk.begin(A)
    desk.is_committing = False
    desk.commit_new(producer)
    desk.restart()
    assert desk.state == "PrepareCommit"
    assert not desk.sender.sent
    desk.commit()
    assert [markers.partitions for markers in desk.sender.sent] == [(A,)]
    desk.mark_all()
    assert desk.state == "CompleteCommit"


@story
def a_transaction_is_complete_when_no_marker_is_missing() -> None:
    desk = Desk()
    desk.commit_new(desk.begin(A, B))
    markers = desk.sender.sent[0]
    desk.mark(markers, A)
    desk.mark(markers, A)
    assert desk.state == "PrepareCommit"
    desk.restart()
    assert desk.sender.sent[0] == markers  # both once more: what was written is known to the leaders
    desk.mark(markers, A, B)
    assert desk.state == "CompleteCommit"


@story
def a_marker_of_the_transaction_before_is_no_news() -> None:
    desk = Desk()
    producer = desk.begin(A, is_new_protocol=False)
    desk.end(producer)
    (first,) = desk.sender.sent
    desk.mark_all()
    desk.add(producer, A)
    desk.end(producer)
    desk.mark(first)
    assert desk.state == "PrepareCommit"
    desk.restart()
    desk.mark(first)
    assert desk.state == "PrepareCommit"
    desk.mark_all()
    assert desk.state == "CompleteCommit"


# What meets a prepared transaction.


@story
def nothing_is_added_to_a_transaction_that_has_ended() -> None:
    for is_new in (True, False):
        desk = Desk()
        producer = desk.begin(A, is_new_protocol=is_new)
        desk.end(producer, is_new_protocol=is_new)
        current = desk.found().identity
        waits = desk.add(current, B, is_new_protocol=is_new)
        other = desk.add(raised(current), B, is_new_protocol=is_new)
        assert desk.found().partitions == {A}
        assert code_of(other) is WAIT
        desk.tick(1_000)
        assert code_of(waits) is WAIT
        assert code_of(desk.add(current, B, is_new_protocol=is_new)) is WAIT
        assert desk.found().partitions == {A}


@story
def what_comes_early_is_added_when_the_markers_are_there() -> None:
    desk = Desk()
    producer = desk.begin(A)
    desk.commit_new(producer)
    first = desk.add(raised(producer), A, is_new_protocol=True)
    second = desk.add(raised(producer), B, is_new_protocol=True)
    assert not first.answers
    desk.is_committing = False
    desk.mark_all()
    assert not first.answers  # it reflects what is not committed
    desk.commit()
    assert first.answer == second.answer == [NONE]
    assert (desk.state, desk.found().partitions) == ("Ongoing", frozenset({A, B}))


# Instances of a producer.


@story
def a_new_instance_waits_until_the_open_transaction_is_aborted() -> None:
    desk = Desk()
    producer = desk.begin(A)
    assert code_of(desk.init()) is WAIT
    assert desk.state == "PrepareAbort"
    assert code_of(desk.init()) is WAIT
    desk.mark_all()
    assert desk.init().answer == told(raised(producer, 2))


@story
def an_old_instance_does_not_touch_an_open_transaction() -> None:
    desk = Desk()
    producer = desk.producer()
    current = desk.init(producer).answer.identity
    desk.add(current, A, is_new_protocol=True)
    for other in (producer, raised(current), Identity(current.producer_id + 7, 0)):
        assert code_of(desk.init(other)) is FENCED
        assert desk.state == "Ongoing"
    assert code_of(desk.init(producer, knows_fencing=False)) is ErrorCode.invalid_producer_epoch
    ended = desk.commit_new(current)
    desk.mark_all()
    assert ended.answer == told(raised(current))


@story
def a_repeated_init_is_told_the_same_after_a_restart() -> None:
    desk = Desk()
    producer = desk.producer()
    first = desk.init(producer).answer
    desk.restart()
    assert desk.init(producer).answer == first == told(raised(producer))
    desk.init()
    assert code_of(desk.init(producer)) is FENCED


# Time.


@story
def a_timeout_does_not_change_an_outcome() -> None:
    desk = Desk()
    producer = desk.begin(A)
    desk.tick(59_999)
    desk.commit_new(producer)
    desk.tick(120_000)
    assert desk.state == "PrepareCommit"
    desk.mark_all()
    assert desk.state == "CompleteCommit"


@story
def a_timeout_is_counted_from_the_start_of_its_own_transaction() -> None:
    desk = Desk()
    producer = desk.begin(A, is_new_protocol=False)
    desk.tick(59_000)
    desk.end(producer)
    desk.mark_all()
    desk.add(producer, A)
    desk.tick(59_000)
    assert desk.state == "Ongoing"
    desk.restart()  # goes on counting
    desk.tick(999)
    assert desk.state == "Ongoing"
    desk.tick(1)
    assert desk.state == "PrepareAbort"
    assert desk.sender.sent[-1].identity == raised(producer)
    desk.mark_all()
    assert code_of(desk.end(producer)) is FENCED


@story
def an_open_transaction_does_not_expire() -> None:
    desk = Desk()
    desk.settings.values["transaction.max.timeout.ms"] = 2**31 - 1
    desk.settings.values["transactional.id.expiration.ms"] = 1_000
    idle = desk.producer(tid="idle")
    producer = desk.producer(timeout_ms=2**31 - 1)
    desk.add(producer, A)
    prepared = desk.producer(tid="prepared")
    desk.add(prepared, A, tid="prepared")
    desk.end(prepared, tid="prepared")
    desk.tick(3_600_000)
    assert set(desk.coordinator.transactions) == {"t", "prepared"}
    assert desk.described("idle") is None
    assert desk.coordinator.of_producer(idle.producer_id) is None
    desk.restart()
    assert set(desk.coordinator.transactions) == {"t", "prepared"}
    following = desk.producer(tid="idle")
    assert (following.producer_id > idle.producer_id, following.epoch) == (True, 0)


@story
def a_marker_from_before_an_id_expired_is_no_news() -> None:
    desk = Desk()
    desk.settings.values["transactional.id.expiration.ms"] = 1_000
    desk.commit_new(desk.begin(A))
    before = desk.sender.sent[-1]
    desk.mark_all()
    desk.tick(3_600_000)
    assert desk.described() is None
    desk.commit_new(desk.begin(A))
    assert desk.sender.sent[-1].number == before.number  # the count begins again
    desk.mark(before)  # sent twice, and late
    assert desk.state == "PrepareCommit"
    desk.mark_all()
    assert desk.state == "CompleteCommit"


# What cannot be kept.


@story
def a_decision_that_cannot_be_kept_is_undone() -> None:
    desk = Desk()
    producer = desk.begin(A)
    before = desk.found()
    desk.is_refusing = True
    ended = desk.commit_new(producer)
    assert ended.answer == ProducerAnswer(ErrorCode.coordinator_not_available)
    assert (desk.found(), desk.sender.sent) == (before, [])
    assert desk.add(producer, B).answers == [ErrorCode.coordinator_not_available]
    desk.is_refusing = False
    again = desk.commit_new(producer)
    desk.mark_all()
    assert again.answer == told(raised(producer))


@story
def a_transaction_completes_later_if_that_could_not_be_kept() -> None:
    desk = Desk()
    producer = desk.begin(A)
    ended = desk.commit_new(producer)
    early = desk.add(raised(producer), B, is_new_protocol=True)
    desk.is_refusing = True
    desk.mark_all()
    assert ended.answer == told(raised(producer))  # the decision and the markers are committed
    assert early.answers == [ErrorCode.coordinator_not_available]
    desk.tick(2_500)
    assert desk.state == "PrepareCommit"
    repeated = desk.commit_new(producer)
    desk.is_refusing = False
    desk.tick(1_000)
    assert desk.state == "CompleteCommit"
    assert repeated.answer == told(raised(producer))


@story
def a_timeout_that_cannot_be_kept_comes_again_later() -> None:
    desk = Desk()
    desk.begin(A)
    desk.is_refusing = True
    desk.tick(62_500)  # and does not spin
    assert desk.state == "Ongoing"
    desk.is_refusing = False
    desk.tick(1_000)
    assert desk.state == "PrepareAbort"


if __name__ == "__main__":
    try:
        STORIES[sys.argv[1]]()
    except AssertionError as failure:
        print(f"{sys.argv[1]}: {failure!r}")
        sys.exit(FOUND)
