"""The ranges of offsets that tasks read: the offsets between two positions, and their division.

The division equals that of the JVM connector, including rounding, so that the same options give the same
tasks: first `maxRecordsPerPartition`, then, if there are too few ranges, `minPartitions`, which divides large
ranges in proportion to their size and keeps small ones whole.

**Invariant:** both are functions of their arguments alone, so a repeated batch has the same ranges. The
ranges of a partition touch and do not overlap; none is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.spark.positions import NO_TOPIC_ID, Positions, Split


class RangeOf(NamedTuple):
    """Offsets from `start` up to but not including `end`; empty if there are none."""

    topic: str
    topic_id: bytes | None
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def between(start: Positions, end: Positions) -> list[RangeOf]:
    """The ranges of a batch from `start` to `end`, divided as `end` says."""
    if start == end:
        return []
    found = []
    for partition, end_offset in end.offsets.items():
        topic, index = partition
        topic_id = end.topic_ids.get(topic)
        found.append(RangeOf(topic, topic_id, index, _begin(partition, start, end), end_offset))
    return cut(found, end.split)


def was_made_again(topic: str, before: Positions, topic_id: bytes | None) -> bool:
    """Whether the topic has another id than before; False unless both ids are known."""
    known = before.topic_ids.get(topic)
    return known is not None and topic_id not in (None, NO_TOPIC_ID, known)


def _begin(partition: TopicPartition, start: Positions, end: Positions) -> int:
    if partition in end.starts:
        return end.starts[partition]
    if was_made_again(partition.topic, start, end.topic_ids.get(partition.topic)):
        return 0
    return start.offsets.get(partition, 0)


def cut(ranges: Iterable[RangeOf], split: Split) -> list[RangeOf]:
    whole = sorted(each for each in ranges if each.size > 0)
    if split.max_records_per_partition is not None:
        most = split.max_records_per_partition
        whole = [part for each in whole for part in _parts(each, math.ceil(each.size / most))]
    if split.min_partitions is not None and split.min_partitions > len(whole):
        return _cut_in_proportion(whole, split.min_partitions)
    return whole


def _cut_in_proportion(ranges: list[RangeOf], least: int) -> list[RangeOf]:
    total = sum(each.size for each in ranges)
    small = [each for each in ranges if _part_count(each.size, total, least) == 1]
    # If one piece of a partition is small, all its pieces are kept whole.
    left_whole = {each.topic_partition for each in small}
    rest = total - sum(each.size for each in small)
    rest_least = least - len(small)
    counts = [
        1 if each.topic_partition in left_whole else _part_count(each.size, rest, rest_least)
        for each in ranges
    ]
    return [part for each, count in zip(ranges, counts, strict=True) for part in _parts(each, count)]


def _part_count(size: int, total: int, least: int) -> int:
    exact = size / total * least
    below = math.floor(exact)
    return max(below + (exact - below >= 0.5), 1)


def _parts(whole: RangeOf, count: int) -> Iterator[RangeOf]:
    """That many pieces of about equal size, without empty ones; the last pieces get the remainder."""
    start, remaining = whole.start, whole.size
    for index in range(count):
        size = remaining // (count - index)
        remaining -= size
        if size > 0:
            yield whole._replace(start=start, end=start + size)
        start += size
