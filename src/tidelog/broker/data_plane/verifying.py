"""Batches and offset commits of transactions that are not open here: held until a coordinator has answered.

| the transaction of the producer        | then                                                           |
|----------------------------------------|----------------------------------------------------------------|
| is open here, and nothing is held      | it goes on at once                                             |
| has a later epoch here                 | the same: the log refuses it                                   |
| is not open here, or something is held | held, in order; the first of each queue is asked for           |
| the coordinator agrees                 | the first goes on; each behind it runs as if it had just come  |
| the coordinator refuses for the moment | all are refused: they come again in their order                |
| the coordinator refuses                | the first is refused; those behind it are asked for themselves |
| a marker of the producer arrives       | all are refused for the moment                                 |

The new protocol adds the partition to the transaction, the old one only asks whether it is in it. What is
asked in one moment leaves together: one question for each transaction, one frame for each coordinator.

**Invariant:** an answer lets through the one that was asked for, and nobody else; what was answered or has
left its queue is never carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.base.limits import HELD_BYTES_MAX, HELD_OVERHEAD_SIZE, VERIFY_WAIT_MS
from tidelog.broker.asking import BODY_POSITION, Asking
from tidelog.broker.data_plane.transactions import Transactions
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import VERIFY
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.image import Image
from tidelog.log.producers import NO_OFFSET
from tidelog.protocol.apis import ADD_PARTITIONS_TO_TXN
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.messages import decode_response, encode_request, request_types
from tidelog.replication.partition import Partition
from tidelog.transactions.transaction import Identity
from tidelog.transactions.turn import Add

_VERSION = ADD_PARTITIONS_TO_TXN.newest_version
_CLIENT_ID = "tidelog-transactions"
_NONE = int(ErrorCode.none)
# What a coordinator answers that will be otherwise soon, and what a log does.
FOR_THE_MOMENT = frozenset(
    map(
        int,
        (
            ErrorCode.not_coordinator,
            ErrorCode.coordinator_load_in_progress,
            ErrorCode.coordinator_not_available,
            ErrorCode.concurrent_transactions,
            ErrorCode.not_enough_replicas,
            ErrorCode.not_leader_or_follower,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.operation_not_attempted,  # for one that the coordinator does not know yet
            ErrorCode.kafka_storage_error,
        ),
    )
)


class Held(Protocol):
    """What waits for the coordinator of its transaction."""

    partition: Partition
    producer: Identity
    transactional_id: str
    is_added: bool  # by the new protocol; by the old one the partition is only looked for
    size: int

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for it any more, so that it must not be carried out."""

    def run(self) -> int:
        """Carry it out; the error that it met, or none."""

    def refuse(self, code: int) -> None:
        """End it with what the coordinator has answered, or with what a log would."""


Key = tuple[Partition, int]  # with the producer id


class _Question(NamedTuple):
    """The first of some queues, for one transaction."""

    transactional_id: str
    producer: Identity
    is_added: bool
    firsts: list[Held]

    @property
    def spots(self) -> tuple[tuple[str, int], ...]:
        return tuple((held.partition.topic, held.partition.index) for held in self.firsts)


class _Here:
    """A question that a coordinator of this broker answers."""

    def __init__(self, verifying: Verifying, question: _Question) -> None:
        self._verifying = verifying
        self._question = question

    @property
    def is_gone(self) -> bool:
        return all(held.is_gone for held in self._question.firsts)

    def give(self, answer: Sequence[int]) -> None:
        self._verifying.on_answer(self._question, answer)

    def fail(self, code: int) -> None:
        self._verifying.on_answer(self._question, [code] * len(self._question.firsts))


