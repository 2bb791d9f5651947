"""Batches and offsets that wait for the coordinator of their transaction, over the wire.

**Invariant:** what waits is answered, or makes room for what comes behind it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.harness import FIND_COORDINATOR, PRODUCE, Harness, batch_of, new_client, seconds
from tests.wire.requests import produce_values
from tidelog.protocol.errors import ErrorCode

INIT, END = 22, 26
ID = "payments"
Producer = tuple[int, int]  # its id and epoch


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Its coordinator's decisions are committed when they are on disk."""
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1", log_flush_interval_messages="1")
    harness.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=(ID,))
    harness.create_topic("t")
    harness.create_topic("u")
    return harness


def init(harness: Harness) -> Producer:
    answer = harness.ask(
        INIT,
        5,
        transactional_id=ID,
        transaction_timeout=seconds(60),
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch


def produce_sent(harness: Harness, producer: Producer, sequence: int = 0, topic: str = "t") -> None:
    batch = batch_of(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    harness.send(PRODUCE, 12, **produce_values(harness, 12, {topic: [(0, batch)]}, transactional_id=ID))
    harness.broker.transacting.write()
    harness.settle()


def produced(harness: Harness) -> ErrorCode:
    code: ErrorCode = harness.answer(PRODUCE, 12).responses[0].partition_responses[0].error_code
    return code


def end_sent(harness: Harness, producer: Producer, is_commit: bool = True) -> None:
    harness.send(
        END, 5, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
    )


def close(harness: Harness) -> None:
    harness.broker.waiting.drop(harness.connection)
    harness.client = new_client()


def test_a_batch_whose_client_has_gone_does_not_stop_the_next_instance(harness: Harness) -> None:
    """The question for it waits in the coordinator, behind the markers of the transaction before."""
    producer = init(harness)
    produce_sent(harness, producer)
    assert produced(harness) == 0
    harness.holds_flushes = True
    end_sent(harness, producer)
    produce_sent(harness, (producer[0], producer[1] + 1), topic="u")
    close(harness)
    harness.release_flushes()
    again = init(harness)
    assert again[0] == producer[0]
    produce_sent(harness, again, topic="u")
    assert produced(harness) == 0
    assert harness.broker.transacting.verifying.held_size == 0


def test_a_batch_whose_client_has_gone_leaves_when_its_coordinator_cannot_write(harness: Harness) -> None:
    producer = init(harness)
    harness.holds_flushes = True
    produce_sent(harness, producer)
    close(harness)
    harness.advance(100)
    assert harness.broker.transacting.verifying.held_size == 0
    produce_sent(harness, producer)
    harness.release_flushes()
    assert produced(harness) == 0
