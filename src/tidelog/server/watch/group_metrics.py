"""Groups on the metrics page: where each is in each partition and how far behind, by kafka-exporter's names.

**Invariant:** a piece of text has at most so many series as its maker says, and the loop goes on between two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.base.metrics import Family, labels_of
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.group_moves import GroupShard
from tidelog.broker.data_plane.shard import Shard

_NAME = "kafka_consumergroup_"
MEMBERS = Family(f"{_NAME}members", "gauge", "Members of a group.")
OFFSET = Family(f"{_NAME}current_offset", "gauge", "Offset that a group has committed.")
OFFSET_SUM = Family(f"{_NAME}current_offset_sum", "gauge", "The same, all partitions of a topic together.")
LAG = Family(f"{_NAME}lag", "gauge", "Records that a group has yet to commit.")
LAG_SUM = Family(f"{_NAME}lag_sum", "gauge", "The same, all partitions of a topic together.")

Number = Callable[[Broker, str, int, int], int]
Of = tuple[GroupShard, str]


def group_pieces(broker: Broker, series_max: int) -> Iterator[str]:
    shards = [shard for shard in broker.coordinators.all() if isinstance(shard, Shard)]
    groups = [(shard, group_id) for shard in shards for group_id in shard.machine.groups]
    yield MEMBERS.head()
    for start in range(0, len(groups), series_max):
        yield "".join(_member_lines(groups[start : start + series_max]))
    for family, sums, number in ((OFFSET, OFFSET_SUM, _offset), (LAG, LAG_SUM, _lag)):
        yield family.head()
        yield from _in_pieces(_partition_lines(broker, family, number, groups), series_max)
        yield sums.head()
        yield from _in_pieces(_topic_lines(broker, sums, number, groups), series_max)


def _in_pieces(lines: Iterator[str], series_max: int) -> Iterator[str]:
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) >= series_max:
            yield "".join(piece)
            piece = []
    yield "".join(piece)


def _member_lines(groups: list[Of]) -> Iterator[str]:
    for shard, group_id in groups:
        group = shard.machine.groups.get(group_id)
        if group is not None:
            yield MEMBERS.sample(len(group.members), labels_of(("consumergroup", group_id)))


def _partition_lines(broker: Broker, family: Family, number: Number, groups: list[Of]) -> Iterator[str]:
    for shard, group_id in groups:
        for (topic, partition), committed in list(shard.machine.offsets.of(group_id).items()):
            labels = labels_of(("consumergroup", group_id), ("topic", topic), ("partition", str(partition)))
            yield family.sample(number(broker, topic, partition, committed.offset), labels)


def _topic_lines(broker: Broker, family: Family, number: Number, groups: list[Of]) -> Iterator[str]:
    for shard, group_id in groups:
        sums: dict[str, int] = {}
        for (topic, partition), committed in shard.machine.offsets.of(group_id).items():
            sums[topic] = sums.get(topic, 0) + number(broker, topic, partition, committed.offset)
        for topic, total in sums.items():
            yield family.sample(total, labels_of(("consumergroup", group_id), ("topic", topic)))


def _offset(broker: Broker, topic: str, partition: int, offset: int) -> int:
    return offset


def _lag(broker: Broker, topic: str, partition: int, offset: int) -> int:
    found = broker.partitions.find(topic, partition)
    return max(found.high_watermark - offset, 0) if found is not None else 0
