"""Groups move to Kafka's places in a running cluster: between brokers, under commits, with kills."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.compat.cluster.raw import ask, part
from tests.testing.watching import Watcher, watch
from tidelog.cluster import features
from tidelog.cluster.features import GROUPS_TOPIC, Feature
from tidelog.groups.placement import former_place_of, partner_of, place_of
from tidelog.testing import Cluster

UPDATE_FEATURES, API_VERSIONS, OFFSET_FETCH = (57, 1), (18, 4), (9, 7)
PARTITIONS = 7
GROUPS = [f"{number * 7919}-orders-{number}" for number in range(12)]
MOVING = [name for name in GROUPS if place_of(name, PARTITIONS) != former_place_of(name, PARTITIONS)]


@contextmanager
def older_cluster(monkeypatch: pytest.MonkeyPatch, replicas: int) -> Iterator[Cluster]:
    """Of brokers that know level 2 and whose store was written by level 1."""
    import_module("tidelog.server.serve")  # with all that it asks for, before that is another
    with monkeypatch.context() as older:
        older.setattr(features, "SUPPORTED", (Feature(features.NAME, 1, 1),))
        cluster = Cluster(
            3, offsets_topic_num_partitions=PARTITIONS, offsets_topic_replication_factor=replicas
        )
        cluster.__enter__()
    try:
        yield cluster
    finally:
        cluster.__exit__(None, None, None)


class Committer:
    """Commits one offset after the other for a group, until it is told to stop."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.name = name
        self.acknowledged = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": name,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def commit(self) -> None:
        offset = self.acknowledged + 1
        try:
            self._consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        except KafkaException:
            return  # it may be there, or not
        self.acknowledged = offset

    def committed(self) -> int:
        found = self._consumer.committed([TopicPartition("t", 0)], timeout=30)
        offset: int = found[0].offset
        return offset

    def close(self) -> None:
        self._consumer.close()


def raise_level(cluster: Cluster) -> None:
    update = part(
        UPDATE_FEATURES, "FeatureUpdateKey", feature=features.NAME, max_version_level=2, upgrade_type=1
    )
    answer = ask(cluster[1], UPDATE_FEATURES, feature_updates=(update,), validate_only=False)
    assert answer.error_code == 0, answer


def until_moved(watcher: Watcher, cluster: Cluster) -> None:
    """Until the partition that a group was in has nothing of it, and the other one answers for it."""

    def are_moved() -> bool:
        return all(_is_moved(watcher, cluster, name) for name in MOVING)

    watcher.until(are_moved, "groups have not moved")


def _is_moved(watcher: Watcher, cluster: Cluster, name: str) -> bool:
    leader = watcher.partitions(GROUPS_TOPIC)[place_of(name, PARTITIONS)].leader
    answer = ask(cluster[leader], OFFSET_FETCH, group_id=name, topics=None, require_stable=False)
    return bool(answer.error_code == 0 and answer.topics)


def run(cluster: Cluster, victim: bool) -> None:
    watcher = watch(cluster)
    watcher.create("t")
    committers = [Committer(cluster.bootstrap_servers, name) for name in GROUPS]
    for committer in committers:
        committer.commit()
        assert committer.acknowledged == 1
    places = {name: watcher.partitions(GROUPS_TOPIC)[place_of(name, PARTITIONS)].leader for name in MOVING}
    formers = {
        name: watcher.partitions(GROUPS_TOPIC)[former_place_of(name, PARTITIONS)].leader for name in MOVING
    }
    assert any(places[name] != formers[name] for name in MOVING)
    is_over = threading.Event()

    def go_on(committer: Committer) -> None:
        while not is_over.is_set():
            committer.commit()

    threads = [threading.Thread(target=go_on, args=(committer,)) for committer in committers]
    for thread in threads:
        thread.start()
    try:
        raise_level(cluster)
        if victim:
            loser = watcher.leader(GROUPS_TOPIC, partner_of(1, PARTITIONS))
            cluster.kill(loser)
            cluster.start(loser)
        until_moved(watcher, cluster)
        marks = {committer: committer.acknowledged for committer in committers}
        watcher.until(
            lambda: all(each.acknowledged > mark for each, mark in marks.items()), "somebody cannot commit"
        )
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for committer in committers:
        # What was not acknowledged may be there as well.
        assert committer.committed() in (committer.acknowledged, committer.acknowledged + 1)
        committer.close()


def test_groups_move_between_brokers_under_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    with older_cluster(monkeypatch, replicas=1) as cluster:
        run(cluster, victim=False)


def test_groups_move_while_a_broker_is_killed_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with older_cluster(monkeypatch, replicas=3) as cluster:
        run(cluster, victim=True)
