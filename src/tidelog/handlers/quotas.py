"""DescribeClientQuotas and AlterClientQuotas: who may use how much (KIP-546).

**Invariant:** a quota is in the store, and in force on the controller, before its client hears of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.base.limits import ALTER_WAIT_MS, MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.quotas import (
    IP,
    KINDS,
    Component,
    QuotaChange,
    QuotaDecision,
    decide_quotas,
    matching,
)
from tidelog.cluster.store import Outcome, Refused
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE, change_store, problem_of
from tidelog.protocol.errors import ErrorCode, Problem

_MATCH_TYPES = ("EXACT", "DEFAULT", "SPECIFIED")
_OUTDATED = Problem(ErrorCode.request_timed_out, "The quotas were altered by somebody else meanwhile.")


def handle_describe_client_quotas(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the quotas of the entities that match the filter, from this broker's image; a filter that
    cannot be is refused as Kafka refuses it.

    *Versions*: 1 is flexible.
    """
    asked = request.decode()
    problem = _filter_problem(asked.components)
    if problem is not None:
        error, message = problem
        return request.respond(error_code=error, error_message=message[:MESSAGE_LENGTH_MAX], entries=None)
    components = [
        Component(each.entity_type, each.match_type == _MATCH_TYPES.index("SPECIFIED"), each.match)
        for each in asked.components
    ]
    entries = tuple(
        request.make(
            "EntryData",
            entity=_parts(request, dict(entity)),
            values=tuple(request.make("ValueData", key=key, value=value) for key, value in quotas.items()),
        )
        for entity, quotas in matching(broker.quotas.entities, components, asked.strict).items()
    )
    return request.respond(error_code=ErrorCode.none, error_message="", entries=entries)


def _parts(request: Request, entity: Mapping[str, str | None]) -> tuple[Any, ...]:
    return tuple(
        request.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.items()
    )


def handle_alter_client_quotas(broker: Broker, request: Request) -> Result:
    """*Behaviour*: what is acceptable is stored, all in one go; the rest is refused entity by entity.

    *Versions*: 1 is flexible.
    """
    asked = request.decode()
    changes = [
        QuotaChange(
            {each.entity_type: each.entity_name for each in entry.entity},
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in asked.entries
    ]
    change = _QuotasChange(broker, changes, asked.validate_only)

    def answer(problems: list[Problem]) -> bytes:
        rows = change.decision.rows
        return request.respond(
            entries=tuple(_altered(request, entity, own or problems[0]) for entity, own in rows)
        )

    return change_store(broker, broker.clock.uptime_ms + ALTER_WAIT_MS, [change], LATE, answer)


class _QuotasChange(StoreChange[QuotaDecision, Problem]):
    def __init__(self, broker: Broker, changes: Sequence[QuotaChange], validate_only: bool) -> None:
        self._broker = broker
        self._changes = changes
        self._validate_only = validate_only
        self.decision = QuotaDecision([], [])  # the last one

    def decide(self) -> QuotaDecision | Settled[Problem]:
        self.decision = decide_quotas(self._broker.image, self._changes)
        if self._validate_only or not self.decision.operations:
            return Settled(FINE)
        return self.decision

    def write(self, decision: QuotaDecision, on_outcome: OnOutcome) -> None:
        self._broker.control.write(decision.operations, on_outcome)

    def row_of(self, decision: QuotaDecision, outcome: Outcome) -> Problem:
        return _OUTDATED if isinstance(outcome, Refused) else problem_of(outcome)


def _altered(request: Request, entity: Mapping[str, str | None], problem: Problem) -> Any:
    return request.make(
        "EntryData",
        error_code=problem.error,
        error_message=problem.message[:MESSAGE_LENGTH_MAX] or None,
        entity=_parts(request, entity),
    )


def _filter_problem(components: Sequence[Any]) -> tuple[ErrorCode, str] | None:
    seen: dict[str, None] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            return ErrorCode.invalid_request, "Invalid empty entity type."
        if kind in seen:
            return (
                ErrorCode.invalid_request,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        if kind not in KINDS:
            return ErrorCode.unsupported_version, f"Unsupported entity type {kind}"
        if (problem := _match_problem(component.match_type, component.match)) is not None:
            return ErrorCode.invalid_request, problem
        seen[kind] = None
    if IP in seen and len(seen) > 1:
        return ErrorCode.invalid_request, (
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component."
        )
    return None


def _match_problem(match_type: int, match: str | None) -> str | None:
    if not 0 <= match_type < len(_MATCH_TYPES):
        return f"Unknown match type {match_type}"
    name = _MATCH_TYPES[match_type]
    if name == "EXACT" and match is None:
        return "Request specified MATCH_TYPE_EXACT, but set match string to null."
    if name != "EXACT" and match is not None:
        return f"Request specified MATCH_TYPE_{name}, but also specified a match string."
    return None
