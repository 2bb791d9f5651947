"""The first offset, the end, or the offset at a time, of many partitions, with one request to each leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import explain
from tidelog.cli.failure import Failure
from tidelog.cli.group_members import Partition

_NOT_THERE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


class End(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Moment:
    timestamp_ms: int


def find_offsets(
    admin: AdminClient, bootstrap_server: str, wanted: Mapping[Partition, End | Moment]
) -> dict[Partition, int | None]:
    """The offset of each; None for a partition without a leader, or without a record as new as the time."""
    if not wanted:
        return {}
    asked = {TopicPartition(partition.topic, partition.number): _spec(of) for partition, of in wanted.items()}
    found: dict[Partition, int | None] = {}
    for place, future in admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S).items():
        partition = Partition(place.topic, place.partition)
        try:
            offset = future.result().offset
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE:
                raise Failure(
                    f"partition {partition.number} of {partition.topic!r}: {explain(error, bootstrap_server)}"
                ) from None
            offset = -1
        found[partition] = offset if offset >= 0 else None
    return found


def _spec(of: End | Moment) -> Any:
    if isinstance(of, Moment):
        return OffsetSpec.for_timestamp(of.timestamp_ms)
    made = OffsetSpec.earliest if of is End.EARLIEST else OffsetSpec.latest
    return made()  # type: ignore[no-untyped-call]
