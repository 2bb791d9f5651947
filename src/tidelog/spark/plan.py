"""The plan of a query: which partitions, from which to which offset, and which records are missing.

The rules are the JVM connector's. The caller asks the cluster and passes the answers in (`Seen`);
`topics_to_ask` and `time_lookups` say what to ask. `advance` plans the next batches of a stream.

**Invariant:** functions of their arguments: no I/O, no clock. Records that may have been deleted before they
were read are a `DataLoss`, never ignored; the caller decides whether it ends the query (`failOnDataLoss`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.spark.losses import DataLoss, Loss, lost, named, records
from tidelog.spark.option_forms import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Limit,
    Selection,
    Subscribe,
    SubscribePattern,
)
from tidelog.spark.ranges import RangeOf

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

Offsets = Mapping[TopicPartition, int]
ByTime = Mapping[TopicPartition, int | None]


class PlanError(ValueError):
    """A query that cannot be planned; the message says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the selected partitions in the cluster; `beginnings` at least where needed."""

    ends: Offsets
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    beginnings: Offsets = field(default_factory=dict)


class Selected(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...]  # named topics that do not exist


class Side(Enum):
    START = "starting"
    END = "ending"


class Bound(NamedTuple):
    """A limit and its offsets from `resolve`."""

    limit: Limit
    offsets: Offsets


class BatchPlan(NamedTuple):
    ranges: list[RangeOf]  # one for each partition, before filters and division
    losses: tuple[DataLoss, ...]


def topics_to_ask(selection: Selection) -> tuple[str, ...] | None:
    """The topics whose partitions must be known; None for all topics."""
    match selection:
        case Assign(partitions):
            return tuple(dict.fromkeys(partition.topic for partition in partitions))
        case Subscribe(topics):
            return topics
        case _:
            return None


def select(selection: Selection, topics: Mapping[str, Iterable[int]]) -> Selected:
    """The selected partitions of the given topics; never those of Kafka's internal topics."""
    there = [
        TopicPartition(name, index)
        for name in sorted(topics.keys() - INTERNAL_TOPICS)
        for index in sorted(topics[name])
    ]
    match selection:
        case Assign(partitions):
            assigned = frozenset(partitions)
            kept = [partition for partition in there if partition in assigned]
        case Subscribe(names):
            kept = [partition for partition in there if partition.topic in names]
        case SubscribePattern(pattern):
            found = re.compile(pattern).search
            kept = [partition for partition in there if found(partition.topic)]
    missing = [name for name in topics_to_ask(selection) or () if name not in topics]
    return Selected(tuple(kept), tuple(missing))


def missing_topics(selected: Selected) -> PlanError:
    return PlanError(f"missing topics: {', '.join(selected.missing)}; create them, or read others")


def time_lookups(limit: Limit, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The timestamps in milliseconds whose first offset `resolve` needs, by partition."""
    match limit:
        case AtTimestamp(timestamp_ms):
            return dict.fromkeys(partitions, timestamp_ms)
        case AtTimestamps(timestamps_ms):
            return dict(timestamps_ms)
        case _:
            return {}


def check_limit(limit: Limit, partitions: Sequence[TopicPartition], side: Side) -> None:
    """Check that a list of partitions in an option equals the selected partitions."""
    match limit:
        case AtOffsets(offsets):
            given, option, hint = offsets, f"{side.value}Offsets", ", with -1 for latest and -2 for earliest"
        case AtTimestamps(timestamps_ms):
            given, option, hint = timestamps_ms, f"{side.value}OffsetsByTimestamp", ""
        case _:
            return
    unknown, unnamed = sorted(given.keys() - set(partitions)), sorted(set(partitions) - given.keys())
    if unknown or unnamed:
        wrong = [f"{named(unknown)} is not read"] if unknown else []
        wrong += [f"{named(unnamed)} is read but not named"] if unnamed else []
        raise PlanError(f"{option}: expected each partition that is read{hint}, but {' and '.join(wrong)}")


def resolve(
    limit: Limit,
    side: Side,
    partitions: Sequence[TopicPartition],
    seen: Seen,
    by_time: ByTime,
    strategy: str = "error",
) -> dict[TopicPartition, int]:
    """The start or end of each partition; `by_time` has the answers to `time_lookups`, None for none."""
    check_limit(limit, partitions, side)
    match limit:
        case Edge.EARLIEST:
            return {partition: seen.beginnings[partition] for partition in partitions}
        case Edge.LATEST:
            return {partition: seen.ends[partition] for partition in partitions}
        case AtOffsets(offsets):
            edges = {EARLIEST_OFFSET: seen.beginnings, LATEST_OFFSET: seen.ends}
            return {p: edges[n][p] if (n := offsets[p]) in edges else n for p in partitions}
        case _:
            asked = time_lookups(limit, partitions)
            return {p: _at_time(p, asked[p], side, seen, by_time, strategy) for p in partitions}


def _at_time(
    partition: TopicPartition, timestamp_ms: int, side: Side, seen: Seen, by_time: ByTime, strategy: str
) -> int:
    found = by_time[partition]
    if found is not None:
        return found
    if side is Side.START and strategy == "error":
        raise PlanError(
            f"no record of {partition} has the timestamp {timestamp_ms} or a later one; to start at its end, "
            "set startingOffsetsByTimestampStrategy to latest"
        )
    return seen.ends[partition]


def plan_batch(starting: Bound, ending: Bound, seen: Seen) -> BatchPlan:
    """The offsets between the bounds that exist, and those that do not."""
    ranges: list[RangeOf] = []
    losses: list[DataLoss] = []
    for partition, start in sorted(starting.offsets.items()):
        end, begins, latest = ending.offsets[partition], seen.beginnings[partition], seen.ends[partition]
        if start > end and is_fixed(starting.limit, partition) and is_fixed(ending.limit, partition):
            raise PlanError(
                f"{partition} would start at offset {start} and end at {end}: check the starting and the "
                "ending offsets or timestamps, and whether the topic was created again"
            )
        if start < end:
            losses += _unreadable(partition, start, end, begins, latest)
        topic, index = partition
        found = RangeOf(topic, seen.topic_ids.get(topic), index, max(start, begins), min(end, latest))
        ranges.append(found)
    return BatchPlan(ranges, tuple(losses))


def is_fixed(limit: Limit, partition: TopicPartition) -> bool:
    """Whether the offset was given or found by timestamp, and is not just the earliest or latest."""
    if isinstance(limit, AtOffsets):
        return limit.offsets[partition] not in (EARLIEST_OFFSET, LATEST_OFFSET)
    return not isinstance(limit, Edge)


def _unreadable(
    partition: TopicPartition, start: int, end: int, begins: int, latest: int
) -> Iterable[DataLoss]:
    if start < begins:
        last = min(begins, end) - 1
        yield lost(Loss.AGED_OUT, partition, f"begins at offset {begins}: {records(start, last)} gone")
    if end > latest:
        first = max(start, latest)
        yield lost(Loss.NOT_THERE, partition, f"ends at offset {latest}: {records(first, end - 1)} not there")
