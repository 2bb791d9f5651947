"""OffsetDelete: what a group committed is forgotten, for some partitions."""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.handlers.group_coordination import coordinate
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode


def handle_offset_delete(broker: Broker, request: Request) -> Result:
    """*Behaviour*: forgets what a group committed, but not for topics that its members consume."""
    asked = request.decode()
    known = broker.image.topics
    spots = [
        (topic.name, part.partition_index)
        for topic in asked.topics
        if topic.name in known
        for part in topic.partitions
        if 0 <= part.partition_index < len(known[topic.name].partitions)
    ]

    def encode(answer: tuple[ErrorCode, list[ErrorCode]]) -> bytes:
        if answer[0] is not ErrorCode.none:
            return refuse(answer[0])
        codes = dict(zip(spots, answer[1], strict=True))
        unknown = ErrorCode.unknown_topic_or_partition
        topics = tuple(
            request.make(
                "OffsetDeleteResponseTopic",
                name=topic.name,
                partitions=tuple(
                    request.make(
                        "OffsetDeleteResponsePartition",
                        partition_index=part.partition_index,
                        error_code=codes.get((topic.name, part.partition_index), unknown),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in asked.topics
        )
        return request.respond(error_code=ErrorCode.none, topics=topics)

    def refuse(code: ErrorCode) -> bytes:
        return request.respond(error_code=code, topics=())

    if not asked.group_id:
        return refuse(ErrorCode.invalid_group_id)
    return coordinate(
        broker,
        asked.group_id,
        lambda ticket: lambda groups, turn: groups.delete_offsets(turn, asked.group_id, spots, ticket),
        encode,
        refuse,
    )
