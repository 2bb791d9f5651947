"""A cluster whose topics are compacted all the time: a reader ends with the newest values, whatever happens.

Producers write a few keys over and over. Cleanings run beside everything that goes wrong; a replica cleans
for itself, so the bytes of two replicas differ. A record may be missing if a newer one of its key is there.

**Invariant:** a record that was acknowledged, or read, is there or superseded; never another in its place.
"""

from __future__ import annotations

from tests.sim.cluster import World
from tests.sim.cluster_checkers import (
    CommittedNeverLost,
    ConsistentRead,
    LeaderHasAll,
    ReplicasAgreeBelowHighWatermark,
    read_all,
)
from tests.sim.cluster_clients import Producer, Spot, split_batches
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_plan import Plan, TopicPlan
from tidelog.log.log import Log
from tidelog.protocol.records import read_records
from tidelog.replication.partition import Partition

KEY_COUNT = 5
Found = dict[int, bytes]  # values by offset


def key_of(value: bytes) -> bytes:
    """By the number of the record: producers share the keys."""
    return b"k%d" % (int(value.rpartition(b":")[2]) % KEY_COUNT)


def records_of(log: Log) -> Found:
    return records_in([bytes(batch) for batch in split_batches(memoryview(read_all(log)))])


def records_in(batches: list[bytes]) -> Found:
    found: Found = {}
    for batch in batches:
        for record in read_records(batch):
            assert record.value is not None
            found[record.offset] = record.value
    if list(found) != sorted(found):
        raise Violation(f"offsets do not ascend: {list(found)}")
    return found


def newest(found: Found) -> dict[bytes, int]:
    """The last offset of each key."""
    return {key_of(value): offset for offset, value in found.items()}


def check_has(known: Found, found: Found, what: str) -> None:
    """What is known is there, or a newer record of its key is."""
    last = newest(found)
    for offset, value in known.items():
        there = found.get(offset)
        if there != value and (there is not None or last.get(key_of(value), -1) <= offset):
            raise Violation(f"{what}: {value!r} at {offset}; there is {there!r}, {last}")


class KeyedProducer(Producer):
    def key_of(self, value: bytes) -> bytes | None:
        return key_of(value)


class CompactedRead(ConsistentRead):
    def on_read(self, spot: Spot, batch: bytes) -> None:
        self._note(spot, batch)


class CompactedLeader(LeaderHasAll):
    def _judge(self, world: World, spot: Spot, leader: Partition, who: str) -> None:
        found = records_of(leader.log)
        for what, values in (("acknowledged", world.kept.acknowledged), ("read", world.reads.values)):
            check_has(values.get(spot, {}), found, f"{who}; {what}")


class CompactedKept(CommittedNeverLost):
    def at_end(self, spot: Spot, batches: list[bytes]) -> None:
        found = records_in(batches)
        check_has(self.acknowledged.get(spot, {}), found, f"{spot} lost")
        if len(set(found.values())) != len(found):
            raise Violation(f"{spot} has something twice")
        there, last = set(found.values()), newest(found)
        missing = [
            value for value in self.values_sent(spot) if value not in there and key_of(value) not in last
        ]
        if missing:
            raise Violation(f"{spot} lost {missing}")


class CompactedReplicas(ReplicasAgreeBelowHighWatermark):
    """What one has below its high watermark all others have there, or a newer record of the key."""

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[tuple[bytes, int], Found] = {}

    def _compare(self, node_id: int, life: int, partition: Partition) -> None:
        end = partition.high_watermark
        found = records_of(partition.log)
        known = self._committed.setdefault((partition.topic_id, partition.index), {})
        who = f"{partition.topic}-{partition.index} on {node_id}"
        check_has({offset: value for offset, value in known.items() if offset < end}, found, who)
        known |= {offset: value for offset, value in found.items() if offset < end}


class CompactedWorld(World):
    leaders_kind, reads_kind = CompactedLeader, CompactedRead
    kept_kind, replicas_kind = CompactedKept, CompactedReplicas
    producer_kind = KeyedProducer

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _compact)


def _compact(plan: Plan) -> None:
    plan.topics = [CompactedTopic(**{name: getattr(each, name) for name in _FIELDS}) for each in plan.topics]
    for topic in plan.topics:  # a follower that flushes gets a segment at a time, and must catch up
        topic.segment_bytes = 8_000 if topic.is_flushed else 1_500
    plan.properties |= {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "3000"}


class CompactedTopic(TopicPlan):
    @property
    def config(self) -> dict[str, str]:
        return {
            **super().config,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.05",
            "max.compaction.lag.ms": "1000",
        }


_FIELDS = ("name", "partition_count", "replica_count", "min_insync", "is_flushed", "segment_bytes")
