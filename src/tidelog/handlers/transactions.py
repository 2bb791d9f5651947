"""InitProducerId, for idempotent producers: a producer id that nobody else has (P8)."""

from __future__ import annotations

from datetime import timedelta

from tidelog.broker.broker import Broker
from tidelog.handlers.request import Outstanding, Request, Result
from tidelog.protocol.errors import ErrorCode

_ZERO = timedelta(0)
_WAIT_MS = 10_000


def handle_init_producer_id(broker: Broker, request: Request) -> Result:
    """*Behaviour*: a new id with epoch 0. There are no transactions yet: a producer with a transactional id
    gets an error that ends it, as from FindCoordinator, which has room for the reason.

    *Versions*: 3 lets a producer raise its epoch; 6, about two-phase commit, Kafka 4.3 does not serve either.
    """
    asked = request.decode()
    if asked.transactional_id is not None:
        empty = asked.transactional_id == ""
        error = ErrorCode.invalid_request if empty else ErrorCode.transactional_id_authorization_failed
        return _answer(request, error, -1, -1)
    if (getattr(asked, "producer_id", -1) == -1) != (getattr(asked, "producer_epoch", -1) == -1):
        return _answer(request, ErrorCode.invalid_request, -1, -1)
    parked = Outstanding(
        broker.uptime_ms + _WAIT_MS, lambda: _answer(request, ErrorCode.request_timed_out, -1, -1)
    )
    taken: list[int | None] = []

    def then(producer_id: int | None) -> None:
        taken.append(producer_id)
        if parked.connection is not None:
            broker.waiting.finish(parked, _given(request, producer_id))

    broker.take_producer_id(then)
    return _given(request, taken[0]) if taken else parked


def _given(request: Request, producer_id: int | None) -> bytes:
    if producer_id is None:
        return _answer(request, ErrorCode.coordinator_not_available, -1, -1)
    return _answer(request, ErrorCode.none, producer_id, 0)


def _answer(request: Request, error: ErrorCode, producer_id: int, epoch: int) -> bytes:
    return request.respond(
        throttle_time=_ZERO,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
