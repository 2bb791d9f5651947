"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: being a member of a classic group."""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Sync, SyncAnswer
from tidelog.handlers.group_coordination import client_of, coordinate
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode
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


def handle_join_group(broker: Broker, request: Request) -> Result:
    """*Behaviour*: waits until the generation begins; the leader gets everybody's subscription.

    *Versions*: 1 adds the rebalance timeout; 4 has new members come back with the id they are given; 5 adds
    static members; 7 may have no protocol; 9 lets a returning leader skip the assignment.
    """
    version, correlation_id, client = request.version, request.correlation_id, request.client
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
        return encode_join(version, correlation_id, client.throttle_time_ms, response)

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
    version, correlation_id, client = request.version, request.correlation_id, request.client
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
        said = answer.protocol_type, answer.protocol_name
        throttle_time_ms = client.throttle_time_ms
        return encode_sync(version, correlation_id, throttle_time_ms, code, *said, answer.assignment)

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
    version, correlation_id, client = request.version, request.correlation_id, request.client
    asked = decode_heartbeat(version, request.data, request.position)
    beat = Sync(asked.group_id, asked.member_id, asked.instance_id, asked.generation, None, None, {})

    def encode(code: ErrorCode) -> bytes:
        return encode_heartbeat(version, correlation_id, client.throttle_time_ms, code.value)

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
            return request.respond(error_code=codes[0])
        members = tuple(
            request.make(
                "MemberResponse",
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=code,
            )
            for each, code in zip(leaving, codes, strict=True)
        )
        return request.respond(error_code=ErrorCode.none, members=members)

    def refuse(code: ErrorCode) -> bytes:
        return request.respond(error_code=code, members=())

    if not asked.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        asked.group_id,
        lambda ticket: lambda groups, turn: groups.leave(turn, asked.group_id, leaving, ticket),
        encode,
        refuse,
    )
