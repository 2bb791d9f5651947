"""Produce.

*Behaviour*: one flat loop over partitions: find, append, note the outcome. acks=0 gets no answer, and a
closed connection if anything failed. acks=1 is answered when the leader's log has the batch, acks=all when
the high watermark has passed it, both after the fsync where `flush.messages` asks for one. Too few replicas
in sync for acks=all: an error before the append, another one if it happens after it (R6). A batch of a
transaction that is not open here is held until its coordinator has answered.

*Versions*: 3 is the first with magic 2; 5 adds the log start offset; 7 allows zstd; 8 adds record errors;
9 is flexible; 10 hints at the leader (KIP-951); 11 knows TRANSACTION_ABORTABLE; 12 adds its partitions to the
transaction (KIP-890); 13 names topics by id.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.limits import BATCH_HEADER_SIZE, GAPS_EXCUSED_MS
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.verifying import FOR_THE_MOMENT
from tidelog.broker.refusals import TRANSIENT, Refusals, is_before, numbers_of
from tidelog.broker.waiting import Parked
from tidelog.cluster.facts import PartitionFacts
from tidelog.handlers.hints import endpoints_for, hint_leader
from tidelog.handlers.names import facts_of, missing_error
from tidelog.handlers.request import Request, Result
from tidelog.log.admission import RefusedRecords
from tidelog.protocol.batch import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC, MAGIC_POSITION, TRANSACTIONAL_BIT
from tidelog.protocol.compression import ZSTD
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode, MalformedRequest, RefusedBatch
from tidelog.protocol.produce import ProducedPartition, ProduceRequest, decode_produce, encode_produce
from tidelog.replication.partition import Partition
from tidelog.transactions.transaction import Identity

ALL = -1
ZSTD_VERSION = 7
HINTS_VERSION = 10
ABORTABLE_VERSION = 11
ADDING_VERSION = 12

Produced = list[tuple[str | bytes, list[ProducedPartition]]]
_STORAGE = int(ErrorCode.kafka_storage_error)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
_OUT_OF_ORDER = int(ErrorCode.out_of_order_sequence_number)
_TOO_FEW = int(ErrorCode.not_enough_replicas)
_TOO_FEW_NOW = int(ErrorCode.not_enough_replicas_after_append)
_FENCED = int(ErrorCode.producer_fenced)
_CONCURRENT = int(ErrorCode.concurrent_transactions)
_ABORTABLE = int(ErrorCode.transaction_abortable)


class Unfinished(NamedTuple):
    """What was appended, and is yet to be flushed or committed before its outcome is told."""

    partition: Partition
    leader_epoch: int
    flushed_offset: int  # that the log must have flushed; -1 for none
    committed_offset: int  # that the high watermark must have reached; -1 for none
    outcome: ProducedPartition


def handle_produce(broker: Broker, request: Request) -> Result:
    produce = decode_produce(request.data, request.position, request.version)
    acks = produce.acks
    produced: Produced = []
    unfinished: list[Unfinished] = []
    held: list[HeldBatch] = []
    has_error = False
    for topic, batches in produce.topics:
        partitions = broker.partitions.of(topic)
        outcomes: list[ProducedPartition] = []
        for index, start, end in batches:
            partition = partitions[index] if partitions and 0 <= index < len(partitions) else None
            outcome = None
            if produce.transactional_id is not None and partition is not None and start >= 0:
                outcome = _maybe_hold(broker, request, produce, topic, partition, start, end, outcomes, held)
            if outcome is None:
                outcome = _append(broker, request, produce, topic, partition, index, start, end, unfinished)
            outcomes.append(outcome)
            has_error = has_error or outcome.error_code != 0
        if outcomes:
            produced.append((topic, outcomes))
    if acks == 0:
        if has_error:
            raise MalformedRequest("a batch sent with acks=0 could not be appended")
        return None
    if unfinished or held:
        deadline_ms = broker.clock.uptime_ms + max(produce.timeout_ms, 0)
        return ParkedProduce(broker, deadline_ms, request, produced, unfinished, held)
    endpoints = endpoints_for(broker, request.client.listener, produced) if has_error else ()
    throttle_time_ms = request.client.throttle_time_ms
    return encode_produce(request.version, request.correlation_id, produced, throttle_time_ms, endpoints)


def _append(
    broker: Broker,
    request: Request,
    produce: ProduceRequest,
    topic: str | bytes,
    partition: Partition | None,
    index: int,
    start: int,
    end: int,
    unfinished: list[Unfinished],
) -> ProducedPartition:
    if partition is None:
        missing, facts = missing_error(broker.image, topic, index), facts_of(broker.image, topic, index)
        return _refused(broker, request, (topic, index), facts, missing, request.data[start:end])
    error = partition.error_code or _refuse(partition, request, produce, start, end)
    if not error and request.client.refusals is not None:
        error = _excuse(broker, request, partition, (topic, index), request.data[start:end])
    if error:
        partition.counters.note_refused()
        return _refused(broker, request, (topic, index), partition, error, request.data[start:end])
    try:
        appended = partition.append(request.data, start, end, broker.clock.now_ms)
    except RefusedBatch as refusal:
        partition.counters.note_refused()
        if refusal.code == _OUT_OF_ORDER and _may_come_yet(broker, partition, request.data[start:end]):
            return _refused(broker, request, (topic, index), partition, _NOT_LEADER, request.data[start:end])
        if refusal.code == _CONCURRENT:
            told = _told(_CONCURRENT, request.version)
            return _refused(broker, request, (topic, index), partition, told, request.data[start:end])
        errors = refusal.record_errors if isinstance(refusal, RefusedRecords) else None
        start_offset = partition.log.start_offset
        return ProducedPartition(index, refusal.code, -1, -1, start_offset, errors, refusal.reason)
    except OSError as failure:
        partition.counters.note_refused()
        broker.disks.fail(partition.directory, failure)
        return _refused(broker, request, (topic, index), partition, _STORAGE, request.data[start:end])
    outcome = ProducedPartition(
        index, 0, appended.base_offset, appended.append_time_ms, partition.log.start_offset
    )
    flushed_offset = committed_offset = -1
    if partition.is_flush_wanted or appended.is_duplicate:
        if produce.acks != 0 and partition.must_wait_for_flush(appended):
            flushed_offset = appended.end_offset
        broker.flushing.maybe_begin(partition)
    if produce.acks == ALL and partition.high_watermark < appended.end_offset:
        committed_offset = appended.end_offset
    if flushed_offset >= 0 or committed_offset >= 0:
        epoch = partition.leader_epoch
        unfinished.append(Unfinished(partition, epoch, flushed_offset, committed_offset, outcome))
    broker.waiting.on_moved(partition)
    return outcome


def _refused(
    broker: Broker,
    request: Request,
    key: tuple[str | bytes, int],
    leader: Partition | PartitionFacts | None,
    error: int,
    batch: memoryview,
) -> ProducedPartition:
    """The outcome of a batch that was not appended; one that may be sent again is remembered."""
    outcome = ProducedPartition(key[1], error)
    hint_leader(outcome, leader, request.version >= HINTS_VERSION)
    if error in TRANSIENT and (numbers := numbers_of(batch)) is not None:
        refusals = request.client.refusals = request.client.refusals or Refusals()
        refusals.note(key, numbers, error, broker.clock.uptime_ms)
    return outcome


def _excuse(
    broker: Broker, request: Request, partition: Partition, key: tuple[str | bytes, int], batch: memoryview
) -> int:
    """Why a batch is refused that is out of order for the lack of one that was refused; 0 if it is not."""
    refusals, numbers = request.client.refusals, numbers_of(batch)
    if refusals is None or numbers is None:
        return 0
    if refusals.are_over(broker.clock.uptime_ms):
        request.client.refusals = None  # so that nobody looks for them any more
        return 0
    expected = partition.log.producers.expected_sequence(numbers.producer_id, numbers.epoch)
    if expected == numbers.sequence:
        return 0
    return refusals.excuse(key, numbers, expected, broker.clock.uptime_ms)


def _may_come_yet(broker: Broker, partition: Partition, batch: memoryview) -> bool:
    """Whether what is missing in front of a batch may be with the leader before this one, or on its way back
    from there."""
    leadership, numbers = partition.leadership, numbers_of(batch)
    if leadership is None or not leadership.followers or numbers is None:
        return False
    expected = partition.log.producers.expected_sequence(numbers.producer_id, numbers.epoch)
    is_ahead = expected is not None and is_before(expected, numbers.sequence)
    return is_ahead and broker.clock.uptime_ms - leadership.began_ms <= GAPS_EXCUSED_MS


def _refuse(partition: Partition, request: Request, produce: ProduceRequest, start: int, end: int) -> int:
    """What is wrong with a batch before its bytes are looked at in full; 0 if nothing is."""
    acks = produce.acks
    if acks not in (ALL, 0, 1):
        return ErrorCode.invalid_required_acks
    if partition.is_internal:  # what a journal has, its state machine has decided
        return ErrorCode.invalid_topic_exception
    if acks == ALL and partition.is_under_minimum:
        return _TOO_FEW
    if start < 0:
        return ErrorCode.invalid_record
    if end - start > ATTRIBUTES_POSITION + 2 and request.data[start + MAGIC_POSITION] == MAGIC:
        attributes = request.data[start + ATTRIBUTES_POSITION + 1]
        if attributes & TRANSACTIONAL_BIT:
            if produce.transactional_id is None:
                return ErrorCode.transactional_id_authorization_failed
            if not acks:  # nobody would hear that the transaction has no such batch
                return ErrorCode.invalid_required_acks
        if attributes & CODEC_MASK == ZSTD and request.version < ZSTD_VERSION:
            return ErrorCode.unsupported_compression_type
    return 0


def _maybe_hold(
    broker: Broker,
    request: Request,
    produce: ProduceRequest,
    topic: str | bytes,
    partition: Partition,
    start: int,
    end: int,
    outcomes: list[ProducedPartition],
    held: list[HeldBatch],
) -> ProducedPartition | None:
    """Hold a batch whose transaction is not open here, or is not known to be this one; None if it needs no
    coordinator, or is refused without one."""
    batch = request.data[start:end]
    numbers = numbers_of(batch)
    if numbers is None or len(batch) < BATCH_HEADER_SIZE or batch[MAGIC_POSITION] != MAGIC:
        return None
    if not batch[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT or numbers.sequence < 0:
        return None
    producer = Identity(numbers.producer_id, numbers.epoch)
    if partition.error_code or broker.transacting.verifying.passes(partition, producer):
        return None
    if _refuse(partition, request, produce, start, end):
        return None
    asked = HeldBatch(broker, request, produce, (topic, partition.index), partition, batch, outcomes)
    if broker.transacting.verifying.hold(asked):
        held.append(asked)
        return ProducedPartition(partition.index)
    partition.counters.note_refused()
    return _refused(broker, request, asked.key, partition, _TOO_FEW, batch)


class HeldBatch:
    """A batch that waits for the coordinator of its transaction; its copy."""

    __slots__ = (
        "_broker",
        "_copy",
        "_outcomes",
        "_place",
        "_produce",
        "is_added",
        "is_done",
        "key",
        "parked",
        "partition",
        "producer",
        "size",
        "transactional_id",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        produce: ProduceRequest,
        key: tuple[str | bytes, int],
        partition: Partition,
        batch: memoryview,
        outcomes: list[ProducedPartition],
    ) -> None:
        """`outcomes`: where that of the batch comes next."""
        numbers = numbers_of(batch)
        assert numbers is not None and produce.transactional_id is not None
        data = memoryview(bytearray(batch))
        self._broker = broker
        self._produce = produce
        self._copy = Request(
            request.client, request.api_key, request.version, request.correlation_id, data, 0
        )
        self.key = key
        self.partition = partition
        self.producer = Identity(numbers.producer_id, numbers.epoch)
        self.transactional_id = produce.transactional_id
        self.is_added = request.version >= ADDING_VERSION
        self.size = len(batch)
        self._outcomes, self._place = outcomes, len(outcomes)
        self.is_done = False
        self.parked: ParkedProduce | None = None

    @property
    def is_gone(self) -> bool:
        return self.parked is None or self.parked.is_gone

    def run(self) -> int:
        assert self.parked is not None
        batch = self._copy.data
        numbers = numbers_of(batch)
        known = self.partition.log.producers.get(self.producer.producer_id)
        if self.is_added and known is None and numbers is not None and numbers.sequence:
            code = _excuse(self._broker, self._copy, self.partition, self.key, batch) or _OUT_OF_ORDER
            self._end(_refused(self._broker, self._copy, self.key, self.partition, code, batch))
            return code
        outcome = _append(
            self._broker,
            self._copy,
            self._produce,
            self.key[0],
            self.partition,
            self.key[1],
            0,
            self.size,
            self.parked.unfinished,
        )
        self._end(outcome)
        return outcome.error_code

    def refuse(self, code: int) -> None:
        told = _told(code, self._copy.version)
        self.partition.counters.note_refused()
        self._end(_refused(self._broker, self._copy, self.key, self.partition, told, self._copy.data))

    def fail(self, code: int) -> None:
        self.is_done = True
        self._outcomes[self._place] = ProducedPartition(self.partition.index, code)

    def _end(self, outcome: ProducedPartition) -> None:
        self.is_done = True
        self._outcomes[self._place] = outcome
        if self.parked is not None:
            self._broker.waiting.look_at(self.parked)


def _told(code: int, version: int) -> int:
    """The error that a producer gets when its coordinator refuses: what is over soon is like a leader without
    its replicas, which all producers try again."""
    if code == _FENCED:
        return ErrorCode.invalid_producer_epoch
    if code == _ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    if code == _CONCURRENT and version >= ADDING_VERSION:
        return code
    return _TOO_FEW if code in FOR_THE_MOMENT and code != _NOT_LEADER else code


class ParkedProduce(Parked):
    """A produce request that waits for fsyncs, for followers or for the coordinator of its transaction."""

    __slots__ = ("_broker", "_client", "_correlation_id", "_held", "_produced", "_version", "unfinished")

    def __init__(
        self,
        broker: Broker,
        deadline_ms: int,
        request: Request,
        produced: Produced,
        unfinished: list[Unfinished],
        held: list[HeldBatch],
    ) -> None:
        waiting = [each.partition for each in unfinished]
        super().__init__(deadline_ms, waiting + [each.partition for each in held] if held else waiting)
        for each in held:
            each.parked = self
        self._broker = broker
        self._held = held
        self._client = request.client
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._produced = produced
        self.unfinished = unfinished

    def try_finish(self) -> Answer | None:
        waiting: list[Unfinished] = []
        for each in self.unfinished:
            partition, epoch, flushed_offset, committed_offset, outcome = each
            if partition.error_code or partition.leader_epoch != epoch:
                _fail(outcome, partition.error_code or _NOT_LEADER)
            elif partition.high_watermark < committed_offset and partition.is_under_minimum:
                _fail(outcome, _TOO_FEW_NOW)
            elif partition.high_watermark < committed_offset or partition.log.recovery_point < flushed_offset:
                waiting.append(each)
        self.unfinished = waiting
        if self._held:
            self._held = [each for each in self._held if not each.is_done]
        return None if waiting or self._held else self._encode()

    def finish_late(self) -> Answer | None:
        for asked in self._held:
            if not asked.is_done:
                self._broker.transacting.verifying.take_out(asked)
                asked.fail(ErrorCode.request_timed_out)
        for each in self.unfinished:
            _fail(each.outcome, ErrorCode.request_timed_out)
        return self._encode()

    def _encode(self) -> Answer:
        throttle_time_ms = self._client.throttle_time_ms
        return encode_produce(self._version, self._correlation_id, self._produced, throttle_time_ms)


def _fail(outcome: ProducedPartition, error_code: int) -> None:
    outcome.error_code = error_code
    outcome.base_offset = -1
    outcome.log_append_time_ms = -1
