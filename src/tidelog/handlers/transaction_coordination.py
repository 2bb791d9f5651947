"""A command for the coordinator of a transactional id: found, carried out, and answered when it may be.

**Invariant:** a request for an id that is not here, or not loaded yet, is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.base.limits import TRANSACTION_WAIT_MS
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.shard import Awaited
from tidelog.broker.data_plane.transactions import Command
from tidelog.handlers.request import Result
from tidelog.protocol.errors import ErrorCode


def coordinate(
    broker: Broker,
    transactional_id: str,
    command: Callable[[Awaited], Command],
    encode: Callable[[Any], bytes],
    refuse: Callable[[ErrorCode], bytes],
) -> Result:
    """Have an id's coordinator carry out a command; its answer, or the request parked for it."""
    ticket = Awaited(broker.waiting, transaction_deadline(broker), encode, refuse)
    run(broker, transactional_id, command(ticket), ticket)
    return ticket.result()


def run(broker: Broker, transactional_id: str, command: Command, ticket: Any) -> None:
    """The same for a ticket that is there."""
    shard = broker.transacting.coordinators.find(transactional_id)
    if isinstance(shard, ErrorCode):
        ticket.fail(shard)
    elif not broker.transacting.coordinators.runtime.run(shard, command):
        ticket.fail(ErrorCode.coordinator_load_in_progress)


def transaction_deadline(broker: Broker) -> int:
    return broker.clock.uptime_ms + TRANSACTION_WAIT_MS
