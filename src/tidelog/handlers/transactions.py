"""What a transactional producer asks its coordinator: partitions and groups join the transaction, it ends.

**Invariant:** nobody is told an outcome that a restart could undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.features import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.names import facts_of
from tidelog.handlers.request import Request, Result
from tidelog.handlers.transaction_coordination import coordinate, run, transaction_deadline
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import Identity, Spot
from tidelog.transactions.turn import Add, End, ProducerAnswer

_BROKERS_VERSION = 4  # of AddPartitionsToTxn: many transactions, from leaders
_FENCING_VERSION = 2
_ID_VERSION = 5  # of EndTxn: it raises the epoch, and says which identity follows

Codes = Sequence[int]


def handle_add_partitions_to_txn(broker: Broker, request: Request) -> Result:
    """*Behaviour*: partitions join the open transaction, or the one that begins with them. If one of them
    cannot, none does.

    *Versions*: to 3 from a producer; 4 from the leaders of the partitions, for many transactions, to be added
    or only verified; 5 the same for Kafka's later answers.
    """
    asked = request.decode()
    if request.version >= _BROKERS_VERSION:
        return _add_many(broker, request, asked.transactions)
    topics = asked.v3_and_below_topics
    add = Add(
        asked.v3_and_below_transactional_id,
        Identity(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch),
        _spots(topics),
        knows_fencing=request.version >= _FENCING_VERSION,
    )

    def encode(codes: Codes) -> bytes:
        return request.respond(results_by_topic_v3_and_below=_by_topic(request, topics, codes))

    return coordinate(
        broker,
        add.transactional_id,
        lambda ticket: lambda coordinator, turn: coordinator.add(turn, add, ticket, _problems(broker, add)),
        encode,
        lambda code: encode([code] * len(add.partitions)),
    )


def _add_many(broker: Broker, request: Request, transactions: Sequence[Any]) -> Result:
    def answer(parts: list[Codes]) -> bytes:
        results = tuple(
            request.make(
                "AddPartitionsToTxnResult",
                transactional_id=each.transactional_id,
                topic_results=_by_topic(request, each.topics, codes),
            )
            for each, codes in zip(transactions, parts, strict=True)
        )
        return request.respond(error_code=ErrorCode.none, results_by_transaction=results)

    if not transactions:
        return answer([])
    adds = [
        Add(
            each.transactional_id,
            Identity(each.producer_id, each.producer_epoch),
            _spots(each.topics),
            is_new_protocol=True,
        )
        for each in transactions
    ]
    late = ErrorCode.coordinator_not_available
    gathering: Gathering[Any] = Gathering(
        broker,
        transaction_deadline(broker),
        len(adds),
        None,
        lambda parts: answer(
            [
                [late] * len(add.partitions) if codes is None else codes
                for add, codes in zip(adds, parts, strict=True)
            ]
        ),
    )
    for place, (each, add) in enumerate(zip(transactions, adds, strict=True)):
        ticket = Part(gathering, place, partial(_same, len(add.partitions)))
        if each.verify_only:
            run(broker, add.transactional_id, partial(_verify, add=add, ticket=ticket), ticket)
        else:
            run(broker, add.transactional_id, partial(_add, broker=broker, add=add, ticket=ticket), ticket)
    return gathering.result()


def _same(count: int, code: ErrorCode) -> Codes:
    return [code] * count


def _verify(coordinator: Any, turn: Any, add: Add, ticket: Part) -> None:
    coordinator.verify(turn, add, ticket)


def _add(coordinator: Any, turn: Any, broker: Broker, add: Add, ticket: Part) -> None:
    coordinator.add(turn, add, ticket, _problems(broker, add))


def _spots(topics: Iterable[Any]) -> tuple[Spot, ...]:
    return tuple((topic.name, index) for topic in topics for index in topic.partitions)


def _problems(broker: Broker, add: Add) -> dict[Spot, ErrorCode]:
    """Of partitions that cannot be in a transaction."""
    problems = {}
    for name, index in add.partitions:
        if name == TRANSACTIONS_TOPIC:
            problems[name, index] = ErrorCode.topic_authorization_failed
        elif facts_of(broker.image, name, index) is None:
            problems[name, index] = ErrorCode.unknown_topic_or_partition
    return problems


def _by_topic(request: Request, topics: Iterable[Any], codes: Codes) -> tuple[Any, ...]:
    left = iter(codes)
    return tuple(
        request.make(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                request.make(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=index,
                    partition_error_code=ErrorCode(next(left)),
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )


def handle_add_offsets_to_txn(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the partition that keeps a group joins the transaction.

    *Versions*: 2 knows PRODUCER_FENCED; 4 TRANSACTION_ABORTABLE.
    """
    asked = request.decode()

    def refuse(code: ErrorCode) -> bytes:
        return request.respond(error_code=code)

    place = broker.coordinators.place_of(asked.group_id)
    if place is None:
        if not broker.coordinators.topic_exists:
            broker.coordinators.create_topic(_do_nothing)  # the producer asks again
        return refuse(ErrorCode.coordinator_not_available)
    add = Add(
        asked.transactional_id,
        Identity(asked.producer_id, asked.producer_epoch),
        ((GROUPS_TOPIC, place[1]),),
        knows_fencing=request.version >= _FENCING_VERSION,
    )
    return coordinate(
        broker,
        add.transactional_id,
        lambda ticket: lambda coordinator, turn: coordinator.add(turn, add, ticket),
        lambda codes: refuse(ErrorCode(codes[0])),
        refuse,
    )


def _do_nothing() -> None:
    pass


def handle_end_txn(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the outcome is decided, and told when all markers are committed, or a second later. A
    repeat is told the same until the next transaction begins.

    *Versions*: 2 knows PRODUCER_FENCED; 4 TRANSACTION_ABORTABLE; 5 raises the epoch (KIP-890).
    """
    asked = request.decode()
    is_new = request.version >= _ID_VERSION
    end = End(
        asked.transactional_id,
        Identity(asked.producer_id, asked.producer_epoch),
        asked.committed,
        is_new,
        request.version >= _FENCING_VERSION,
    )

    def encode(answer: ProducerAnswer) -> bytes:
        if not is_new:
            return request.respond(error_code=answer.code)
        producer_id, epoch = answer.identity
        return request.respond(error_code=answer.code, producer_id=producer_id, producer_epoch=epoch)

    return coordinate(
        broker,
        end.transactional_id,
        lambda ticket: lambda coordinator, turn: coordinator.end(turn, end, ticket),
        encode,
        lambda code: encode(ProducerAnswer(code)),
    )
