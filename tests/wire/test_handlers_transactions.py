"""Transactions that somebody else ends: what a process that knows the producer alone may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.wire.group_requests import OFFSET_COMMIT, OFFSET_FETCH, fetch_offsets_values, serve_groups
from tests.wire.group_requests import commit_values as plain_commit_values
from tests.wire.harness import (
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    Harness,
    batch_of,
    new_client,
    request_frame,
)
from tests.wire.requests import produce_values
from tests.wire.transaction_requests import (
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    END,
    GROUP,
    ID,
    LIST_TRANSACTIONS,
    add_values,
    commit_values,
    end_values,
    init_values,
    list_values,
)
from tidelog.handlers.table import dispatch
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import Identity

NONE = ErrorCode.none


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return transactional_broker(tmp_path)


def transactional_broker(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="3", offsets_topic_num_partitions="1")
    serve_groups(harness)
    harness.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=(ID,))
    harness.create_topic("t", 2)
    return harness


def ask(harness: Harness, api_key: int, version: int, **values: Any) -> Any:
    """From a connection that has asked for nothing before."""
    harness.client = new_client()
    return harness.ask(api_key, version, **values)


def init(harness: Harness, transactional_id: str = ID) -> Identity:
    answer = ask(harness, INIT_PRODUCER_ID, 5, **init_values(transactional_id))
    assert answer.error_code is NONE
    return Identity(answer.producer_id, answer.producer_epoch)


def produce(harness: Harness, producer: Identity, index: int) -> ErrorCode:
    batch = batch_of(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, transactional=True
    )
    values = produce_values(harness, 12, {"t": [(index, batch)]}, transactional_id=ID)
    harness.client = new_client()
    harness.send(PRODUCE, 12, **values)
    harness.broker.transacting.write()
    harness.settle()
    code: ErrorCode = harness.answer(PRODUCE, 12).responses[0].partition_responses[0].error_code
    return code


def end(harness: Harness, producer: Identity, is_commit: bool, version: int = 5) -> tuple[Any, ...]:
    answer = ask(harness, END, version, **end_values(producer, is_commit))
    return (
        (answer.error_code, answer.producer_id, answer.producer_epoch)
        if version >= 5
        else (answer.error_code,)
    )


def commit(harness: Harness, producer: Identity, offset: int) -> ErrorCode:
    answer = ask(harness, COMMIT_OFFSETS, 5, **commit_values(5, producer, {"t": [(0, offset)]}))
    harness.broker.transacting.write()
    harness.settle()
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(harness: Harness) -> tuple[int, ErrorCode]:
    """With what is pending waited for."""
    values = fetch_offsets_values(harness, 7, (GROUP, {"t": [0]}))
    answer = ask(harness, OFFSET_FETCH, 7, **values | {"require_stable": True})
    row = answer.topics[0].partitions[0]
    return row.committed_offset, row.error_code


def listed(harness: Harness, **values: Any) -> dict[str, str]:
    answer = ask(harness, LIST_TRANSACTIONS, 2, **list_values(**values))
    assert answer.error_code is NONE
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def stable_offsets(harness: Harness) -> list[int]:
    return [harness.partition("t", index).last_stable_offset for index in (0, 1)]


def test_every_request_of_a_transaction_may_come_from_another_connection(harness: Harness) -> None:
    producer = init(harness)
    assert produce(harness, producer, 0) is NONE
    answer = ask(harness, ADD_PARTITIONS, 3, **add_values(3, producer, {"t": [1]}))
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code is NONE
    assert commit(harness, producer, 7) is NONE
    assert committed(harness) == (-1, ErrorCode.unstable_offset_commit)
    assert stable_offsets(harness) == [0, 0]
    following = Identity(producer.producer_id, producer.epoch + 1)
    assert end(harness, producer, True) == (NONE, *following)
    assert committed(harness) == (7, NONE)
    assert stable_offsets(harness) == [2, 1], "both have their marker"


def test_commits_of_one_turn_are_in_the_log_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """One outside of the transaction, then one in it: the second counts when that is committed, for
    the machine that serves and for one that loads."""
    harness = transactional_broker(tmp_path)
    producer = init(harness)
    assert commit(harness, producer, 7) is NONE
    harness.client = new_client()
    plain = plain_commit_values(harness, 8, {"t": [(0, 5)]})
    for api_key, version, values in (
        (OFFSET_COMMIT, 8, plain),
        (COMMIT_OFFSETS, 5, commit_values(5, producer, {"t": [(0, 3)]})),
    ):
        frame = bytearray(request_frame(api_key, version, 1, **values))
        dispatch(harness.broker, harness.client, memoryview(frame))
    harness.broker.transacting.write()
    harness.settle()
    assert committed(harness) == (-1, ErrorCode.unstable_offset_commit)
    assert end(harness, producer, True)[0] is NONE
    assert committed(harness) == (3, NONE)
    harness.start()
    harness.settle()
    assert committed(harness) == (3, NONE)


def test_an_end_is_told_the_same_until_the_next_transaction_begins(harness: Harness) -> None:
    producer = init(harness)
    following = Identity(producer.producer_id, producer.epoch + 1)
    produce(harness, producer, 0)
    first = end(harness, producer, True)
    assert first == (NONE, *following)
    assert end(harness, producer, True) == first
    assert end(harness, producer, False)[0] is ErrorCode.invalid_txn_state
    harness.start()
    harness.settle()
    assert end(harness, producer, True) == first, "also after a restart of the coordinator"
    assert harness.partition("t").log.end_offset == 2, "and nothing was written for it"
    assert produce(harness, following, 0) is NONE
    assert end(harness, producer, True)[0] is ErrorCode.producer_fenced


def test_transactions_are_found_by_state_and_pattern(harness: Harness) -> None:
    producer = init(harness)
    init(harness, "reader-1")
    init(harness, "reader-22")
    produce(harness, producer, 1)
    assert listed(harness) == {ID: "Ongoing", "reader-1": "Empty", "reader-22": "Empty"}
    assert listed(harness, states=["Ongoing"]) == {ID: "Ongoing"}
    assert listed(harness, pattern="reader-.") == {"reader-1": "Empty"}, "the whole id must match"
    assert listed(harness, pattern="reader-.*", states=["Ongoing"]) == {}
    assert listed(harness, producer_ids=[producer.producer_id]) == {ID: "Ongoing"}
    harness.advance(10)
    assert listed(harness, states=["Ongoing"], duration_ms=10) == {}
    assert listed(harness, states=["Ongoing"], duration_ms=9) == {ID: "Ongoing"}
    answer = ask(harness, LIST_TRANSACTIONS, 2, **list_values(pattern="("))
    assert answer.error_code is ErrorCode.invalid_regular_expression


def test_a_description_has_what_an_outsider_needs_to_end_a_transaction(harness: Harness) -> None:
    producer = init(harness)
    produce(harness, producer, 1)
    answer = ask(harness, DESCRIBE_TRANSACTIONS, 0, transactional_ids=(ID, "nobody"))
    found, unknown = answer.transaction_states
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", *producer)
    assert [(topic.topic, tuple(topic.partitions)) for topic in found.topics] == [("t", (1,))]
    assert end(harness, Identity(found.producer_id, found.producer_epoch), False)[0] is NONE
    assert len(harness.partition("t", 1).log.aborted_between(0, 2)) == 1
