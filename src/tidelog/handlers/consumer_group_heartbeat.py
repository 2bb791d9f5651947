"""ConsumerGroupHeartbeat: being a member of a group whose partitions the coordinator shares out (KIP-848)."""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.groups.heartbeat import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Heartbeat, HeartbeatAnswer
from tidelog.handlers.group_coordination import client_of, coordinate
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.group_heartbeat import decode_group_heartbeat, encode_group_heartbeat

_CLIENT_ID_VERSION = 1


def handle_consumer_group_heartbeat(broker: Broker, request: Request) -> Result:
    """*Behaviour*: joins, stays in or leaves a group whose partitions the coordinator shares out (KIP-848).

    *Versions*: 1 has clients make their own member id, and subscribe by pattern.
    """
    asked = decode_group_heartbeat(request.version, request.data, request.position)
    beat = Heartbeat(*asked, *client_of(request))

    def encode(answer: HeartbeatAnswer) -> bytes:
        return encode_group_heartbeat(request.correlation_id, request.client.throttle_time_ms, *answer)

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
