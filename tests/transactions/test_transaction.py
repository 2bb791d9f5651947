"""One transactional id as a value: which transitions there are."""

from __future__ import annotations

import pytest

from tidelog.transactions.transaction import (
    NEW_PROTOCOL,
    NO_IDENTITY,
    NO_PRODUCER_ID,
    OLD_PROTOCOL,
    Identity,
    State,
    Transaction,
)

SPOTS = frozenset({("a", 0)})
NEW = Transaction.new("t", 7, 60_000, 10)
IN_STATE = {
    State.EMPTY: NEW,
    State.ONGOING: NEW.extended(SPOTS, OLD_PROTOCOL, 20),
    **{
        state: NEW.extended(SPOTS, NEW_PROTOCOL, 20)._replace(state=state)
        for state in State
        if state >= State.PREPARE_COMMIT
    },
}
TRANSITIONS = {
    "reopened": lambda found: found.reopened(found.identity, -1, 60_000, 30),
    "extended": lambda found: found.extended(SPOTS, OLD_PROTOCOL, 30),
    "prepared": lambda found: found.prepared(True, 30),
    "prepared_raised": lambda found: found.prepared_raised(True, NO_PRODUCER_ID, 30),
    "aborted_empty": lambda found: found.aborted_empty(NO_PRODUCER_ID, 30),
    "completed": lambda found: found.completed(30),
}
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
ALLOWED = {
    "reopened": IDLE,
    "extended": (*IDLE, State.ONGOING),
    "prepared": (State.ONGOING,),
    "prepared_raised": (State.ONGOING,),
    "aborted_empty": (*IDLE, State.ONGOING),
    "completed": (State.PREPARE_COMMIT, State.PREPARE_ABORT),
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_transition_is_one_of_the_table(name: str, state: State) -> None:
    if state in ALLOWED[name]:
        assert TRANSITIONS[name](IN_STATE[state]).updated_ms == 30
    else:
        with pytest.raises(AssertionError):
            TRANSITIONS[name](IN_STATE[state])


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_outcome_is_kept_to_the_end(is_commit: bool) -> None:
    prepared = IN_STATE[State.ONGOING].prepared(is_commit, 30)
    assert prepared.state.is_commit is prepared.completed(40).state.is_commit is is_commit


def test_a_transaction_has_its_partitions_until_it_is_complete() -> None:
    prepared = IN_STATE[State.ONGOING].prepared_raised(True, NO_PRODUCER_ID, 30)
    assert prepared.partitions == SPOTS
    assert prepared.completed(40).partitions == frozenset()


def test_a_repeat_is_known_by_the_identity_before_the_raise() -> None:
    prepared = IN_STATE[State.ONGOING].prepared_raised(True, NO_PRODUCER_ID, 30)
    assert (prepared.former_identity, prepared.identity) == (Identity(7, 0), Identity(7, 1))
    assert prepared.completed(40).former_identity == Identity(7, 0)
    fresh = prepared.completed(40).reopened(Identity(7, 2), -1, 60_000, 50)
    assert fresh.former_identity == Identity(7, -1)
    assert NEW.former_identity == NO_IDENTITY


def test_states_are_spelled_as_in_the_protocol() -> None:
    assert [state.title for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    ]
