"""Makes the archives of `tests.upgrade.stored` with an older version of Tidelog. They were made by

    git worktree add ../tidelog-ecfb4ed ecfb4ed
    .venv/bin/python -m tests.upgrade.making ../tidelog-ecfb4ed

Clients and ZooKeeper are of this checkout, the brokers of that one: a version that serves the level which the
archives are to have. No path of the machine that makes them is in them.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.awaiting import await_that
from tests.chaos.truth import Truth
from tests.upgrade.stored import (
    ALONE_KILLED,
    ALONE_STOPPED,
    CLASSIC_GROUP,
    CLUSTER,
    CLUSTER_SETTINGS,
    COMMITTED,
    CONSUMER_GROUP,
    DATA,
    FIRST_KILLED,
    FLUSHED,
    NODE_IDS,
    OTHER_BOOT,
    PARTITIONS,
    RECORDS,
    RUNNING,
    SETTINGS,
    SINGLE,
    SINGLE_ON,
    TIDES,
    log_of,
    places,
    record,
)
from tidelog.cli.cluster_start import CHROOT
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.testing.process import BrokerProcess

WAIT_S = 60.0
MAKING = {"log.flush.offset.checkpoint.interval.ms": "500"}
ALONE = {"min.insync.replicas": "1"}
LEFT_OUT = (".lock", ".sqlite-shm")


def create(bootstrap_servers: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [
        NewTopic(TIDES, PARTITIONS[TIDES], replicas),
        NewTopic(FLUSHED, PARTITIONS[FLUSHED], replicas, config={"flush.messages": "1"}),
    ]
    if replicas > 1:
        on_one = [[SINGLE_ON]] * PARTITIONS[SINGLE]
        topics.append(NewTopic(SINGLE, PARTITIONS[SINGLE], replica_assignment=on_one, config=ALONE))
    else:
        topics.append(NewTopic(SINGLE, PARTITIONS[SINGLE], 1))
    for topic in topics:
        await_that(partial(is_created, admin, topic), f"{topic} cannot be made", WAIT_S)


def is_created(admin: AdminClient, topic: NewTopic) -> bool:
    (created,) = admin.create_topics([topic]).values()
    try:
        created.result(WAIT_S)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False  # the controller has not heard of all brokers
    return True


def produce(bootstrap_servers: str, numbers: range) -> None:
    """In batches of some size; all are acknowledged when this returns."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 20}
    )
    for topic, index in places():
        for number in numbers:
            key, value, timestamp = record(topic, index, number)
            producer.produce(
                topic,
                value,
                key,
                index,
                on_delivery=lambda error, _: failures.append(error),
                timestamp=timestamp,
            )
    assert producer.flush(WAIT_S) == 0 and not any(failures), failures


@contextmanager
def members(bootstrap_servers: str) -> Iterator[None]:
    """One of each protocol."""
    with ExitStack() as stack:
        for group, protocol in ((CLASSIC_GROUP, "classic"), (CONSUMER_GROUP, "consumer")):
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "group.id": group,
                    "group.protocol": protocol,
                    "log_level": 0,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                }
            )
            stack.callback(consumer.unsubscribe)
            consumer.subscribe([TIDES])
            while not consumer.assignment():
                consumer.poll(0.1)
            commit_by(consumer, group)
        yield


def commit(bootstrap_servers: str) -> None:
    for group in COMMITTED:
        if group not in (CLASSIC_GROUP, CONSUMER_GROUP):
            consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
            commit_by(consumer, group)
            consumer.close()


def commit_by(consumer: Consumer, group: str) -> None:
    offsets = [TopicPartition(*place, COMMITTED[group]) for place in places(TIDES)]
    for each in consumer.commit(offsets=offsets, asynchronous=False):
        assert each.error is None, each


