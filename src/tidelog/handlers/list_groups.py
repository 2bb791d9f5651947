"""ListGroups.

**Invariant:** what is said of a group is committed.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.state import Group
from tidelog.groups.turn import Turn
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.group_coordination import commit_deadline
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode


def handle_list_groups(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the groups of this broker, of some states or types if asked.

    *Versions*: 4 adds states; 5 adds types.
    """
    asked = request.decode()
    states = {state.lower() for state in getattr(asked, "states_filter", ())}
    types = {kind.lower() for kind in getattr(asked, "types_filter", ())}
    shards = list(broker.coordinators.all())

    def encode(parts: list[list[Any] | ErrorCode]) -> bytes:
        failed = next((part for part in parts if isinstance(part, ErrorCode)), ErrorCode.none)
        groups = tuple(group for part in parts if not isinstance(part, ErrorCode) for group in part)
        told = () if failed is not ErrorCode.none else groups
        return request.respond(error_code=failed, groups=told)

    late = ErrorCode.coordinator_not_available
    deadline_ms = commit_deadline(broker)
    gathering: Gathering[list[Any] | ErrorCode] = Gathering(broker, deadline_ms, len(shards), late, encode)
    if not shards:
        return encode([])
    for place, shard in enumerate(shards):
        if isinstance(shard, ErrorCode):
            gathering.put(place, shard)
            continue
        ticket = Part(gathering, place, lambda code: code)

        def command(groups: GroupCoordinator, turn: Turn, ticket: Part = ticket) -> None:
            listed = [
                _listed(request, group)
                for group in groups.groups.values()
                if _is_wanted(group, states, types)
            ]
            turn.decision.answer(ticket, listed)

        if not broker.coordinators.run(shard, command):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
    return gathering.result()


def _is_wanted(group: Group, states: set[str], types: set[str]) -> bool:
    kind = "classic" if isinstance(group, ClassicGroup) else "consumer"
    return (not states or group.state.value.lower() in states) and (not types or kind in types)


def _listed(request: Request, group: Group) -> Any:
    is_classic = isinstance(group, ClassicGroup)
    return request.make(
        "ListedGroup",
        group_id=group.group_id,
        protocol_type=(group.protocol_type or "") if isinstance(group, ClassicGroup) else "consumer",
        group_state=group.state.value,
        group_type="classic" if is_classic else "consumer",
    )
