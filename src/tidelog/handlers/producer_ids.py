"""InitProducerId, for idempotent producers: a producer id that nobody else has (P8)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.limits import PRODUCER_ID_WAIT_MS
from tidelog.broker.broker import Broker
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode


class _Given(NamedTuple):
    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


_INVALID = _Given(ErrorCode.invalid_request)
_NO_TRANSACTIONS = _Given(ErrorCode.transactional_id_authorization_failed)
_NONE_LEFT = _Given(ErrorCode.coordinator_not_available)
_LATE = _Given(ErrorCode.request_timed_out)


def handle_init_producer_id(broker: Broker, request: Request) -> Result:
    """*Behaviour*: a new id with epoch 0. There are no transactions yet: a producer with a transactional id
    gets an error that ends it, as from FindCoordinator, which has room for the reason.

    *Versions*: 3 lets a producer raise its epoch; 6, about two-phase commit, Kafka 4.3 does not serve either.
    """
    asked = request.decode()
    if asked.transactional_id is not None:
        return _answer(request, _INVALID if asked.transactional_id == "" else _NO_TRANSACTIONS)
    if (getattr(asked, "producer_id", -1) == -1) != (getattr(asked, "producer_epoch", -1) == -1):
        return _answer(request, _INVALID)

    def answer(given: list[_Given]) -> bytes:
        return _answer(request, given[0])

    gathering = Gathering(broker, broker.clock.uptime_ms + PRODUCER_ID_WAIT_MS, 1, _LATE, answer)

    def on_producer_id(taken: int | None) -> None:
        gathering.put(0, _NONE_LEFT if taken is None else _Given(ErrorCode.none, taken, 0))

    broker.producer_ids.take(on_producer_id)
    return gathering.result()


def _answer(request: Request, given: _Given) -> bytes:
    return request.respond(
        error_code=given.error,
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
    )
