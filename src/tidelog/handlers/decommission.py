"""UnregisterBroker: a broker that will not come back is none of the cluster's any more.

**Invariant:** the number of its last registration stays in the store: whoever comes back under its id is told
apart from it.
"""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.cluster.controller import decide_unregistration
from tidelog.cluster.store import Done, Outcome, Refused
from tidelog.handlers.request import NO_THROTTLE, Outstanding, Request, Result
from tidelog.protocol.errors import ErrorCode

UNREGISTER_WAIT_MS = 30_000
ATTEMPTS_MAX = 8


def handle_unregister_broker(broker: Broker, request: Request) -> Result:
    """*Behaviour*: nothing can be moved to the broker from now on, until it registers again. What is to leave
    it is moved before. One that is there is refused: it would go on, known to nobody.
    """
    node_id: int = request.decode().broker_id

    def late() -> bytes:
        return _answer(request, ErrorCode.request_timed_out, "The store has not answered in time.")

    problem = _problem(broker, request, node_id)
    if problem is not None:
        return problem
    parked = Outstanding(broker.uptime_ms + UNREGISTER_WAIT_MS, late)
    _unregister(broker, request, node_id, parked, ATTEMPTS_MAX)
    return parked


def _problem(broker: Broker, request: Request, node_id: int) -> bytes | None:
    if not broker.image.is_known(node_id):
        reason = f"Broker ID {node_id} is not currently registered"
        return _answer(request, ErrorCode.broker_id_not_registered, reason)
    if node_id in broker.image.brokers:
        return _answer(request, ErrorCode.invalid_request, f"Broker {node_id} is running; stop it first.")
    return None


def _unregister(
    broker: Broker, request: Request, node_id: int, parked: Outstanding, attempts_left: int
) -> None:
    def on_outcome(outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and attempts_left:  # it was back meanwhile
            problem = _problem(broker, request, node_id)
            if problem is None:
                _unregister(broker, request, node_id, parked, attempts_left - 1)
            else:
                broker.waiting.finish(parked, problem)
        elif isinstance(outcome, Done):
            broker.waiting.finish(parked, _answer(request, ErrorCode.none, None))
        else:
            reason = f"The store does not say that it is done: {outcome}"
            broker.waiting.finish(parked, _answer(request, ErrorCode.request_timed_out, reason))

    broker.control.write(decide_unregistration(broker.image, node_id), on_outcome)


def _answer(request: Request, error: ErrorCode, message: str | None) -> bytes:
    return request.respond(throttle_time=NO_THROTTLE, error_code=error, error_message=message)
