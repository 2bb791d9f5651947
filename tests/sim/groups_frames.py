"""A line to the broker of whole request frames, each on a connection of its own.

**Invariant:** what comes back are the same values that the coordinator gives, read from the response frame.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from tests.sim.groups import Beat, Call, Fetch, GroupNode, Leave, Request
from tests.wire.group_requests import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    beat_values,
    consumer_beat_values,
    join_values,
    leave_values,
    sync_values,
)
from tests.wire.harness import decode_answer, joined, parts, request_frame, seconds
from tidelog.broker.clients import Client
from tidelog.groups.classic_member import Join, JoinAnswer, Sync, SyncAnswer
from tidelog.groups.heartbeat import Heartbeat, HeartbeatAnswer
from tidelog.groups.offsets import CommitAsk
from tidelog.handlers.table import dispatch
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode

_JOIN, _SYNC, _BEAT, _LEAVE, _COMMIT, _FETCH, _CONSUMER = 9, 5, 4, 5, 9, 9, 1  # versions


class _Sent(NamedTuple):
    call: Call
    client: Client
    api_key: int
    version: int


class FrameLine:
    def __init__(self, node: GroupNode) -> None:
        self._node = node
        self._open: list[_Sent] = []

    def send(self, request: Request) -> Call:
        call = Call(request)
        api_key, version, values = _values(request)
        sent = _Sent(call, Client(Connection(1 << 24)), api_key, version)
        frame = bytearray(request_frame(api_key, version, 1, **values))
        self._open.append(sent)
        dispatch(self._node.broker, sent.client, memoryview(frame))
        self._node.settle()
        self.poll()
        return call

    def poll(self) -> None:
        for sent in self._open:
            connection = sent.client.connection
            output, connection.output = connection.output, []
            for frame in output:
                answer = decode_answer(sent.api_key, sent.version, joined(frame), 1)
                sent.call.hear(_read(sent.call.request, answer))
        self._open = [sent for sent in self._open if not sent.call.is_over]


def _values(request: Request) -> tuple[int, int, dict[str, Any]]:
    match request:
        case Join():
            values = join_values(
                _JOIN,
                request.member_id,
                group_id=request.group_id,
                instance_id=request.instance_id,
                session_ms=request.session_timeout_ms,
                rebalance_ms=request.rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=request.protocols,
            )
            return JOIN_GROUP, _JOIN, values
        case Sync():
            values = sync_values(
                _SYNC,
                request.member_id,
                request.generation,
                dict(request.assignments),
                group_id=request.group_id,
                instance_id=request.instance_id,
                protocol=(request.protocol_type, request.protocol_name),
            )
            return SYNC_GROUP, _SYNC, values
        case Beat():
            values = beat_values(
                request.member_id,
                request.generation,
                group_id=request.group_id,
                instance_id=request.instance_id,
            )
            return HEARTBEAT, _BEAT, values
        case Leave():
            leaving = [(each.member_id, each.instance_id) for each in request.leaving]
            return LEAVE_GROUP, _LEAVE, leave_values(_LEAVE, *leaving, group_id=request.group_id)
        case Heartbeat():
            return CONSUMER_HEARTBEAT, _CONSUMER, _consumer_values(request)
        case CommitAsk():
            return OFFSET_COMMIT, _COMMIT, _commit_values(request)
        case Fetch():
            return OFFSET_FETCH, _FETCH, _fetch_values(request)


def _consumer_values(beat: Heartbeat) -> dict[str, Any]:
    reported = beat.reported
    owned = {UUID(bytes=topic_id): list(indexes) for topic_id, indexes in (reported or {}).items()}
    values = consumer_beat_values(
        _CONSUMER,
        beat.member_id,
        beat.epoch,
        group_id=beat.group_id,
        owned=owned,
        instance_id=beat.instance_id,
        rebalance_timeout=seconds(beat.rebalance_timeout_ms / 1_000),
        subscribed_topic_names=beat.topics,
        subscribed_topic_regex=beat.pattern,
        server_assignor=beat.assignor,
    )
    return values if reported is not None else {**values, "topic_partitions": None}


def _commit_values(asked: CommitAsk) -> dict[str, Any]:
    part = parts(OFFSET_COMMIT, _COMMIT)
    topics = tuple(
        part.OffsetCommitRequestTopic(
            name=commit.topic,
            partitions=(
                part.OffsetCommitRequestPartition(
                    partition_index=commit.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=commit.leader_epoch,
                    committed_metadata=commit.metadata,
                ),
            ),
        )
        for commit in asked.commits
    )
    return {
        "group_id": asked.group_id,
        "generation_id_or_member_epoch": asked.epoch,
        "member_id": asked.member_id,
        "group_instance_id": asked.instance_id,
        "topics": topics,
    }


def _fetch_values(asked: Fetch) -> dict[str, Any]:
    part = parts(OFFSET_FETCH, _FETCH)
    topic = part.OffsetFetchRequestTopics(name=asked.topic, partition_indexes=(asked.partition,))
    group = part.OffsetFetchRequestGroup(
        group_id=asked.group_id, member_id=None, member_epoch=-1, topics=(topic,)
    )
    return {"groups": (group,), "require_stable": True}


def _read(request: Request, answer: Any) -> Any:
    match request:
        case Join():
            return JoinAnswer(
                ErrorCode(answer.error_code),
                answer.member_id,
                answer.generation_id,
                answer.protocol_type,
                answer.protocol_name,
                answer.leader,
                tuple((each.member_id, each.group_instance_id, each.metadata) for each in answer.members),
                answer.skip_assignment,
            )
        case Sync():
            return SyncAnswer(
                ErrorCode(answer.error_code), answer.protocol_type, answer.protocol_name, answer.assignment
            )
        case Beat():
            return ErrorCode(answer.error_code)
        case Leave():
            if answer.error_code:
                return [ErrorCode(answer.error_code)] * len(request.leaving)
            return [ErrorCode(each.error_code) for each in answer.members]
        case Heartbeat():
            return _read_heartbeat(answer)
        case CommitAsk():
            return [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
        case Fetch():
            if answer.groups[0].error_code:
                return ErrorCode(answer.groups[0].error_code)
            offset = answer.groups[0].topics[0].partitions[0].committed_offset
            return offset if offset >= 0 else None


def _read_heartbeat(answer: Any) -> HeartbeatAnswer:
    assigned = None
    if answer.assignment is not None:
        assigned = {
            each.topic_id.bytes: dict.fromkeys(each.partitions, 0)
            for each in answer.assignment.topic_partitions
        }
    return HeartbeatAnswer(
        ErrorCode(answer.error_code),
        answer.error_message,
        answer.member_id,
        answer.member_epoch,
        round(answer.heartbeat_interval.total_seconds() * 1_000),
        assigned,
    )
