"""Batches that wait for the coordinator of their transaction: each rule of `verifying` as a story.

What the coordinator decides is committed when it is on disk: as long as fsyncs are held, so are its answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
    END,
    ID,
    WRITE_MARKERS,
    add_values,
    end_values,
    init_values,
    marker_values,
)
from tidelog.broker.data_plane import verifying as room
from tidelog.broker.data_plane.verifying import Verifying
from tidelog.handlers.table import dispatch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import read_records
from tidelog.transactions.transaction import OLD_PROTOCOL, Identity

NEW, OLD = 12, 11  # versions of Produce: one adds its partition, the other only asks whether it is in
NONE = ErrorCode.none


class Desk:
    """One broker, and producers that send as much as they like before they hear an answer."""

    def __init__(self, folder: Path) -> None:
        self.harness = Harness(
            folder, transaction_state_log_num_partitions="1", log_flush_interval_messages="1"
        )
        self.harness.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=(ID,))
        self.harness.create_topic("t")
        self.harness.create_topic("u")
        self.verifying = self.harness.broker.transacting.verifying

    def init(self, transactional_id: str = ID) -> Identity:
        answer = self.harness.ask(INIT_PRODUCER_ID, 5, **init_values(transactional_id))
        assert answer.error_code == 0, answer
        return Identity(answer.producer_id, answer.producer_epoch)

    def hold_answers(self) -> None:
        """Let the coordinator decide something that is not on disk, so that all it says waits for that."""
        self.harness.holds_flushes = True
        self.harness.send(INIT_PRODUCER_ID, 5, **init_values("another"))
        self.harness.client = new_client()

    def add(self, producer: Identity, topic: str = "t") -> ErrorCode:
        answer = self.harness.ask(ADD_PARTITIONS, 3, **add_values(3, producer, {topic: [0]}))
        code: ErrorCode = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def end(self, producer: Identity, version: int = 5, is_commit: bool = True) -> ErrorCode:
        code: ErrorCode = self.harness.ask(END, version, **end_values(producer, is_commit)).error_code
        return code

    def send(self, producer: Identity, sequence: int = 0, version: int = NEW, topic: str = "t") -> Sent:
        """From a connection of its own."""
        batch = batch_of(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        sent = Sent(self.harness, version)
        values = produce_values(self.harness, version, {topic: [(0, batch)]}, transactional_id=ID)
        self.harness.send(PRODUCE, version, **values)
        self.harness.broker.transacting.write()
        self.harness.settle()
        sent.number = self.harness._correlation_id
        return sent

    def release(self) -> None:
        self.harness.release_flushes()

    def read(self) -> bytes:
        found = self.harness.partition("t").log.read(0, self.end_offset, 10**6)
        assert found is not None
        try:
            return found.read()
        finally:
            found.release()

    @property
    def end_offset(self) -> int:
        return self.harness.partition("t").log.end_offset

    def is_open(self, producer: Identity, topic: str = "t") -> bool:
        return self.harness.partition(topic).log.producers.is_open(producer.producer_id)


class Sent:
    """A batch on its way."""

    def __init__(self, harness: Harness, version: int) -> None:
        self.client = harness.client = new_client()
        self._harness = harness
        self._version = version
        self.number = 0

    @property
    def answer(self) -> Any:
        """None if there is none yet."""
        self._harness.client = self.client
        if not self.client.connection.output:
            return None
        harness, harness._correlation_id = self._harness, self.number
        return harness.answer(PRODUCE, self._version).responses[0].partition_responses[0]

    @property
    def code(self) -> ErrorCode:
        answer = self.answer
        assert answer is not None, "it waits"
        code: ErrorCode = answer.error_code
        return code

    def go(self) -> None:
        """Its connection is closed."""
        self._harness.broker.waiting.drop(self.client.connection)
        self._harness.client = new_client()


# Who is let through.


def test_a_batch_that_comes_after_the_end_does_not_open_a_transaction(tmp_path: Path) -> None:
    """By the old protocol it has the epoch of its producer: nobody would ever end what it opens."""
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.add(producer) is NONE
    assert desk.end(producer, version=4) is NONE
    assert desk.send(producer, version=OLD).code is ErrorCode.transaction_abortable
    assert desk.send(producer, version=10).code is ErrorCode.invalid_txn_state
    assert not desk.is_open(producer)


def test_a_first_batch_that_is_not_the_first_of_its_producer_is_out_of_order(tmp_path: Path) -> None:
    """By the new protocol what was before it is lost, or stands behind it."""
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.send(producer, sequence=1).code is ErrorCode.out_of_order_sequence_number
    assert not desk.is_open(producer)


def test_a_repeat_within_the_transaction_gets_the_offset_of_the_first(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    assert (desk.send(producer).code, desk.send(producer).code) == (NONE, NONE)
    assert desk.end_offset == 1


def test_a_batch_that_waits_outlives_the_buffer_it_came_in(tmp_path: Path) -> None:
    """All connections share it: the next frame stands where this one was."""
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    batch = batch_of(producer_id=producer.producer_id, base_sequence=0, producer_epoch=0, transactional=True)
    values = produce_values(desk.harness, NEW, {"t": [(0, batch)]}, transactional_id=ID)
    frame = bytearray(request_frame(PRODUCE, NEW, 1, **values))
    desk.harness.client = new_client()
    dispatch(desk.harness.broker, desk.harness.client, memoryview(frame))
    desk.harness.broker.transacting.write()
    frame[:] = bytes(len(frame))
    desk.release()
    assert desk.end_offset == 1
    assert [each.value for each in read_records(desk.read())] == [b"value"]


# The queue.


def test_batches_that_wait_are_appended_in_their_order(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    first, second = desk.send(producer), desk.send(producer, sequence=1)
    assert (first.answer, second.answer) == (None, None)
    desk.release()
    assert (first.code, second.code) == (NONE, NONE)
    assert desk.end_offset == 2


def test_another_producer_does_not_wait_behind_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    held = desk.send(producer)
    desk.harness.client = new_client()
    desk.harness.send(PRODUCE, NEW, **produce_values(desk.harness, NEW, {"t": [(0, batch_of())]}, acks=1))
    assert desk.end_offset == 1 and held.answer is None


def test_what_is_refused_for_the_moment_takes_those_behind_it_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, the second would be asked for next, and be appended before the first comes again."""
    desk = Desk(tmp_path)
    producer = desk.init()
    asked: list[Any] = []
    monkeypatch.setattr(Verifying, "_ask_here", lambda self, question: asked.append(question))
    first, second = desk.send(producer), desk.send(producer, sequence=1)
    code = ErrorCode.concurrent_transactions
    desk.verifying.on_answer(asked[0], [code])
    desk.harness.settle()
    assert (first.code, second.code) == (code, code)
    assert not desk.verifying.has_unasked and desk.verifying.held_size == 0


