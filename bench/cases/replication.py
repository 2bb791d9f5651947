"""What replication costs: CPU of a batch with one replica and with three, and what many partitions add.

A whole cluster runs in this process, without a peer: Kafka's are compared process by process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.arena import Sample
from bench.cases.latency import percentile
from bench.load import pipeline
from bench.load.batches import Batch, build_batch, full_batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.pipeline import Lane
from bench.load.synchronous import Caller
from bench.report import Row
from bench.run import Run
from tidelog.testing import Cluster

BROKERS = 3
TOPIC = "measured"
IN_FLIGHT = 5
IDLE_SECONDS = 3.0
WARM_UP_REQUESTS = 300
ADMIN_SECONDS_MAX = 120.0
CREATED_TOGETHER = 500
METHOD = (
    f"replication: {BROKERS} brokers, their store and the client in this process, so its CPU is that of all;"
    f" acks=all, {IN_FLIGHT} requests in flight to the leader of one partition, with one replica and with"
    f" {BROKERS}, taking turns; the difference is what two followers, their fetches and the waiting cost",
    f"replication, many partitions: all with {BROKERS} replicas; one is written to, a record of 100 B at a"
    f" time; idle: CPU of the whole process during {IDLE_SECONDS:.0f} s",
)


def run(run: Run) -> list[Row]:
    return [*_per_batch(run), *_by_partitions(run)]


@contextmanager
def _cluster() -> Iterator[AdminClient]:
    with Cluster(BROKERS, min_insync_replicas=1) as cluster:
        yield AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def _create(admin: AdminClient, topics: list[NewTopic]) -> None:
    for future in admin.create_topics(topics, request_timeout=ADMIN_SECONDS_MAX).values():
        future.result(ADMIN_SECONDS_MAX)


def _leader(admin: AdminClient, topic: str) -> tuple[str, int]:
    while True:
        known = admin.list_topics(topic, timeout=ADMIN_SECONDS_MAX)
        broker = known.brokers.get(known.topics[topic].partitions[0].leader)
        if broker is not None and broker.host:
            return broker.host, broker.port


def _per_batch(run: Run) -> list[Row]:
    rows = []
    with _cluster() as admin:
        for batch, shape in ((build_batch(10, 100), "10 × 100 B"), (full_batch(1_000, "none"), "1 MB")):
            taken: dict[str, list[float]] = {}
            for replicas in (1, BROKERS):
                topic = f"{TOPIC}-{batch.size}-{replicas}"
                _create(admin, [NewTopic(topic, 1, replicas)])
                taken[topic] = []
            for _ in range(run.scale.rounds + 1):
                for topic, figures in taken.items():
                    figures.append(
                        _cpu_of_a_batch(_leader(admin, topic), topic, batch, run.scale.batch_count)
                    )
            one, three = (median(figures[1:]) for figures in taken.values())
            rows.append(Row(f"CPU of a batch of {shape}, one replica", "µs", Sample(one)))
            rows.append(Row(f"CPU of a batch of {shape}, three replicas", "µs", Sample(three)))
            rows.append(Row(f"CPU of a batch of {shape}, each follower", "µs", Sample((three - one) / 2)))
    return rows


def _cpu_of_a_batch(address: tuple[str, int], topic: str, batch: Batch, count: int) -> float:
    lane = Lane(address, [produce_frame(topic, 0, batch)], 1, IN_FLIGHT, produce_layout(topic))
    started = time.process_time()
    try:
        pipeline.run([lane], frame_count=count)
    finally:
        pipeline.close([lane])
    return (time.process_time() - started) / count * 1e6


def _by_partitions(run: Run) -> list[Row]:
    rows = []
    for partition_count in run.scale.replicated_partitions:
        with _cluster() as admin:
            started = time.monotonic()
            _create(admin, [NewTopic(TOPIC, 1, BROKERS)])
            for number in range(0, partition_count - 1, CREATED_TOGETHER):
                count = min(CREATED_TOGETHER, partition_count - 1 - number)
                _create(admin, [NewTopic(f"others-{number:05d}", count, BROKERS)])
            created = time.monotonic() - started
            caller = Caller(
                _leader(admin, TOPIC), produce_frame(TOPIC, 0, build_batch(1, 100)), produce_layout(TOPIC)
            )
            caller.latencies(WARM_UP_REQUESTS)
            taken = caller.latencies(run.scale.latency_block_requests)
            caller.close()
            idle = _idle_share()
        name = f"{partition_count:,} partitions × {BROKERS} replicas"
        rows.append(Row(f"{name}: create", "s", Sample(created)))
        rows.append(Row(f"{name}: synchronous acks=all, p50", "µs", Sample(percentile(taken, 0.5) / 1e3)))
        rows.append(Row(f"{name}: synchronous acks=all, p99", "µs", Sample(percentile(taken, 0.99) / 1e3)))
        rows.append(Row(f"{name}: idle CPU of {BROKERS} brokers", "% of a core", Sample(idle * 100)))
    return rows


def _idle_share() -> float:
    time.sleep(IDLE_SECONDS / 3)
    started, cpu = time.monotonic(), time.process_time()
    time.sleep(IDLE_SECONDS)
    return (time.process_time() - cpu) / (time.monotonic() - started)
