"""A command for the coordinator of a group: found, carried out, and answered when it may be.

**Invariant:** a request for a group that is not here, or not loaded yet, is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.coordinators import Command
from tidelog.broker.data_plane.shard import Awaited
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode


def coordinate(
    broker: Broker,
    group_id: str,
    command: Callable[[Awaited], Command],
    encode: Callable[[Any], bytes],
    refuse: Callable[[ErrorCode], bytes],
    wait_ms: int | None = None,
) -> Result:
    """Have a group's coordinator carry out a command; its answer, or the request parked for it."""
    shard = broker.coordinators.find(group_id)
    if isinstance(shard, ErrorCode):
        return refuse(shard)
    deadline_ms = commit_deadline(broker) if wait_ms is None else broker.clock.uptime_ms + wait_ms
    ticket = Awaited(broker.waiting, deadline_ms, encode, refuse)
    if not broker.coordinators.run(shard, command(ticket)):
        return refuse(ErrorCode.coordinator_load_in_progress)
    return ticket.result()


def commit_deadline(broker: Broker) -> int:
    return broker.clock.uptime_ms + broker.settings.number("offsets.commit.timeout.ms")


def client_of(request: Request) -> tuple[str, str]:
    """The client's name for itself, and its address as Kafka writes it."""
    return request.client_id or "", f"/{request.client.address}"


def for_each_group(
    broker: Broker,
    group_ids: tuple[str, ...],
    describe: Callable[..., None],
    failed: Callable[[str, ErrorCode], Any],
    encode: Callable[[list[Any]], bytes],
    takes_empty: bool = True,
) -> Result:
    """Ask the coordinator of each group; one answer for all."""
    if not group_ids:
        return encode([])

    def answer(parts: list[Any]) -> bytes:
        late = ErrorCode.coordinator_not_available
        named = zip(group_ids, parts, strict=True)
        return encode([failed(name, late) if part is None else part for name, part in named])

    gathering: Gathering[Any] = Gathering(broker, commit_deadline(broker), len(group_ids), None, answer)
    seen: set[str] = set()
    for place, group_id in enumerate(group_ids):
        if not group_id and not takes_empty:
            gathering.put(place, failed(group_id, ErrorCode.invalid_group_id))
            continue
        shard = broker.coordinators.find(group_id)
        if isinstance(shard, ErrorCode):
            gathering.put(place, failed(group_id, shard))
            continue
        if group_id in seen and group_id in shard.machine.groups:
            gathering.put(
                place, failed(group_id, ErrorCode.invalid_request)
            )  # it would be told again at length
            continue
        seen.add(group_id)
        ticket = Part(gathering, place, partial(failed, group_id))
        if not broker.coordinators.run(shard, partial(describe, group_id=group_id, ticket=ticket)):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
    return gathering.result()
