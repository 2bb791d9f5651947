"""DeleteGroups: groups without members are forgotten, with all that they committed."""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.turn import Turn
from tidelog.handlers.gathering import Part
from tidelog.handlers.group_coordination import for_each_group
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode


def handle_delete_groups(broker: Broker, request: Request) -> Result:
    """*Behaviour*: forgets groups that have no members, with all that they committed; each once."""
    group_ids = tuple(dict.fromkeys(request.decode().groups_names))

    def result(group_id: str, code: ErrorCode) -> Any:
        return request.make("DeletableGroupResult", group_id=group_id, error_code=code)

    def delete(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        groups.delete_group(turn, group_id, ticket)

    def encode(codes: list[ErrorCode]) -> bytes:
        results = tuple(result(group_id, code) for group_id, code in zip(group_ids, codes, strict=True))
        return request.respond(results=results)

    return for_each_group(broker, group_ids, delete, lambda group_id, code: code, encode)