class Verifying:
    def __init__(self, kernel: Kernel, image: Image, transactions: Transactions) -> None:
        self._node_id = kernel.node_id
        self._image = image
        self._transactions = transactions
        self.asking = Asking(kernel, image, VERIFY, VERIFY_WAIT_MS)
        self._queues: dict[Key, deque[Held]] = {}
        self._unasked: dict[Key, None] = {}  # whose first is to be asked for when the turn ends
        self.held_size = 0

    # What comes.

    def passes(self, partition: Partition, producer: Identity) -> bool:
        """Whether a batch of a transaction needs no coordinator: it goes on, or the log refuses it."""
        if self._queues and (partition, producer.producer_id) in self._queues:
            return False
        return _is_decided(partition, producer)

    def hold(self, held: Held) -> bool:
        """Keep it until its coordinator has answered; False if too much is held already."""
        size = held.size + HELD_OVERHEAD_SIZE
        if self.held_size and self.held_size + size > HELD_BYTES_MAX:
            return False
        key = (held.partition, held.producer.producer_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            self._unasked[key] = None
        queue.append(held)
        self.held_size += size
        return True

    def take_out(self, held: Held) -> None:
        """Its time is over: it is answered, and must not be carried out."""
        key = (held.partition, held.producer.producer_id)
        queue = self._queues.get(key)
        if queue is None or held not in queue:
            return
        if queue[0] is held:
            self._pop(queue)
            self._go_on(key, queue)
        else:
            queue.remove(held)
            self.held_size -= held.size + HELD_OVERHEAD_SIZE

    def _pop(self, queue: deque[Held]) -> Held:
        first = queue.popleft()
        self.held_size -= first.size + HELD_OVERHEAD_SIZE
        return first

    # Asking.

    @property
    def has_unasked(self) -> bool:
        return bool(self._unasked)

    def ask(self) -> None:
        """The turn is over: ask for what has come in it."""
        unasked, self._unasked = self._unasked, {}
        questions: dict[tuple[str, Identity, bool], _Question] = {}
        for key in unasked:
            queue = self._queues.get(key)
            if queue:
                first = queue[0]
                about = (first.transactional_id, first.producer, first.is_added)
                questions.setdefault(about, _Question(*about, [])).firsts.append(first)
        elsewhere: dict[int, list[_Question]] = {}
        for question in questions.values():
            leader = self._leader_of(question.transactional_id)
            if leader == self._node_id:
                self._ask_here(question)
            elif leader == NOBODY:
                self._fail([question], self._refusal_without_leader(question.transactional_id))
            else:
                elsewhere.setdefault(leader, []).append(question)
        for node_id, asked in elsewhere.items():
            self._ask_there(node_id, asked)

    def _leader_of(self, transactional_id: str) -> int:
        place = self._transactions.place_of(transactional_id)
        if place is None:
            return NOBODY
        topic, index = place
        return topic.partitions[index].leader

    def _refusal_without_leader(self, transactional_id: str) -> ErrorCode:
        if self._transactions.is_too_long(transactional_id):
            return ErrorCode.invalid_request
        if not self._transactions.topic_exists:  # so that who comes again is answered for good
            self._transactions.create_topic(_do_nothing)
        return ErrorCode.coordinator_not_available

    def _ask_here(self, question: _Question) -> None:
        ticket = _Here(self, question)
        shard = self._transactions.find(question.transactional_id)
        if isinstance(shard, ErrorCode):
            ticket.fail(shard)
            return
        transactional_id, producer, is_added, _ = question
        asked = Add(transactional_id, producer, question.spots, is_new_protocol=is_added)

        def command(coordinator: Any, turn: Any) -> None:
            (coordinator.add if is_added else coordinator.verify)(turn, asked, ticket)

        if not self._transactions.runtime.run(shard, command):
            ticket.fail(ErrorCode.coordinator_load_in_progress)

    def _ask_there(self, node_id: int, questions: list[_Question]) -> None:
        def on_answer(answer: memoryview | None) -> None:
            if answer is None:
                self._fail(questions, ErrorCode.coordinator_not_available)
                return
            try:
                self._take(questions, answer)
            except MalformedRequest:
                self._fail(questions, ErrorCode.coordinator_not_available)

        self.asking.ask(node_id, _frame(questions), on_answer)

    def _take(self, questions: list[_Question], answer: memoryview) -> None:
        response = decode_response(ADD_PARTITIONS_TO_TXN.key, _VERSION, answer, BODY_POSITION)
        if response.error_code:
            self._fail(questions, response.error_code)
            return
        told = {
            (result.transactional_id, topic.name, row.partition_index): int(row.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        late = int(ErrorCode.coordinator_not_available)
        for question in questions:
            name = question.transactional_id
            self.on_answer(question, [told.get((name, *spot), late) for spot in question.spots])

    def _fail(self, questions: Iterable[_Question], code: int) -> None:
        for question in questions:
            self.on_answer(question, [code] * len(question.firsts))

    # What is answered.

    def on_answer(self, question: _Question, codes: Sequence[int]) -> None:
        """One error for each first; those that have left their queue meanwhile are not concerned."""
        for held, code in zip(question.firsts, codes, strict=True):
            key = (held.partition, held.producer.producer_id)
            queue = self._queues.get(key)
            if not queue or queue[0] is not held:
                continue
            if code == _NONE:
                self._pop(queue)
                if not held.is_gone:
                    code = held.run()
            elif code not in FOR_THE_MOMENT:
                self._pop(queue).refuse(code)
            if code in FOR_THE_MOMENT:
                self._refuse_all(key, code)
            else:
                self._go_on(key, queue)

    def _go_on(self, key: Key, queue: deque[Held]) -> None:
        """The first has left: the next ones run as if they had just come."""
        while queue:
            following = queue[0]
            if not following.is_gone:
                if not _is_decided(following.partition, following.producer):
                    self._unasked[key] = None
                    return
                self._pop(queue)
                code = following.run()
                if code in FOR_THE_MOMENT:
                    self._refuse_all(key, code)
                    return
            else:
                self._pop(queue)
        self._queues.pop(key, None)
        self._unasked.pop(key, None)

    def _refuse_all(self, key: Key, code: int) -> None:
        queue = self._queues.pop(key, None)
        self._unasked.pop(key, None)
        while queue:
            self._pop(queue).refuse(code)

    def on_marked(self, partition: Partition, producer_ids: Iterable[int]) -> None:
        """Transactions have ended: nobody knows which of what is held belongs to the next ones."""
        if self._queues:
            for producer_id in producer_ids:
                self._refuse_all((partition, producer_id), ErrorCode.concurrent_transactions)

    def on_resigned(self, partition: Partition) -> None:
        for key in [key for key in self._queues if key[0] is partition]:
            self._refuse_all(key, ErrorCode.not_leader_or_follower)


def _do_nothing() -> None:
    pass


def _is_decided(partition: Partition, producer: Identity) -> bool:
    """Whether the log knows what to do with a batch of the producer: its transaction is open here, or a later
    epoch is known."""
    known = partition.log.producers.get(producer.producer_id)
    if known is None:
        return False
    return known.transaction_offset != NO_OFFSET or producer.epoch < known.epoch


def refusal_of(partition: Partition, producer: Identity) -> int:
    """Why a log would refuse a producer what a coordinator is about to write for it, or none."""
    known = partition.log.producers.get(producer.producer_id)
    if partition.error_code or known is None or producer.epoch == known.epoch:
        return partition.error_code
    if producer.epoch < known.epoch:
        return ErrorCode.invalid_producer_epoch
    return _NONE if known.transaction_offset == NO_OFFSET else ErrorCode.concurrent_transactions


def _frame(questions: Sequence[_Question]) -> bytes:
    part = request_types(ADD_PARTITIONS_TO_TXN.key, _VERSION)
    transactions = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for name, index in question.spots:
            topics.setdefault(name, []).append(index)
        transactions.append(
            part.AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.epoch,
                verify_only=not question.is_added,
                topics=tuple(
                    part.AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes))
                    for name, indexes in topics.items()
                ),
            )
        )
    request = part.AddPartitionsToTxnRequest(transactions=tuple(transactions))
    return encode_request(ADD_PARTITIONS_TO_TXN.key, _VERSION, _CLIENT_ID, request)