def test_an_answer_is_for_the_batch_that_was_asked_for(tmp_path: Path) -> None:
    """A late batch of the last transaction, whose end was told, stands behind the first of the next one. That
    is not appended, as its client has gone; the answer for it must not let the late one in."""
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.send(producer, topic="u").code is NONE
    assert desk.end(producer) is NONE
    desk.hold_answers()
    following = desk.send(Identity(producer.producer_id, producer.epoch + 1))
    late = desk.send(producer)
    following.go()
    desk.release()
    assert late.code is ErrorCode.invalid_producer_epoch
    assert not desk.is_open(producer)


def test_a_late_batch_that_is_fenced_does_not_fence_those_behind_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.send(producer, topic="u").code is NONE
    assert desk.end(producer) is NONE
    desk.hold_answers()
    late = desk.send(producer)
    following = desk.send(Identity(producer.producer_id, producer.epoch + 1))
    desk.release()
    assert (late.code, following.code) == (ErrorCode.invalid_producer_epoch, NONE)


# What ends the waiting.


def test_an_answer_is_worth_nothing_when_a_marker_has_come_before_it(tmp_path: Path) -> None:
    """The partition was in the transaction when that was asked, and the transaction has ended since."""
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.add(producer) is NONE
    desk.hold_answers()
    late = desk.send(producer, version=OLD)
    desk.harness.client = new_client()
    desk.harness.send(
        WRITE_MARKERS,
        2,
        **marker_values(2, producer, {"t": [0]}, False, coordinator_epoch=99, protocol=OLD_PROTOCOL),
    )
    desk.release()
    assert late.code is ErrorCode.not_enough_replicas, "it comes again, and is asked for again"
    assert not desk.is_open(producer)


def test_a_leader_that_resigns_appends_nothing_of_what_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    held = desk.send(producer)
    desk.verifying.on_resigned(desk.harness.partition("t"))
    desk.release()
    assert held.code is ErrorCode.not_leader_or_follower
    assert desk.end_offset == 0 and desk.verifying.held_size == 0


def test_a_batch_whose_time_is_over_is_not_appended_after_its_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    held = desk.send(producer)
    desk.harness.advance(30_000)
    assert held.code is ErrorCode.request_timed_out
    assert desk.verifying.held_size == 0
    desk.release()
    assert desk.end_offset == 0


def test_no_more_is_kept_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HELD_BYTES_MAX", 1_500)
    desk = Desk(tmp_path)
    producer = desk.init()
    desk.hold_answers()
    first, second = desk.send(producer), desk.send(producer, sequence=1)
    assert (first.answer, second.code) == (None, ErrorCode.not_enough_replicas)
    desk.release()
    assert first.code is NONE


# Markers on the leader.


def test_a_marker_is_told_as_written_when_it_is_committed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    producer = desk.init()
    assert desk.send(producer).code is NONE
    for end_offset in (2, 2):  # the second is a repeat: what it repeats may still be lost
        desk.harness.client = new_client()
        desk.harness.holds_flushes = True
        values = marker_values(2, Identity(producer.producer_id, 1), {"t": [0]}, True, coordinator_epoch=99)
        desk.harness.send(WRITE_MARKERS, 2, **values)
        assert desk.end_offset == end_offset
        assert desk.harness.connection.output == []
    desk.release()
    answer = desk.harness.answer(WRITE_MARKERS, 2)
    assert answer.markers[0].topics[0].partitions[0].error_code is NONE
