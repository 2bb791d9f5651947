"""InitProducerId: a producer id that nobody else has (P8), or the next identity of a transactional producer
(P9)."""

from __future__ import annotations

from datetime import timedelta

from tidelog.base.limits import PRODUCER_ID_WAIT_MS
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.shard import Awaited
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.request import Request, Result
from tidelog.handlers.transaction_coordination import run, transaction_deadline
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Identity
from tidelog.transactions.turn import Init, ProducerAnswer

_FENCING_VERSION = 4
_MILLISECOND = timedelta(milliseconds=1)
_INVALID = ProducerAnswer(ErrorCode.invalid_request)
_NONE_LEFT = ProducerAnswer(ErrorCode.coordinator_not_available)
_LATE = ProducerAnswer(ErrorCode.request_timed_out)


def handle_init_producer_id(broker: Broker, request: Request) -> Result:
    """*Behaviour*: a new id with epoch 0. With a transactional id: the next epoch of its producer, after the
    transaction that a former instance has left open is aborted.

    *Versions*: 3 names the producer that goes on after an error (KIP-360); 4 knows PRODUCER_FENCED; 6, about
    two-phase commit, Kafka 4.3 does not serve either.
    """
    asked = request.decode()
    identity = Identity(
        getattr(asked, "producer_id", NO_PRODUCER_ID), getattr(asked, "producer_epoch", NO_EPOCH)
    )
    if asked.transactional_id is not None:
        timeout_ms = asked.transaction_timeout // _MILLISECOND
        knows_fencing = request.version >= _FENCING_VERSION
        return _init(broker, request, Init(asked.transactional_id, timeout_ms, identity, knows_fencing))
    if (identity.producer_id == NO_PRODUCER_ID) != (identity.epoch == NO_EPOCH):
        return _answer(request, _INVALID)

    def answer(given: list[ProducerAnswer]) -> bytes:
        return _answer(request, given[0])

    gathering = Gathering(broker, broker.clock.uptime_ms + PRODUCER_ID_WAIT_MS, 1, _LATE, answer)

    def on_producer_id(taken: int | None) -> None:
        given = _NONE_LEFT if taken is None else ProducerAnswer(ErrorCode.none, Identity(taken, 0))
        gathering.put(0, given)

    broker.producer_ids.ask(on_producer_id)
    return gathering.result()


def _init(broker: Broker, request: Request, asked: Init) -> Result:
    if not asked.transactional_id:
        return _answer(request, _INVALID)
    ticket = Awaited(
        broker.waiting,
        transaction_deadline(broker),
        lambda answer: _answer(request, answer),
        lambda code: _answer(request, ProducerAnswer(code)),
    )

    def begin() -> None:
        """There is a producer id at hand, should it be needed."""
        if not ticket.is_gone:
            run(
                broker,
                asked.transactional_id,
                lambda coordinator, turn: coordinator.init(turn, asked, ticket),
                ticket,
            )

    broker.producer_ids.when_ready(begin)
    return ticket.result()


def _answer(request: Request, given: ProducerAnswer) -> bytes:
    return request.respond(
        error_code=given.code,
        producer_id=given.identity.producer_id,
        producer_epoch=given.identity.epoch,
    )
