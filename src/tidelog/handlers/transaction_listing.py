"""DescribeTransactions and ListTransactions: which transactions the coordinators of this broker have.

**Invariant:** a transaction is shown as it is committed.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from kio.serial.readers import tz_aware_from_i64
from kio.static.primitive import i64

from tidelog.base.limits import TRANSACTIONS_TOLD_MAX
from tidelog.broker.broker import Broker
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.request import Request, Result
from tidelog.handlers.transaction_coordination import run, transaction_deadline
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.listing import Filters, Listing
from tidelog.transactions.transaction import NO_IDENTITY, State, Transaction


def handle_describe_transactions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the state, the producer and the partitions of each transactional id.

    *Versions*: 0 only.
    """
    ids = tuple(request.decode().transactional_ids)

    def encode(parts: list[Any]) -> bytes:
        late = ErrorCode.coordinator_not_available
        states = [
            _failed(request, name, late if part is None else part)
            if part is None or isinstance(part, ErrorCode)
            else _described(request, part)
            for name, part in zip(ids, parts, strict=True)
        ]
        return request.respond(transaction_states=tuple(states))

    if not ids:
        return encode([])
    gathering: Gathering[Any] = Gathering(broker, transaction_deadline(broker), len(ids), None, encode)
    seen: set[str] = set()
    for place, transactional_id in enumerate(ids):
        if transactional_id in seen or len(seen) >= TRANSACTIONS_TOLD_MAX:
            gathering.put(place, ErrorCode.invalid_request)  # it would be told again at length
            continue
        seen.add(transactional_id)
        if not transactional_id:
            gathering.put(place, ErrorCode.invalid_request)
            continue
        ticket = _First(Part(gathering, place, _same))
        run(
            broker,
            transactional_id,
            partial(_describe, transactional_id=transactional_id, ticket=ticket),
            ticket,
        )
    return gathering.result()


class _First:
    """Gives the one transaction that was asked for, or that there is none."""

    __slots__ = ("_part", "fail")

    def __init__(self, part: Part) -> None:
        self._part = part
        self.fail = part.fail

    @property
    def is_gone(self) -> bool:
        return self._part.is_gone

    def give(self, found: list[Transaction | None]) -> None:
        self._part.give(ErrorCode.transactional_id_not_found if found[0] is None else found[0])


def _same(code: ErrorCode) -> ErrorCode:
    return code


def _describe(coordinator: Any, turn: Any, transactional_id: str, ticket: _First) -> None:
    coordinator.describe(turn, (transactional_id,), ticket)


def _described(request: Request, found: Transaction) -> Any:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(found.partitions):
        topics.setdefault(name, []).append(index)
    return request.make(
        "TransactionState",
        error_code=ErrorCode.none,
        transactional_id=found.transactional_id,
        transaction_state=found.state.title,
        transaction_timeout=timedelta(milliseconds=found.timeout_ms),
        transaction_start_time=_time(found.started_ms),
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            request.make("TopicData", topic=name, partitions=tuple(indexes))
            for name, indexes in topics.items()
        ),
    )


def _failed(request: Request, transactional_id: str, code: ErrorCode) -> Any:
    return request.make(
        "TransactionState",
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=timedelta(0),
        transaction_start_time=_time(0),
        producer_id=NO_IDENTITY.producer_id if code is ErrorCode.none else 0,
        producer_epoch=0,
        topics=(),
    )


def _time(ms: int) -> Any:
    return tz_aware_from_i64(i64(ms))


def handle_list_transactions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the transactional ids of this broker, of some states or producers if asked. While one of
    its shards is loaded nothing is listed, as a list that lacks some would look whole.

    *Versions*: 1 adds how long a transaction has been open; 2 a pattern of ids.
    """
    asked = request.decode()
    filters = Filters(
        frozenset(asked.producer_id_filters),
        tuple(asked.state_filters),
        getattr(asked, "duration_filter", -1),
        getattr(asked, "transactional_id_pattern", None),
    )
    shards = list(broker.transacting.coordinators.all())

    def encode(parts: list[Listing]) -> bytes:
        failed = next((part.code for part in parts if part.code), ErrorCode.none)
        found = () if failed else tuple(each for part in parts for each in part.found)
        unknown = tuple(name for name in dict.fromkeys(filters.states) if name not in _KNOWN_STATES)
        states = tuple(
            request.make(
                "TransactionState",
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.title,
            )
            for each in found
        )
        return request.respond(error_code=failed, unknown_state_filters=unknown, transaction_states=states)

    if not shards:
        return encode([])
    late = Listing(ErrorCode.coordinator_not_available)
    gathering: Gathering[Listing] = Gathering(broker, transaction_deadline(broker), len(shards), late, encode)
    for place, shard in enumerate(shards):
        if isinstance(shard, ErrorCode):
            gathering.put(place, Listing(shard))
            continue
        ticket = Part(gathering, place, Listing)

        def command(coordinator: Any, turn: Any, ticket: Part = ticket) -> None:
            coordinator.list_transactions(turn, filters, ticket)

        if not broker.transacting.coordinators.runtime.run(shard, command):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
    return gathering.result()


_KNOWN_STATES = frozenset((*(state.title for state in State), "Dead", "PrepareEpochFence"))
