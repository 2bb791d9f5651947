"""Batches and offsets that wait for the coordinator of their transaction, over the wire.

**Invariant:** what waits is answered, or makes room for what comes behind it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.group_requests import GROUP, serve_groups
from tests.wire.harness import FIND_COORDINATOR, PRODUCE, Harness, batch_of, new_client, parts, seconds
from tests.wire.requests import produce_values
from tidelog.broker.data_plane.verifying import Verifying
from tidelog.protocol.errors import ErrorCode

INIT, END, OFFSET_COMMIT = 22, 26, 28
ID = "payments"
Producer = tuple[int, int]  # its id and epoch


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """What its coordinators decide is committed when it is on disk."""
    harness = Harness(
        tmp_path,
        transaction_state_log_num_partitions="1",
        offsets_topic_num_partitions="2",
        log_flush_interval_messages="1",
    )
    serve_groups(harness)
    harness.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=(ID,))
    harness.create_topic("t")
    harness.create_topic("u")
    return harness


def init(harness: Harness, timeout_ms: int = 60_000) -> Producer:
    answer = harness.ask(
        INIT,
        5,
        transactional_id=ID,
        transaction_timeout=seconds(timeout_ms / 1_000),
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


def test_a_batch_is_tried_again_if_the_coordinator_does_not_know_another_ones_topic_yet(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image lags: it adds none of the partitions that it is asked for in one request."""
    producer = init(harness)
    with monkeypatch.context() as patch:
        code = ErrorCode.operation_not_attempted
        patch.setattr(Verifying, "_ask_here", lambda self, question: self._fail([question], code))
        produce_sent(harness, producer)
    assert produced(harness) == ErrorCode.not_enough_replicas
    produce_sent(harness, producer)
    assert produced(harness) == 0


def test_offsets_are_not_written_where_the_transaction_does_not_reach(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has moved to another partition while its old one was added to the transaction."""
    producer = init(harness)
    harness.holds_flushes = True
    part = parts(OFFSET_COMMIT, 5)
    spot = part.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
    )
    harness.send(
        OFFSET_COMMIT,
        5,
        transactional_id=ID,
        group_id=GROUP,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(part.TxnOffsetCommitRequestTopic(name="t", partitions=(spot,)),),
    )
    moves = harness.broker.coordinators._moves
    place = moves.place_of(GROUP, 2)
    monkeypatch.setattr(moves, "place_of", lambda group_id, count: 1 - place)
    harness.release_flushes()
    answer = harness.answer(OFFSET_COMMIT, 5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.not_coordinator
    assert not harness.partition("__consumer_offsets", 1 - place).log.producers.is_open(producer[0])


def test_a_timeout_is_kept_to_the_millisecond(harness: Harness) -> None:
    init(harness, timeout_ms=1_001)
    (shard,) = harness.broker.transacting.coordinators.runtime.loaded()
    assert shard.machine.transactions[ID].timeout_ms == 1_001
