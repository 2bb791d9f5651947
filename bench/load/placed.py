"""Topics of a cluster whose replicas stand where the benchmark puts them, and load for their leaders.

Both clusters get the same placement, so the same brokers lead as many partitions; a producer has one
connection to each leader, as real ones have.

**Invariant:** a topic is handed out when every replica is in sync and every partition has taken a record: the
followers of a new one are slow to ask for it, up to a second. Its files are gone from every broker before the
next one is made.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kio.schema.create_topics.v7 import request as create_request
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponsePartition
from kio.schema.produce.v11.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i64

from bench.arena import FILES_GONE_SECONDS_MAX, Sample, timed
from bench.load import pipeline
from bench.load.admin import LATEST, Admin, Refused, metadata_frame, milliseconds, read_response
from bench.load.batches import Batch, build_batch
from bench.load.frames import produce_frame, produce_layout, produce_many_frame
from bench.load.memory import take_back
from bench.load.pipeline import BadAnswer, Lane
from bench.peers.clusters import RunningCluster

IN_FLIGHT = 5
ONE_RECORD = build_batch(1, 100)
READY_SECONDS_MAX = 120.0
POLL_SECONDS = 0.02
SETTINGS = {"min.insync.replicas": "2"}
_topic_numbers = itertools.count()


@dataclass(frozen=True)
class PlacedTopic:
    """`placement` has the replicas of each partition, its leader first."""

    name: str
    placement: Sequence[Sequence[int]]
    cluster: RunningCluster

    def led_by(self) -> dict[int, list[int]]:
        """The partitions of each leader."""
        led: dict[int, list[int]] = {}
        for partition, replicas in enumerate(self.placement):
            led.setdefault(replicas[0], []).append(partition)
        return led

    def end_offset(self) -> int:
        """The sum of the log end offsets of all partitions."""
        return sum(self._end_offset_at(leader, partitions) for leader, partitions in self.led_by().items())

    def _end_offset_at(self, leader: int, partitions: Sequence[int]) -> int:
        asked = tuple(
            offsets_request.ListOffsetsPartition(partition_index=i32(index), timestamp=i64(LATEST))
            for index in partitions
        )
        topic = offsets_request.ListOffsetsTopic(name=TopicName(self.name), partitions=asked)
        request = offsets_request.ListOffsetsRequest(
            replica_id=BrokerId(-1), isolation_level=i8(0), topics=(topic,)
        )
        with Admin(*self.cluster.nodes[leader].address) as admin:
            answers = admin.call(request, ListOffsetsResponse).topics[0].partitions
        for answer in answers:
            if answer.error_code is not ErrorCode.none:
                raise Refused(f"offsets of {self.name}: {answer.error_code.name}")
        return sum(answer.offset for answer in answers)


def spread(partition_count: int, numbers: Sequence[int]) -> list[list[int]]:
    """Led by each in turn, with replicas on all."""
    count = len(numbers)
    return [
        [numbers[(partition + step) % count] for step in range(count)] for partition in range(partition_count)
    ]


def all_led_by(leader: int, partition_count: int, numbers: Sequence[int]) -> list[list[int]]:
    """All led by one, with replicas on all; those that are next in line take turns."""
    others = [number for number in numbers if number != leader]
    return [[leader, *replicas] for replicas in spread(partition_count, others)]


def create(cluster: RunningCluster, placement: Sequence[Sequence[int]]) -> PlacedTopic:
    topic = PlacedTopic(f"bench-{next(_topic_numbers):05d}", placement, cluster)
    assignments = tuple(
        create_request.CreatableReplicaAssignment(
            partition_index=i32(partition), broker_ids=tuple(map(BrokerId, replicas))
        )
        for partition, replicas in enumerate(placement)
    )
    configs = tuple(
        create_request.CreatableTopicConfig(name=key, value=value) for key, value in SETTINGS.items()
    )
    wanted = create_request.CreatableTopic(
        name=TopicName(topic.name),
        num_partitions=i32(-1),
        replication_factor=i16(-1),
        assignments=assignments,
        configs=configs,
    )
    request = create_request.CreateTopicsRequest(topics=(wanted,), timeout=milliseconds(60_000))
    with Admin(*cluster.nodes[1].address) as admin:
        result = admin.call(request, CreateTopicsResponse).topics[0]
    if result.error_code is not ErrorCode.none:
        raise Refused(f"creating {topic.name}: {result.error_code.name} {result.error_message}")
    _await(lambda: _is_ready(topic), f"{topic.name} is not led and in sync", READY_SECONDS_MAX)
    for leader, partitions in topic.led_by().items():
        with Admin(*cluster.nodes[leader].address) as admin:
            if missing := set(partitions) - set(written(admin, topic.name, partitions)):
                raise BadAnswer(f"{len(missing)} partitions of {topic.name} did not take a record")
    return topic


def written(admin: Admin, topic: str, partitions: Sequence[int]) -> Iterator[int]:
    """Those that acknowledge one record, all sent to one broker in one request."""
    answer = read_response(admin.exchange(produce_many_frame(topic, partitions, ONE_RECORD)), ProduceResponse)
    for partition in answer.responses[0].partition_responses:
        if partition.error_code is ErrorCode.none:
            yield partition.index


@contextmanager
def fresh_topic(cluster: RunningCluster, partition_count: int) -> Iterator[PlacedTopic]:
    """A topic for one measurement, spread over all brokers."""
    topic = create(cluster, spread(partition_count, cluster.node_numbers()))
    yield topic
    with Admin(*cluster.nodes[1].address) as admin:
        admin.delete_topic(topic.name)
    folders = [node.log_directory for node in cluster.nodes.values()]
    _await(
        lambda: not any(True for folder in folders for _ in folder.glob(f"{topic.name}-*")),
        f"{cluster.name} still has files of the deleted topic {topic.name}",
        FILES_GONE_SECONDS_MAX,
    )


def partitions_of(admin: Admin, topic: str) -> tuple[MetadataResponsePartition, ...]:
    """What a broker's metadata says about each partition."""
    return read_response(admin.exchange(metadata_frame((topic,))), MetadataResponse).topics[0].partitions


