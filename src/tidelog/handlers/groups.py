"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat: being a member of a group.

**Invariant:** a request for a group that is not here, or not loaded yet, is told so and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.broker.shard import Awaited, Command
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Sync, SyncAnswer
from tidelog.groups.heartbeat import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Heartbeat, HeartbeatAnswer
from tidelog.handlers.request import NO_THROTTLE, Request, Result
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.group_heartbeat import decode_group_heartbeat, encode_group_heartbeat
from tidelog.protocol.membership import (
    JoinResponse,
    decode_heartbeat,
    decode_join,
    decode_sync,
    encode_heartbeat,
    encode_join,
    encode_sync,
)

WAIT_MS_MAX = 24 * 60 * 60 * 1_000  # a group decides when its members are answered; this is for the worst
_LEAVE_BATCH_VERSION = 3
_MEMBER_ID_VERSION = 4
_SKIP_VERSION = 9
_PROTOCOL_SAID_VERSION = 5
_CLIENT_ID_VERSION = 1


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
    deadline_ms = commit_deadline(broker) if wait_ms is None else broker.uptime_ms + wait_ms
    ticket = Awaited(broker, deadline_ms, encode, refuse)
    if not broker.coordinators.run(shard, command(ticket)):
        return refuse(ErrorCode.coordinator_load_in_progress)
    return ticket.result()


def commit_deadline(broker: Broker) -> int:
    return broker.uptime_ms + broker.settings.number("offsets.commit.timeout.ms")


def client_of(request: Request) -> tuple[str, str]:
    """The client's name for itself, and its address as Kafka writes it."""
    return request.client_id or "", f"/{request.connection.peer[0]}"


def handle_join_group(broker: Broker, request: Request) -> Result:
    """*Behaviour*: waits until the generation begins; the leader gets everybody's subscription.

    *Versions*: 1 adds the rebalance timeout; 4 has new members come back with the id they are given; 5 adds
    static members; 7 may have no protocol; 9 lets a returning leader skip the assignment.
    """
    version, correlation_id = request.version, request.correlation_id
    asked = decode_join(version, request.data, request.position)
    join = Join(
        asked.group_id,
        asked.member_id,
        asked.instance_id,
        *client_of(request),
        asked.session_timeout_ms,
        asked.rebalance_timeout_ms,
        asked.protocol_type,
        asked.protocols,
        version >= _MEMBER_ID_VERSION,
        version >= _SKIP_VERSION,
    )

    def encode(answer: JoinAnswer) -> bytes:
        response = JoinResponse(
            answer.error.value,
            answer.generation,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader_id,
            answer.skips_assignment,
            answer.member_id,
            answer.members,
        )
        return encode_join(version, correlation_id, response)

    def refuse(code: ErrorCode) -> bytes:
        return encode(JoinAnswer(code, join.member_id))

    if not join.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        join.group_id,
        lambda ticket: lambda groups, turn: groups.join(turn, join, ticket),
        encode,
        refuse,
        WAIT_MS_MAX,
    )


