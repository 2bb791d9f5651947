"""A broker that is killed (SIGKILL) and started again under those who send and read: nothing is lost,
doubled or moved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from bench.peers.kafka import SETTINGS as KAFKA_SETTINGS
from bench.peers.process import PeerMissing

from tests.client.test_sender import batch_of, read_back
from tests.client.written import records_of
from tests.compat.java.tools import apache_kafka
from tests.soak import is_soak
from tidelog.client.cluster import Cluster, TopicPartition
from tidelog.client.reader import RangeReader
from tidelog.client.sender import Sender
from tidelog.testing.process import BrokerProcess

PARTITIONS = 3
KILLS = 20 if is_soak() else 4
BATCHES_BETWEEN = 60
RECORDS_PER_BATCH = 50


class Mortal(NamedTuple):
    """A broker, and how to kill it and start it again."""

    bootstrap_servers: str
    reborn: Callable[[], None]
    kills: int


@contextmanager
def mortal_tidelog(directory: Path) -> Iterator[Mortal]:
    with BrokerProcess(directory, {"num.partitions": str(PARTITIONS)}) as broker:

        def reborn() -> None:
            broker.kill()
            broker.start()

        yield Mortal(broker.bootstrap_servers, reborn, KILLS)


@contextmanager
def mortal_kafka(directory: Path) -> Iterator[Mortal]:
    try:
        peer = apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    site = peer.prepare(directory / "site", KAFKA_SETTINGS | {"num.partitions": str(PARTITIONS)})
    running = [site.spawn()]
    try:
        running[0].wait_ready()

        def reborn() -> None:
            running.pop().kill()
            running.append(site.spawn())
            running[0].wait_ready()

        yield Mortal(f"127.0.0.1:{site.port}", reborn, 1)
    finally:
        for broker in running:
            broker.kill()


in_the_soak = pytest.mark.skipif(not is_soak(), reason="Apache Kafka starts for long: in the soak")


@pytest.fixture(
    scope="module",
    params=[mortal_tidelog, pytest.param(mortal_kafka, marks=[pytest.mark.java, in_the_soak])],
)
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    with request.param(tmp_path_factory.mktemp("mortal")) as broker:
        yield broker


@contextmanager
def dying(mortal: Mortal) -> Iterator[None]:
    """The broker dies and comes back while the block runs."""
    thread = threading.Thread(target=mortal.reborn)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def value(number: int, part: int) -> bytes:
    return b"%d.%d" % (number, part) + b"." * 200


@pytest.mark.soak
def test_what_is_sent_while_the_broker_dies_is_there_once_and_in_order(mortal: Mortal) -> None:
    places = [TopicPartition("sent", index) for index in range(PARTITIONS)]
    expected: dict[TopicPartition, list[bytes]] = {place: [] for place in places}
    number = 0
    with Cluster({"bootstrap.servers": mortal.bootstrap_servers}) as cluster:
        sender = Sender(cluster, properties={"max.request.size": "60000"})
        sender.send(places[0], batch_of(b"first"), 1)
        expected[places[0]].append(b"first")
        for _ in range(mortal.kills):
            with dying(mortal):
                for _ in range(BATCHES_BETWEEN):
                    place = places[number % PARTITIONS]
                    values = [value(number, part) for part in range(RECORDS_PER_BATCH)]
                    sender.send(place, batch_of(*values), RECORDS_PER_BATCH)
                    expected[place] += values
                    number += 1
        sender.flush()
        for place in places:
            assert read_back(cluster, place) == expected[place]
            assert sender.ends()[place] == (0, len(expected[place]))


@pytest.mark.soak
def test_a_range_is_read_over_the_broker_s_death(mortal: Mortal) -> None:
    place = TopicPartition("read", 0)
    count = 200
    with Cluster({"bootstrap.servers": mortal.bootstrap_servers}) as cluster:
        sender = Sender(cluster, properties={})
        for number in range(count):
            values = [value(number, part) for part in range(RECORDS_PER_BATCH)]
            sender.send(place, batch_of(*values), RECORDS_PER_BATCH)
        sender.flush()
        end = count * RECORDS_PER_BATCH
        topic_id = cluster.describe([place.topic])[place.topic].id
        pieces = iter(RangeReader(cluster, place, topic_id, 0, end, committed_only=True, fetch_bytes=20_000))
        offsets = [record.offset for record in records_of(next(pieces))]
        for _ in range(mortal.kills):
            with dying(mortal):
                for _, piece in zip(range(count // mortal.kills // 4), pieces, strict=False):
                    offsets += [record.offset for record in records_of(piece)]
        offsets += [record.offset for piece in pieces for record in records_of(piece)]
        assert offsets == list(range(end))
