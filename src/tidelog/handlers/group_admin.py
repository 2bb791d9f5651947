"""FindCoordinator, ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups: groups from outside.

**Invariant:** what is told of a group is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.image import NOBODY
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.plan import assignor_of
from tidelog.groups.reconcile import ConsumerMember
from tidelog.groups.roster import State
from tidelog.groups.state import Group
from tidelog.groups.turn import Turn
from tidelog.handlers.describe import NO_OPERATIONS
from tidelog.handlers.gathering import Gathering, Part
from tidelog.handlers.groups import commit_deadline
from tidelog.handlers.names import leader_of
from tidelog.handlers.request import NO_THROTTLE, Outstanding, Request, Result
from tidelog.handlers.uuids import to_uuid
from tidelog.protocol.errors import ErrorCode

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
NO_TRANSACTIONS = (
    "transactions: not supported by this version of Tidelog; "
    "leave transactional.id out (idempotent producers work without it)"
)
_MANY_VERSION = 4
_SHARE_VERSION = 6
_KEY_LENGTH_MAX = 100
_CREATION_WAIT_MS = 10_000
_NOT_FOUND_VERSION = 6
_GROUP_OPERATIONS = 0b1101_0100_1000  # to read, delete, describe, and to describe and alter its settings
_DEAD = "Dead"
_TYPES = {"classic": ClassicGroup, "consumer": ConsumerGroup}
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle_find_coordinator(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the broker that coordinates a group, at the listener that the client came in by; the topic
    that keeps groups is made when first asked for. There are no transactions and no share groups yet: who
    asks for their coordinator is told so.

    *Versions*: 1 adds key types and messages; 4 asks for many at once.
    """
    asked = request.decode()
    key_type = getattr(asked, "key_type", _GROUP)
    keys = asked.coordinator_keys if request.version >= _MANY_VERSION else (asked.key,)

    def answer() -> bytes:
        return _encode_coordinators(broker, request, key_type, keys)

    if key_type != _GROUP or broker.coordinators.groups_topic_exists or not keys:
        return answer()
    parked = Outstanding(broker.uptime_ms + _CREATION_WAIT_MS, answer)

    broker.coordinators.create_topic(lambda: broker.waiting.finish(parked, answer()))
    return parked


def _encode_coordinators(broker: Broker, request: Request, key_type: int, keys: tuple[str, ...]) -> bytes:
    found = [_coordinator(broker, request, key_type, key) for key in keys]
    if request.version < _MANY_VERSION:
        return request.respond(throttle_time=NO_THROTTLE, **found[0])
    coordinators = tuple(
        request.make("Coordinator", key=key, **each) for key, each in zip(keys, found, strict=True)
    )
    return request.respond(throttle_time=NO_THROTTLE, coordinators=coordinators)


def _coordinator(broker: Broker, request: Request, key_type: int, key: str) -> dict[str, Any]:
    if key_type != _GROUP:
        return _nowhere(key_type, key, request.version)
    place = broker.coordinators.place_of(key)
    reachable = broker.image.addresses(request.connection.listener)
    leader = leader_of(broker, *place, reachable) if place is not None else NOBODY
    if leader == NOBODY:
        code = ErrorCode.coordinator_not_available
        text = f"the partition that keeps group {key[:_KEY_LENGTH_MAX]!r} is not available"
        return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}
    host, port = reachable[leader]
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "node_id": leader,
        "host": host,
        "port": port,
    }


def _nowhere(key_type: int, key: str, version: int) -> dict[str, Any]:
    """Clients would ask again for ever for a coordinator that is not available. Of the errors that end a
    transactional producer, librdkafka knows two, and shows the message with both."""
    if key_type == _TRANSACTION:
        code, text = ErrorCode.transactional_id_authorization_failed, NO_TRANSACTIONS
    elif key_type == _SHARE and version >= _SHARE_VERSION and key.count(":") == 2:
        code = ErrorCode.coordinator_not_available
        text = "share groups: not supported by this version of Tidelog; use a consumer group"
    else:
        code = ErrorCode.invalid_request
        text = f"no coordinator keeps {key[:_KEY_LENGTH_MAX]!r} of type {key_type}"
    return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}


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
        return request.respond(throttle_time=NO_THROTTLE, error_code=failed, groups=told)

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