def produce(topic: PlacedTopic, batch: Batch, byte_count: int) -> Sample:
    """Records per second over so many bytes; big batches, five requests in flight to each leader."""
    before = topic.end_offset()
    take_back(byte_count * len(topic.placement[0]))
    lanes = [
        Lane(
            topic.cluster.nodes[leader].address,
            [produce_frame(topic.name, partition, batch) for partition in partitions],
            1,
            IN_FLIGHT,
            produce_layout(topic.name),
        )
        for leader, partitions in topic.led_by().items()
    ]
    count = byte_count // batch.size // len(lanes)
    try:
        sample = timed(topic.cluster, lambda: pipeline.run(lanes, frame_count=count), batch.record_count)
    finally:
        pipeline.close(lanes)
    acknowledged = sum(lane.answered_count for lane in lanes) * batch.record_count
    if (kept := topic.end_offset() - before) != acknowledged:
        raise BadAnswer(f"{topic.cluster.name} acknowledged {acknowledged} records and kept {kept}")
    return sample


def _is_ready(topic: PlacedTopic) -> bool:
    try:
        for node in topic.cluster.nodes.values():
            with Admin(*node.address) as admin:
                known = {each.partition_index: each for each in partitions_of(admin, topic.name)}
            for partition, replicas in enumerate(topic.placement):
                found = known.get(i32(partition))
                if found is None or found.leader_id != replicas[0] or len(found.isr_nodes) != len(replicas):
                    return False
        topic.end_offset()
    except Refused:
        return False
    return True


def _await(is_so: Callable[[], bool], otherwise: str, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {seconds_max:.0f} s")
        time.sleep(POLL_SECONDS)
