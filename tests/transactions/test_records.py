"""The records of `__transaction_state`: bytes that Kafka wrote, round trips, bytes that are no records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transactions.seen import COMPLETE, EMPTY, NEW_SEEN, OLD_SEEN, ONGOING, SEEN_ID, SEEN_KEY, Seen
from tidelog.protocol.errors import CorruptBatch
from tidelog.transactions.records import read_key, read_value, transaction_key, transaction_value
from tidelog.transactions.transaction import State, Transaction

INT16, INT32 = st.integers(0, 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ID, TEXT = st.integers(0, 2**63 - 1), st.text(max_size=20)
PARTITIONS = st.frozensets(st.tuples(TEXT, INT32), max_size=8)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(State))
    return Transaction(
        draw(TEXT),
        draw(ID),
        draw(INT16),
        state,
        draw(INT32),
        draw(PARTITIONS) if state is not State.EMPTY else frozenset(),
        draw(INT64),
        draw(INT64),
        previous_producer_id=draw(INT64),
        next_producer_id=draw(INT64),
        last_epoch=draw(st.integers(-(2**15), 2**15 - 1)),
        client_version=draw(st.integers(0, 2)),
        number=draw(INT64),
    )


def named(seen: Seen) -> str:
    return seen.name


@pytest.mark.parametrize("seen", OLD_SEEN + NEW_SEEN, ids=named)
def test_what_kafka_wrote_is_read(seen: Seen) -> None:
    assert read_value(SEEN_ID, seen.value) == seen.says


@pytest.mark.parametrize("seen", NEW_SEEN, ids=named)
def test_what_we_write_has_the_bytes_of_kafka(seen: Seen) -> None:
    ordered = transaction_value(seen.says)
    if seen.says == ONGOING:  # topics stand in no order there, and in theirs here
        assert sorted(ordered) == sorted(seen.value)
    else:
        assert ordered == seen.value


def test_a_key_has_the_bytes_of_kafka() -> None:
    assert transaction_key(SEEN_ID) == SEEN_KEY
    assert read_key(SEEN_KEY) == SEEN_ID


@given(transactions())
def test_a_transaction_is_read_as_it_was_written(transaction: Transaction) -> None:
    assert read_key(transaction_key(transaction.transactional_id)) == transaction.transactional_id
    assert read_value(transaction.transactional_id, transaction_value(transaction)) == transaction


@given(transactions())
def test_the_order_of_partitions_does_not_change_the_bytes(transaction: Transaction) -> None:
    turned = transaction._replace(partitions=frozenset(sorted(transaction.partitions, reverse=True)))
    assert transaction_value(turned) == transaction_value(transaction)


def test_the_epoch_before_a_raise_is_kept_where_kafka_forgets_it() -> None:
    raised = EMPTY._replace(last_epoch=6)
    assert read_value(SEEN_ID, transaction_value(raised)) == raised
    # Of an end that raised the epoch the record says it without a field of ours.
    assert transaction_value(EMPTY) == NEW_SEEN[0].value


def test_the_number_of_ends_stands_in_a_field_of_ours() -> None:
    numbered = COMPLETE._replace(number=5)
    value = transaction_value(numbered)
    assert value == NEW_SEEN[2].value[:-1] + bytes.fromhex("01 7f 08 0000000000000005")
    assert read_value(SEEN_ID, value) == numbered


def test_the_epoch_for_two_phase_commit_is_let_be() -> None:
    value = NEW_SEEN[2].value[:-1] + bytes.fromhex("01 03 02 0005")
    assert read_value(SEEN_ID, value) == COMPLETE


@pytest.mark.parametrize(
    "key", ["", "00", "0001 0001 61", "ffff", "0000", "0000 0002 61", "0000 ffff", "0000 0001 ff"]
)
def test_a_key_that_is_none_is_corrupt(key: str) -> None:
    with pytest.raises(CorruptBatch):
        read_key(bytes.fromhex(key))


def test_a_value_of_an_unknown_version_or_state_is_corrupt() -> None:
    value = NEW_SEEN[0].value
    for version in (2, -1, 300):
        with pytest.raises(CorruptBatch, match="version"):
            read_value(SEEN_ID, version.to_bytes(2, "big", signed=True) + value[2:])
    for state in (6, 7, 8, 255):  # Dead and PrepareEpochFence are Kafka's, and never written
        with pytest.raises(CorruptBatch, match="state"):
            read_value(SEEN_ID, value[:16] + bytes((state,)) + value[17:])


@pytest.mark.parametrize(
    "tags",
    ["01 00 04 00000000", "01 02 02 0003", "01 02 01 00", "01 7e 01 00", "01 7f 02 0000", "02 00"],
)
def test_a_tagged_field_that_cannot_be_is_corrupt(tags: str) -> None:
    with pytest.raises(CorruptBatch):
        read_value(SEEN_ID, NEW_SEEN[2].value[:-1] + bytes.fromhex(tags))


@pytest.mark.parametrize("seen", OLD_SEEN + NEW_SEEN, ids=named)
def test_a_value_that_ends_early_is_corrupt(seen: Seen) -> None:
    for size in range(len(seen.value)):
        with pytest.raises(CorruptBatch):
            read_value(SEEN_ID, seen.value[:size])


@given(st.sampled_from(OLD_SEEN + NEW_SEEN), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_value_is_read_or_corrupt(seen: Seen, position: int, byte: int) -> None:
    damaged = bytearray(seen.value)
    damaged[position % len(damaged)] = byte
    try:
        assert read_value(SEEN_ID, bytes(damaged)).transactional_id == SEEN_ID
    except CorruptBatch:
        pass


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_corrupt(content: bytes) -> None:
    for read in (read_key, lambda value: read_value("t", value)):
        try:
            read(content)
        except CorruptBatch:
            pass
