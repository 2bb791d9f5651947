"""All transactional ids of a partition: what is stored is what they are."""

from __future__ import annotations

import pytest

from tests.transactions.desk import Desk
from tidelog.base.decision import Entry
from tidelog.base.limits import TRANSACTIONS_PER_PIECE
from tidelog.protocol.errors import CorruptBatch
from tidelog.transactions.records import transaction_key
from tidelog.transactions.state import Transactions, tombstone
from tidelog.transactions.transaction import State, Transaction


def test_what_is_stored_is_one_record_for_each_id() -> None:
    desk = Desk()
    for index in range(TRANSACTIONS_PER_PIECE + 1):
        desk.producer(tid=f"id-{index}")
    producer = desk.begin(("a", 0), ("b", 1))
    desk.commit_new(producer)
    pieces = list(desk.coordinator.stored())
    assert [len(piece) for piece in pieces] == [TRANSACTIONS_PER_PIECE, 2]
    assert desk.coordinator.record_count == TRANSACTIONS_PER_PIECE + 2
    again = Transactions()
    for piece in pieces:
        for entry in piece:
            again.replay(Entry(entry.key, entry.value))
    assert again.transactions == desk.coordinator.transactions
    assert again.transactions["t"].partitions == {("a", 0), ("b", 1)}
    assert again.transactions["t"].state is State.PREPARE_COMMIT


def test_what_changes_between_two_pieces_is_stored_as_it_is_then() -> None:
    desk = Desk()
    for index in range(TRANSACTIONS_PER_PIECE + 2):
        desk.producer(tid=f"id-{index}")
    pieces = desk.coordinator.stored()
    next(pieces)
    gone, changed = f"id-{TRANSACTIONS_PER_PIECE}", f"id-{TRANSACTIONS_PER_PIECE + 1}"
    desk.run(lambda turn: turn.forget(gone))
    desk.producer(tid=changed)
    (rest,) = pieces
    assert [entry.fact for entry in rest] == [desk.found(changed)]


def test_an_id_is_found_by_the_producer_id_that_it_has_now() -> None:
    state = Transactions()
    first = Transaction.new("t", 7, 60_000, 0)
    desk = Desk()
    desk.run(lambda turn: turn.decide(first))
    (entry,) = desk.journal
    state.replay(entry)
    assert state.of_producer(7) == first
    assert state.of_producer(8) is None
    desk.run(lambda turn: turn.decide(first._replace(producer_id=8)))
    state.replay(desk.journal[-1])
    assert (state.of_producer(7), state.of_producer(8)) == (None, state.transactions["t"])
    state.replay(tombstone("t"))
    assert state.of_producer(8) is None
    assert state.transactions == {}


@pytest.mark.parametrize(
    "entry",
    [Entry(b"\x00\x01\x00\x01t", b""), Entry(transaction_key("t"), b"\x00\x05"), Entry(b"", None)],
    ids=["key version", "value version", "no key"],
)
def test_a_record_that_is_not_known_changes_nothing(entry: Entry) -> None:
    state = Transactions()
    with pytest.raises(CorruptBatch):
        state.replay(entry)
    assert state.transactions == {}
