"""Transactional producers, each one transaction after the other, and the same producers without transactions.

By the protocol of `transaction.version=2`: the first batch adds its partition, EndTxn answers with the epoch
of the next transaction. The first batch of a transaction goes alone, the others up to five at a time. A
transaction ends when its time is over and all its batches are acknowledged.

**Invariant:** what was told as committed is in the log, and a marker for each transaction; nothing else is.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from crc32c import crc32c
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i8, i16

from bench.arena import Sample, Topic, timed
from bench.load.admin import TIMEOUT_SECONDS, Admin, Refused, milliseconds, receive_exactly
from bench.load.batches import HEADER, Batch, uvarint
from bench.load.frames import ACKS_ALL, TIMEOUT_MS, compact_string, produce_layout, whole_frame
from bench.load.pipeline import BadAnswer, Span

PRODUCE, END_TXN = 0, 26
PRODUCE_VERSION, END_VERSION = 12, 5
IN_FLIGHT = 5
TRANSACTIONAL = 0x10
TIMEOUT_OF_TRANSACTION_MS = 60_000
RETRY_SECONDS = 0.002
CONCURRENT = int(ErrorCode.concurrent_transactions)
EARLY = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
)
_ATTRIBUTES_POSITION, _CRC_POSITION, _CRC_FROM, _PRODUCER_POSITION = 21, 17, 21, 43
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_ENDED = struct.Struct(">ihqh")  # throttle time, error, producer id, epoch
_ENDED_POSITION = 4 + 4 + 1


@dataclass(frozen=True)
class Load:
    """What each producer does: batches for so long, or one only; `None` is without transactions."""

    batch: Batch
    transaction_ms: float | None
    is_single: bool = False  # one batch for each transaction


class Producer:
    """One transactional id, its connection and its partition."""

    def __init__(self, topic: Topic, name: str, partition: int, load: Load) -> None:
        self._name = name
        self._load = load
        self._is_transactional = load.transaction_ms is not None
        self.socket = socket.create_connection(topic.address, TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._producer_id, self._epoch = _init(topic, name if self._is_transactional else None)
        self._sequence = 0
        self._frame, self._batch_position = self._build(topic.name, partition)
        self._error_position = produce_layout(topic.name).error_position
        self._under_way = 0
        self._is_open = False  # its first batch is acknowledged
        self._ends_at = 0.0
        self.acknowledged_count = self.committed_count = self.transaction_count = 0
        self.is_stopping = False
        self.is_over = False

    def _build(self, topic: str, partition: int) -> tuple[bytearray, int]:
        batch = bytearray(self._load.batch.content)
        if self._is_transactional:
            batch[_ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL
        named = compact_string(self._name) if self._is_transactional else b"\x00"
        body = named + struct.pack(">hi", ACKS_ALL, TIMEOUT_MS)
        body += b"\x02" + compact_string(topic) + b"\x02" + struct.pack(">i", partition)
        body += uvarint(len(batch) + 1) + batch + b"\x00\x00\x00"
        frame = bytearray(whole_frame(PRODUCE, PRODUCE_VERSION, PRODUCE, body))
        return frame, len(frame) - 3 - len(batch)

    # One transaction after the other.

    def begin(self) -> None:
        self._is_open = not self._is_transactional
        self._ends_at = time.perf_counter() + (self._load.transaction_ms or 0.0) / 1_000
        self._send_batch()
        if not self._is_transactional:
            self._fill()

    def _fill(self) -> None:
        while self._under_way < IN_FLIGHT:
            self._send_batch()

    def _send_batch(self) -> None:
        frame, start = self._frame, self._batch_position
        _PRODUCER.pack_into(frame, start + _PRODUCER_POSITION, self._producer_id, self._epoch, self._sequence)
        checksum = crc32c(memoryview(frame)[start + _CRC_FROM : -3])
        frame[start + _CRC_POSITION : start + _CRC_FROM] = checksum.to_bytes(4, "big")
        self.socket.sendall(frame)
        self._under_way += 1
        self._sequence += self._load.batch.record_count

    def on_readable(self) -> None:
        answer = self._receive()
        if int.from_bytes(answer[4:8], "big") == PRODUCE:
            self._on_produced(answer)
        else:
            self._on_ended(answer)

    def _receive(self) -> bytes:
        size = receive_exactly(self.socket, 4)
        return size + receive_exactly(self.socket, int.from_bytes(size, "big"))

    def _on_produced(self, answer: bytes) -> None:
        self._under_way -= 1
        code = int.from_bytes(answer[self._error_position : self._error_position + 2], "big")
        if code == CONCURRENT and not self._is_open:  # the markers of the last transaction are on their way
            self._sequence -= self._load.batch.record_count
            time.sleep(RETRY_SECONDS)
            self._send_batch()
            return
        if code:
            raise BadAnswer(f"a batch was refused: {ErrorCode(code).name}")
        self._is_open = True
        self.acknowledged_count += self._load.batch.record_count
        if self._is_transactional:
            is_over = self._load.is_single or time.perf_counter() >= self._ends_at
        else:
            is_over = self.is_stopping
        if not is_over:
            self._fill()
        elif not self._under_way:
            self._end()

    def _end(self) -> None:
        if not self._is_transactional:
            self.committed_count = self.acknowledged_count
            self.is_over = True
            return
        body = compact_string(self._name) + struct.pack(">qh?", self._producer_id, self._epoch, True) + b"\0"
        self.socket.sendall(whole_frame(END_TXN, END_VERSION, END_TXN, body))

    def _on_ended(self, answer: bytes) -> None:
        _, code, producer_id, epoch = _ENDED.unpack_from(answer, _ENDED_POSITION)
        if code == CONCURRENT:
            time.sleep(RETRY_SECONDS)
            self._end()
            return
        if code:
            raise BadAnswer(f"EndTxn was refused: {ErrorCode(code).name}")
        self._producer_id, self._epoch, self._sequence = producer_id, epoch, 0
        self.transaction_count += 1
        self.committed_count = self.acknowledged_count
        self.is_over = self.is_stopping
        if not self.is_over:
            self.begin()


def _init(topic: Topic, name: str | None) -> tuple[int, int]:
    """A producer id and its epoch, as soon as there is a coordinator."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with Admin(*topic.address) as admin:
        while True:
            code = ErrorCode.none
            if name is not None:
                find = FindCoordinatorRequest(key_type=i8(1), coordinator_keys=(name,))
                code = admin.call(find, FindCoordinatorResponse).coordinators[0].error_code
            if code is ErrorCode.none:
                asked = InitProducerIdRequest(
                    transactional_id=None if name is None else TransactionalId(name),
                    transaction_timeout=milliseconds(TIMEOUT_OF_TRANSACTION_MS),
                    producer_id=ProducerId(-1),
                    producer_epoch=i16(-1),
                )
                answer = admin.call(asked, InitProducerIdResponse)
                if answer.error_code is ErrorCode.none:
                    return answer.producer_id, answer.producer_epoch
                code = answer.error_code
            if code not in EARLY or time.monotonic() > deadline:
                raise Refused(f"no producer id for {name}: {code.name}")
            time.sleep(0.02)


