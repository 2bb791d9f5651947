"""UnregisterBroker: a broker that will not come back is none of the cluster's any more.

**Invariant:** the number of its last registration stays in the store: whoever comes back under its id is told
apart from it.
"""

from __future__ import annotations

from tidelog.base.limits import UNREGISTER_WAIT_MS
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.controller import decide_unregistration
from tidelog.cluster.store import Operation, Outcome
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import LATE, change_store, problem_of
from tidelog.protocol.errors import ErrorCode, Problem


def handle_unregister_broker(broker: Broker, request: Request) -> Result:
    """*Behaviour*: nothing can be moved to the broker from now on, until it registers again. What is to leave
    it is moved before. One that is there is refused: it would go on, known to nobody.
    """
    change = _Unregistration(broker, request.decode().broker_id)

    def answer(problems: list[Problem]) -> bytes:
        error, message = problems[0]
        return request.respond(error_code=error, error_message=message or None)

    return change_store(broker, broker.clock.uptime_ms + UNREGISTER_WAIT_MS, [change], LATE, answer)


class _Unregistration(StoreChange[list[Operation], Problem]):
    """Decided again if the broker was back meanwhile."""

    def __init__(self, broker: Broker, node_id: int) -> None:
        self._broker = broker
        self._node_id = node_id

    def decide(self) -> list[Operation] | Settled[Problem]:
        image, node_id = self._broker.image, self._node_id
        if not image.is_known(node_id):
            reason = f"Broker ID {node_id} is not currently registered"
            return Settled(Problem(ErrorCode.broker_id_not_registered, reason))
        if node_id in image.brokers:
            reason = f"Broker {node_id} is running; stop it first."
            return Settled(Problem(ErrorCode.invalid_request, reason))
        return decide_unregistration(image, node_id)

    def write(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        self._broker.control.write(operations, on_outcome)

    def row_of(self, operations: list[Operation], outcome: Outcome) -> Problem:
        return problem_of(outcome)
