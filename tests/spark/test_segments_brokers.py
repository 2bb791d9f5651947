"""The directory of a real broker, read beside it: the same topics, offsets and rows as the broker gives."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.client import eventually
from tests.spark.segment_rows import Rows, edges, offset_at, offsets, read_folder, read_whole, rows_of
from tidelog.client.cluster import LATEST, Cluster
from tidelog.client.errors import TopicPartition
from tidelog.client.reader import RangeReader
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.spark.segments import LogFolders
from tidelog.testing.process import BrokerProcess

SETTINGS = {"log.index.interval.bytes": "100", "log.retention.ms": "-1"}
SEGMENT = {"segment.bytes": "20000"}
TOPIC = "clicks"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(2)]
TIME_MS = 1_000_000


class Site:
    """A broker in a process of its own, its directory, and a client of it."""

    def __init__(self, broker: BrokerProcess, cluster: Cluster) -> None:
        self.broker = broker
        self.cluster = cluster
        self.path = Path(broker.properties["log.dirs"])
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    @property
    def folders(self) -> LogFolders:
        return LogFolders([str(self.path)])

    def make_topic(self, name: str = TOPIC) -> None:
        topic = NewTopic(name, len(PARTITIONS), 1, config=SEGMENT)
        self.admin.create_topics([topic])[name].result()
        eventually(lambda: name in self.cluster.describe([name]), f"{name} is not there")

    def fill(self, count: int, codec: str = "none", seed: int = 0) -> None:
        """Records of all sizes, with times that go back and forth."""
        chance = Random(seed)
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "compression.type": codec,
                "batch.num.messages": 20,
                "linger.ms": 2,
            }
        )
        for number in range(count):
            producer.produce(
                TOPIC,
                chance.randbytes(chance.randrange(300)) if number % 7 else None,
                key=str(number) if number % 3 else None,
                partition=number % len(PARTITIONS),
                timestamp=TIME_MS + number // 10 - chance.randrange(30),
                headers=[("n", b"%d" % number), ("null", None)] if number % 5 == 0 else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0

    def rows(self, partition: TopicPartition, start: int, end: int) -> Rows:
        topic_id = self.cluster.describe([partition.topic])[partition.topic].id
        reader = RangeReader(self.cluster, partition, topic_id, start, end, committed_only=False)
        return rows_of(reader, partition, start, end, committed_only=False)

    def all_rows(self) -> dict[TopicPartition, Rows]:
        return {each: self.rows(each, *edges(self.cluster, each)) for each in PARTITIONS}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as broker:
        properties = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "30000"}
        with Cluster(properties) as cluster:
            site = Site(broker, cluster)
            site.make_topic()
            yield site


def folder_rows(path: Path) -> dict[TopicPartition, Rows]:
    return {each: read_whole(path, each) for each in PARTITIONS}


def segment_count(path: Path) -> int:
    return len(list((path / str(PARTITIONS[0])).glob("*.log")))


def test_beside_a_running_broker_all_answers_are_the_broker_s(site: Site) -> None:
    for number, codec in enumerate(CODEC_NAMES):
        site.fill(400, codec, number)
    assert segment_count(site.path) > 5
    assert site.folders.describe([TOPIC]) == site.cluster.describe([TOPIC])
    assert folder_rows(site.path) == site.all_rows()
    chance = Random(1)
    for partition in PARTITIONS:
        first, last = edges(site.cluster, partition)
        assert edges(site.folders, partition) == (first, last)
        for _ in range(10):
            start, end = sorted((chance.randint(first, last), chance.randint(first, last)))
            assert read_folder(site.path, partition, start, end) == site.rows(partition, start, end)
            time = TIME_MS + chance.randint(-40, 50)
            assert offset_at(site.folders, partition, time) == offset_at(site.cluster, partition, time)


def test_records_deleted_from_the_front_are_not_read(site: Site) -> None:
    site.fill(2_000)
    partition = PARTITIONS[0]
    (gone,) = site.admin.delete_records([ConfluentPartition(*partition, 777)]).values()
    assert gone.result().low_watermark == 777
    assert site.broker.stop() == 0
    assert edges(site.folders, partition) == (777, 1_000)
    assert offsets(read_whole(site.path, partition)) == list(range(777, 1_000))
    assert offsets(read_whole(site.path, PARTITIONS[1])) == list(range(1_000))


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_after_the_broker_is_gone_every_acknowledged_record_is_there(site: Site, is_clean: bool) -> None:
    site.fill(1_500, "lz4")
    before = site.all_rows()
    if is_clean:
        site.broker.stop()
    else:
        site.broker.kill()
    assert (site.path / ".kafka_cleanshutdown").exists() == is_clean
    assert folder_rows(site.path) == before
    assert [edges(site.folders, each, committed_only=True) for each in PARTITIONS] == [(0, 750)] * 2


def test_a_copy_of_a_running_broker_s_directory_has_a_whole_beginning_of_it(
    site: Site, tmp_path: Path
) -> None:
    over = threading.Event()

    def write() -> None:
        seed = 0
        while not over.is_set():
            site.fill(500, "none", seed)
            seed += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            await_end(site, number * 500)
            passing = shutil.ignore_patterns("*.sqlite*", "*.tmp")
            shutil.copytree(site.path, tmp_path / f"copy{number}", ignore=passing)
    finally:
        over.set()
        writer.join()
    whole = site.all_rows()
    for number in range(5):
        for partition, rows in folder_rows(tmp_path / f"copy{number}").items():
            assert rows == whole[partition][: len(rows)]
            assert len(rows) > number * 500


def await_end(site: Site, least: int) -> None:
    def ends() -> list[int]:
        found = site.cluster.list_offsets(dict.fromkeys(PARTITIONS, LATEST))
        return [each.offset for each in found.values()]

    eventually(lambda: min(ends()) > least, "nothing is written")


def test_a_deleted_topic_is_not_listed(site: Site) -> None:
    site.make_topic("views")
    assert list(site.folders.describe(["views", TOPIC])) == [TOPIC, "views"]
    site.admin.delete_topics(["views"])["views"].result()
    eventually(lambda: list(site.folders.describe(["views", TOPIC])) == [TOPIC], "it is still there")