def _for_each(
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
        if group_id in seen and group_id in shard.coordinator.groups:
            gathering.put(
                place, failed(group_id, ErrorCode.invalid_request)
            )  # it would be told again at length
            continue
        seen.add(group_id)
        ticket = Part(gathering, place, partial(failed, group_id))
        if not broker.coordinators.run(shard, partial(describe, group_id=group_id, ticket=ticket)):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
    return gathering.result()


def handle_describe_groups(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the state and members of classic groups; one that is not there is Dead.

    *Versions*: 4 adds instance ids; 6 says that a group is not there.
    """
    asked = request.decode()
    operations = _operations(asked)

    def failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
        return request.make(
            "DescribedGroup",
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=NO_OPERATIONS if code else operations,
        )

    def describe(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        group = groups.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            turn.decision.answer(ticket, _described_classic(request, group, operations))
            return
        reason = "not found" if group is None else "is not a classic group"
        is_told = request.version >= _NOT_FOUND_VERSION
        code = ErrorCode.group_id_not_found if is_told else ErrorCode.none
        dead = failed(group_id, code, f"Group {group_id} {reason}." if is_told else None)
        turn.decision.answer(ticket, replace(dead, group_state=_DEAD))

    def encode(groups: list[Any]) -> bytes:
        return request.respond(throttle_time=NO_THROTTLE, groups=tuple(groups))

    return _for_each(broker, asked.groups, describe, failed, encode)


def _operations(asked: Any) -> int:
    return _GROUP_OPERATIONS if getattr(asked, "include_authorized_operations", False) else NO_OPERATIONS


def _described_classic(request: Request, group: ClassicGroup, operations: int) -> Any:
    is_stable = group.state is State.STABLE
    members = tuple(
        request.make(
            "DescribedGroupMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_of(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    )
    return request.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=members,
        authorized_operations=operations,
    )


def handle_consumer_group_describe(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the state, epochs, members and assignments of consumer groups.

    *Versions*: 1 says which protocol a member speaks.
    """
    asked = request.decode()

    def failed(group_id: str, code: ErrorCode, message: str | None = None) -> Any:
        return request.make(
            "DescribedGroup",
            error_code=code,
            error_message=message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
            authorized_operations=NO_OPERATIONS,
        )

    def describe(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        group = groups.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            turn.decision.answer(ticket, _described_consumer(broker, request, group, _operations(asked)))
            return
        reason = "not found" if group is None else "is not a consumer group"
        text = f"Group {group_id} {reason}."
        turn.decision.answer(ticket, failed(group_id, ErrorCode.group_id_not_found, text))

    def encode(groups: list[Any]) -> bytes:
        return request.respond(throttle_time=NO_THROTTLE, groups=tuple(groups))

    return _for_each(broker, asked.group_ids, describe, failed, encode, takes_empty=False)


def _described_consumer(broker: Broker, request: Request, group: ConsumerGroup, operations: int) -> Any:
    default = broker.settings.words("group.consumer.assignors")[0]
    return request.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_of(group.members.values(), default),
        members=tuple(_described_member(broker, request, group, each) for each in group.members.values()),
        authorized_operations=operations,
    )


def _described_member(broker: Broker, request: Request, group: ConsumerGroup, member: ConsumerMember) -> Any:
    value = member.value
    has = {topic_id: tuple(indexes) for topic_id, indexes in member.assigned.items()}
    for topic_id, indexes in member.revoking.items():  # until it has said that it has them no more
        has[topic_id] = (*has.get(topic_id, ()), *indexes)
    return request.make(
        "Member",
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        member_epoch=member.epoch,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=value.topics,
        subscribed_topic_regex=value.pattern or "",
        assignment=_assignment(broker, request, has),
        target_assignment=_assignment(broker, request, dict(group.targets.get(member.member_id, {}))),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(broker: Broker, request: Request, partitions: dict[bytes, tuple[int, ...]]) -> Any:
    topics = []
    for topic_id, indexes in partitions.items():
        topic = broker.image.topics_by_id.get(topic_id)
        if topic is not None:
            topics.append(
                request.make(
                    "TopicPartitions",
                    topic_id=to_uuid(topic_id),
                    topic_name=topic.name,
                    partitions=tuple(sorted(indexes)),
                )
            )
    return request.make("Assignment", topic_partitions=tuple(topics))


def handle_delete_groups(broker: Broker, request: Request) -> Result:
    """*Behaviour*: forgets groups that have no members, with all that they committed; each once."""
    group_ids = tuple(dict.fromkeys(request.decode().groups_names))

    def result(group_id: str, code: ErrorCode) -> Any:
        return request.make("DeletableGroupResult", group_id=group_id, error_code=code)

    def delete(groups: GroupCoordinator, turn: Turn, group_id: str, ticket: Part) -> None:
        groups.delete_group(turn, group_id, ticket)

    def encode(codes: list[ErrorCode]) -> bytes:
        results = tuple(result(group_id, code) for group_id, code in zip(group_ids, codes, strict=True))
        return request.respond(throttle_time=NO_THROTTLE, results=results)

    return _for_each(broker, group_ids, delete, lambda group_id, code: code, encode)