def pack(folder: Path, archive: str) -> None:
    """Without what does not matter, and in the same way every time."""
    own = [os.fsencode(each) for each in (folder, Path.cwd(), Path.home())]
    with tarfile.open(DATA / f"{archive}.tar.xz", "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for path in sorted(folder.rglob("*")):
            place = path.relative_to(folder)
            if path.is_dir() or "data" not in place.parts or path.name.endswith(LEFT_OUT):
                continue
            content = path.read_bytes()
            if path.name == RUNNING:
                content = json.dumps(json.loads(content) | {"boot": OTHER_BOOT}).encode()
            if "zookeeper" in place.parts and path.name.startswith("log."):
                content = content.rstrip(b"\0") + bytes(64)  # it was made longer ahead
            assert not any(each in content for each in own), f"{path} has a path of this machine"
            entry = tarfile.TarInfo(str(place))
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def make_alone(folder: Path, archive: str, is_killed: bool) -> None:
    with BrokerProcess(folder, SETTINGS | MAKING) as broker:
        create(broker.bootstrap_servers, 1)
        produce(broker.bootstrap_servers, range(RECORDS))
        commit(broker.bootstrap_servers)
        await_checkpoint(folder, RECORDS)
        with members(broker.bootstrap_servers):
            if is_killed:
                broker.kill()
            else:
                assert broker.stop() == 0
            pack(folder, archive)


def make_cluster(folder: Path) -> None:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperProcess(folder / "zookeeper"))
        connect = {"zookeeper.connect": zookeeper.connect + CHROOT}
        brokers = {}
        for node_id in NODE_IDS:
            settings = CLUSTER_SETTINGS | MAKING | connect | {"node.id": str(node_id)}
            broker = BrokerProcess(folder / f"broker-{node_id}", settings)
            brokers[node_id] = stack.enter_context(broker)
        servers = ",".join(broker.bootstrap_servers for broker in brokers.values())
        truth = Truth(zookeeper.connect + CHROOT)
        stack.callback(truth.close)
        await_that(lambda: truth.brokers() == {*brokers}, "not all are there", WAIT_S)
        create(servers, len(brokers))
        commit(servers)
        stack.enter_context(members(servers))
        produce(servers, range(RECORDS // 2))
        truth.await_whole({*brokers})
        brokers[FIRST_KILLED].kill()
        await_that(
            lambda: all(FIRST_KILLED not in each.in_sync_replicas for each in truth.partitions()),
            "who is gone stays in the ISR",
            WAIT_S,
        )
        produce(servers, range(RECORDS // 2, RECORDS))
        await_checkpoint(folder / f"broker-{SINGLE_ON}", RECORDS)
        for broker in brokers.values():
            if broker.is_running:
                broker.kill()
        check_replicas(folder)
        await_that(lambda: truth.brokers() == set(), "sessions do not end", WAIT_S)
        truth.close()
        zookeeper.stop()
        pack(folder, CLUSTER)


def await_checkpoint(folder: Path, end_offset: int) -> None:
    """That says where a log ended: one that is missing or empty is known to be lost by it."""
    file = folder / "data" / "replication-offset-checkpoint"
    entry = f"{SINGLE} 0 {end_offset}"
    await_that(lambda: file.exists() and entry in file.read_text().splitlines(), f"no {entry}", WAIT_S)


def check_replicas(folder: Path) -> None:
    """What makes the data worth keeping: two have all, the third has less of that."""
    for topic, index in places(TIDES, FLUSHED):
        logs = {n: log_of(folder / f"broker-{n}" / "data" / f"{topic}-{index}") for n in NODE_IDS}
        first = logs.pop(FIRST_KILLED)
        (longest,) = {*logs.values()}
        assert longest.startswith(first) and first != longest


def main() -> None:
    older = Path(sys.argv[1]).resolve()
    os.environ["PYTHONPATH"] = str(older / "src")  # for the brokers; all that is needed here was imported
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        make_alone(Path(folder, ALONE_STOPPED), ALONE_STOPPED, is_killed=False)
        make_alone(Path(folder, ALONE_KILLED), ALONE_KILLED, is_killed=True)
        make_cluster(Path(folder, CLUSTER))


if __name__ == "__main__":
    main()