def handle_sync_group(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the leader brings everybody's assignment; each gets its own when that is in the journal.

    *Versions*: 3 adds static members; 5 says by which protocol, and is told.
    """
    version, correlation_id = request.version, request.correlation_id
    asked = decode_sync(version, request.data, request.position)
    sync = Sync(
        asked.group_id,
        asked.member_id,
        asked.instance_id,
        asked.generation,
        asked.protocol_type,
        asked.protocol_name,
        asked.assignments,
    )

    def encode(answer: SyncAnswer) -> bytes:
        code = answer.error.value
        return encode_sync(
            version, correlation_id, code, answer.protocol_type, answer.protocol_name, answer.assignment
        )

    def refuse(code: ErrorCode) -> bytes:
        return encode(SyncAnswer(code))

    if request.version >= _PROTOCOL_SAID_VERSION and None in (sync.protocol_type, sync.protocol_name):
        return refuse(ErrorCode.inconsistent_group_protocol)
    if not sync.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        sync.group_id,
        lambda ticket: lambda groups, turn: groups.sync(turn, sync, ticket),
        encode,
        refuse,
        WAIT_MS_MAX,
    )


def handle_heartbeat(broker: Broker, request: Request) -> Result:
    """*Behaviour*: renews the session; REBALANCE_IN_PROGRESS asks the member to join again.

    *Versions*: 3 adds static members.
    """
    version, correlation_id = request.version, request.correlation_id
    asked = decode_heartbeat(version, request.data, request.position)
    beat = Sync(asked.group_id, asked.member_id, asked.instance_id, asked.generation, None, None, {})

    def encode(code: ErrorCode) -> bytes:
        return encode_heartbeat(version, correlation_id, code.value)

    if not beat.group_id:
        return encode(ErrorCode.invalid_group_id)

    def refuse(code: ErrorCode) -> bytes:
        # While the coordinator loads, the member is as well as it was.
        return encode(ErrorCode.none if code is ErrorCode.coordinator_load_in_progress else code)

    return coordinate(
        broker,
        beat.group_id,
        lambda ticket: lambda groups, turn: groups.heartbeat(turn, beat, ticket),
        encode,
        refuse,
    )


def handle_leave_group(broker: Broker, request: Request) -> Result:
    """*Behaviour*: members go, and the group rebalances without them.

    *Versions*: 3 names many members, and static ones by their instance id alone.
    """
    asked = request.decode()
    if request.version < _LEAVE_BATCH_VERSION:
        leaving = [Leaving(asked.member_id, None)]
    else:
        leaving = [Leaving(each.member_id, each.group_instance_id) for each in asked.members]

    def encode(codes: list[ErrorCode]) -> bytes:
        if request.version < _LEAVE_BATCH_VERSION:
            return request.respond(throttle_time=NO_THROTTLE, error_code=codes[0])
        members = tuple(
            request.make(
                "MemberResponse",
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=code,
            )
            for each, code in zip(leaving, codes, strict=True)
        )
        return request.respond(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=members)

    def refuse(code: ErrorCode) -> bytes:
        return request.respond(throttle_time=NO_THROTTLE, error_code=code, members=())

    if not asked.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        asked.group_id,
        lambda ticket: lambda groups, turn: groups.leave(turn, asked.group_id, leaving, ticket),
        encode,
        refuse,
    )


def handle_consumer_group_heartbeat(broker: Broker, request: Request) -> Result:
    """*Behaviour*: joins, stays in or leaves a group whose partitions the coordinator shares out (KIP-848).

    *Versions*: 1 has clients make their own member id, and subscribe by pattern.
    """
    asked = decode_group_heartbeat(request.version, request.data, request.position)
    beat = Heartbeat(*asked, *client_of(request))

    def encode(answer: HeartbeatAnswer) -> bytes:
        return encode_group_heartbeat(request.correlation_id, *answer)

    def refuse(code: ErrorCode) -> bytes:
        return encode(HeartbeatAnswer(code))

    problem = _problem_of(beat, request.version)
    if problem is not None:
        return encode(HeartbeatAnswer(ErrorCode.invalid_request, problem))
    if "consumer" not in broker.settings.words("group.coordinator.rebalance.protocols"):
        return refuse(ErrorCode.unsupported_version)
    return coordinate(
        broker,
        beat.group_id,
        lambda ticket: lambda groups, turn: groups.consumer_heartbeat(turn, beat, ticket),
        encode,
        refuse,
    )


def _problem_of(beat: Heartbeat, version: int) -> str | None:
    """What makes a heartbeat senseless, in Kafka's words."""
    is_joining = beat.epoch == JOIN_EPOCH
    if not beat.group_id.strip():
        return "GroupId can't be empty."
    if beat.instance_id is not None and not beat.instance_id.strip():
        return "InstanceId can't be empty."
    if beat.rack_id is not None and not beat.rack_id.strip():
        return "RackId can't be empty."
    if not beat.member_id.strip() and (version >= _CLIENT_ID_VERSION or not is_joining):
        return "MemberId can't be empty."
    if beat.epoch < STATIC_LEAVE_EPOCH:
        return f"MemberEpoch is {beat.epoch}, but must be greater than or equal to -2."
    if beat.epoch == STATIC_LEAVE_EPOCH and beat.instance_id is None:
        return "InstanceId can't be null."
    return _joining_problem_of(beat) if is_joining else None


def _joining_problem_of(beat: Heartbeat) -> str | None:
    if beat.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if beat.reported is None or beat.reported:
        return "TopicPartitions must be empty when (re-)joining."
    if beat.topics is None and beat.pattern is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None
