"""DescribeClientQuotas and AlterClientQuotas: nobody's use is limited here, and who asks is told so.

Kafka's `kafka-configs` asks for quotas before it shows a user's credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.base.limits import MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode

_IP, _USER, _CLIENT_ID = "ip", "user", "client-id"
_ENTITY_TYPES = (_IP, _USER, _CLIENT_ID)
_MATCH_TYPES = ("EXACT", "DEFAULT", "SPECIFIED")
_NO_QUOTAS = "quotas: not supported by this version of Tidelog; limit clients in front of it"


def handle_describe_client_quotas(broker: Broker, request: Request) -> Result:
    """*Behaviour*: no quotas; a filter that cannot be is refused as Kafka refuses it.

    *Versions*: 1 is flexible.
    """
    asked = request.decode()
    problem = _filter_problem(asked.components)
    error, message = problem or (ErrorCode.none, "")
    return request.respond(
        error_code=error,
        error_message=message[:MESSAGE_LENGTH_MAX],
        entries=None if problem else (),
    )


def handle_alter_client_quotas(broker: Broker, request: Request) -> Result:
    """*Behaviour*: each entry is refused with the reason; nothing is kept.

    *Versions*: 1 is flexible.
    """
    asked = request.decode()
    entries = tuple(
        request.make(
            "EntryData",
            error_code=ErrorCode.unsupported_version,
            error_message=_NO_QUOTAS,
            entity=tuple(
                request.make("EntityData", entity_type=each.entity_type, entity_name=each.entity_name)
                for each in entry.entity
            ),
        )
        for entry in asked.entries
    )
    return request.respond(entries=entries)


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
        if kind not in _ENTITY_TYPES:
            return ErrorCode.unsupported_version, f"Unsupported entity type {kind}"
        if (problem := _match_problem(component.match_type, component.match)) is not None:
            return ErrorCode.invalid_request, problem
        seen[kind] = None
    if _IP in seen and len(seen) > 1:
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