def transact(topic: Topic, load: Load, producer_count: int, seconds: float) -> Sample:
    """Committed records per second. Each producer has an id, a connection and a partition of its own."""
    before = topic.end_offset()
    with ExitStack() as open_sockets:
        producers = []
        for number in range(producer_count):
            producer = Producer(topic, f"{topic.name}-{number}", number, load)
            open_sockets.callback(producer.socket.close)
            producers.append(producer)
        sample = timed(topic.broker, lambda: _run(producers, seconds), 1)
    _check_kept(topic, before, producers)
    return sample


def _run(producers: Sequence[Producer], seconds: float) -> Span:
    started, cpu = time.perf_counter(), time.process_time()
    with selectors.DefaultSelector() as selector:
        for producer in producers:
            selector.register(producer.socket, selectors.EVENT_READ, producer)
            producer.begin()
        left = len(producers)
        while left:
            for key, _ in selector.select():
                key.data.is_stopping = time.perf_counter() - started >= seconds
                key.data.on_readable()
                if key.data.is_over:
                    selector.unregister(key.data.socket)
                    left -= 1
    committed = sum(producer.committed_count for producer in producers)
    return Span(committed, time.perf_counter() - started, time.process_time() - cpu)


def _check_kept(topic: Topic, before: int, producers: Sequence[Producer]) -> None:
    """Markers have an offset as well. Kafka writes the last ones after it has answered."""
    committed = sum(producer.committed_count for producer in producers)
    wanted = committed + sum(producer.transaction_count for producer in producers)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while topic.end_offset() - before < wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    kept = topic.end_offset() - before
    if kept != wanted:
        raise BadAnswer(f"{topic.broker.name} has {kept} offsets of {wanted} committed records and markers")


assert HEADER.size > _PRODUCER_POSITION + _PRODUCER.size
