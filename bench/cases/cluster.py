"""Three brokers and three replicas, acks=all: throughput, latency, fail-over, memory, of both kinds by turns.

A turn is a cluster that is started for it in an empty folder, warmed up, measured, robbed of a broker, and
stopped: a paused one would lose its sessions, and one that merely idles takes time from the other.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from statistics import median

from bench.arena import Sample, median_sample
from bench.cases.latency import percentile
from bench.load import pipeline, placed
from bench.load.batches import Batch, build_batch, full_batch
from bench.load.canned import canned
from bench.load.failover import kill_and_write
from bench.load.frames import produce_frame, produce_layout
from bench.load.pipeline import Lane
from bench.load.placed import IN_FLIGHT, fresh_topic, produce
from bench.load.synchronous import Caller
from bench.peers.clusters import BROKERS, SESSION_MS, RunningCluster, start_cluster
from bench.peers.process import Peer
from bench.report import Row, Target
from bench.run import Run

MEASURED_PER_TURN = 3
BOUND_SECONDS = 1.0
WARM_UP_REQUESTS = 300
CANNED_TOPIC = "bench-00000"
THROUGHPUT_TARGETS = {100: Target(ratio_min=2), 1_000: Target(ratio_min=3)}
SHAPES = tuple(product(THROUGHPUT_TARGETS, (1, 6)))
PERCENTILES = (
    ("p50", 0.50, Target(ratio_max=0.6)),
    ("p99", 0.99, Target(ratio_max=0.6)),
    ("p99.9", 0.999, None),
)
MEMORY_TARGET = Target(ratio_max=0.2)
WRITABLE_TARGET = Target(tidelog_max=SESSION_MS / 1_000 + 2)
VICTIMS = ("a leader", "the controller")
METHOD = (
    f"cluster: {BROKERS} brokers on this machine, {BROKERS} replicas on all of them, min.insync.replicas=2;"
    " Tidelog as `tidelog cluster --brokers 3` starts it, with one ZooKeeper; Kafka as three nodes that are"
    " broker and controller each; one runs while the other is stopped, by turns, each turn in a new folder"
    " and after throwaway load of every kind",
    f"cluster, produce: one connection to each leader, {IN_FLIGHT} Produce requests of one batch (up to"
    f" 1,000,000 B) in flight on each, acks=all; medians of {MEASURED_PER_TURN} in each turn, after one that"
    " does not count; each writes the same number of bytes to a topic of its own, whose files are gone before"
    " the next one, and as much memory as that takes is used and let go of just before: a virtual machine may"
    " have to get memory that it has not used for a moment from its host, and writing to that costs ten times"
    " as much, of every broker; the bound is the same client against"
    " processes that answer canned bytes; CPU is that of all processes of the cluster over the bytes"
    " acknowledged: 1 GB is about 1,000 batches",
    "cluster, synchronous: one connection, one record of 100 B per request; percentiles of all turns",
    "cluster, fail-over: one broker leads as many partitions as the row says and is killed by SIGKILL, by"
    " turns one that is not the controller and the controller; both kinds have a session of"
    f" {SESSION_MS / 1_000:.0f} s; until one record to each partition has been acknowledged (acks=all) by its"
    " new leader, the longest of the turns; half: until half of them were, their median",
    "cluster, memory: VmRSS of all processes, ZooKeeper and the command that started them included, when the"
    " load of a turn is done",
)


@dataclass
class Taken:
    """All that the turns of one kind of cluster have shown."""

    produced: dict[tuple[int, int], list[Sample]] = field(
        default_factory=lambda: {shape: [] for shape in SHAPES}
    )
    latencies: list[int] = field(default_factory=list)
    latency_cpu_seconds: float = 0.0
    resident_bytes: list[int] = field(default_factory=list)
    created_seconds: list[float] = field(default_factory=list)
    away_seconds: list[list[float]] = field(default_factory=list)


def run(run: Run) -> list[Row]:
    taken = {peer.name: Taken() for peer in run.peers}
    for turn in range(run.scale.cluster_turns):
        for peer in run.peers if turn % 2 == 0 else run.peers[::-1]:
            with _started(run, peer, turn) as cluster:
                _measure(run, cluster, turn, taken[peer.name])
    return [*_throughput_rows(run, taken), *_latency_rows(run, taken), *_other_rows(run, taken)]


@contextmanager
def _started(run: Run, peer: Peer, turn: int) -> Iterator[RunningCluster]:
    directory = run.directory / f"cluster-{peer.name}-{turn}"
    cluster = start_cluster(peer, directory)
    try:
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _measure(run: Run, cluster: RunningCluster, turn: int, taken: Taken) -> None:
    _warm_up(run, cluster)
    for (value_size, partition_count), samples in taken.produced.items():
        batch = full_batch(value_size)
        for number in range(1 + MEASURED_PER_TURN):
            with fresh_topic(cluster, partition_count) as topic:
                sample = produce(topic, batch, run.scale.cluster_bytes)
            if number:
                samples.append(sample)
    _synchronous(run, cluster, taken)
    taken.resident_bytes.append(cluster.resident_bytes())
    controller = cluster.controller()
    victims = (next(number for number in cluster.node_numbers() if number != controller), controller)
    _fail_over(run, cluster, victims[turn % len(victims)], taken)


def _warm_up(run: Run, cluster: RunningCluster) -> None:
    """Throwaway load of every kind, so that the JIT has seen the paths that are measured later."""
    with fresh_topic(cluster, BROKERS) as topic:
        for value_size in THROUGHPUT_TARGETS:
            produce(topic, full_batch(value_size), 2 * run.scale.cluster_bytes)
    _synchronous(run, cluster, Taken())


def _synchronous(run: Run, cluster: RunningCluster, taken: Taken) -> None:
    with fresh_topic(cluster, 1) as topic:
        leader = topic.placement[0][0]
        frame = produce_frame(topic.name, 0, build_batch(1, 100))
        caller = Caller(cluster.nodes[leader].address, frame, produce_layout(topic.name))
        try:
            caller.latencies(WARM_UP_REQUESTS)
            before = cluster.cpu_seconds()
            taken.latencies += caller.latencies(run.scale.cluster_requests)
            taken.latency_cpu_seconds += cluster.cpu_seconds() - before
        finally:
            caller.close()


def _fail_over(run: Run, cluster: RunningCluster, victim: int, taken: Taken) -> None:
    started = time.perf_counter()
    placement = placed.all_led_by(victim, run.scale.partition_count, cluster.node_numbers())
    topic = placed.create(cluster, placement)
    taken.created_seconds.append(time.perf_counter() - started)
    taken.away_seconds.append(kill_and_write(topic, victim))


def _throughput_rows(run: Run, taken: dict[str, Taken]) -> list[Row]:
    rows, costs = [], []
    for value_size, partition_count in SHAPES:
        batch = full_batch(value_size)
        samples = {name: median_sample(t.produced[value_size, partition_count]) for name, t in taken.items()}
        shape = f"{value_size:,} B, {partition_count} partition{'s' * (partition_count > 1)}"
        bound = _produce_bound(batch, partition_count)
        ours, theirs = samples.get("Tidelog"), samples.get("Kafka")
        target = THROUGHPUT_TARGETS[value_size]
        rows.append(Row(f"{BROKERS} replicas: produce {shape}", "msg/s", ours, theirs, target, bound))
        cost = {name: Sample(_cpu_of_a_gigabyte(sample, batch)) for name, sample in samples.items()}
        case = f"{BROKERS} replicas: CPU of 1 GB, {shape}"
        costs.append(Row(case, "s", cost.get("Tidelog"), cost.get("Kafka")))
    return rows + costs


def _cpu_of_a_gigabyte(sample: Sample, batch: Batch) -> float:
    return sample.broker_share / (sample.value * batch.size / batch.record_count) * 1e9


def _produce_bound(batch: Batch, partition_count: int) -> Sample:
    frame, layout = produce_frame(CANNED_TOPIC, 0, batch), produce_layout(CANNED_TOPIC)
    with ExitStack() as opened:
        addresses = [
            opened.enter_context(canned(len(frame), layout)) for _ in range(min(partition_count, BROKERS))
        ]
        lanes = [Lane(address, [frame], 1, IN_FLIGHT, layout) for address in addresses]
        opened.callback(pipeline.close, lanes)
        return Sample(pipeline.run(lanes, seconds=BOUND_SECONDS).frames_per_second * batch.record_count)


def _latency_rows(run: Run, taken: dict[str, Taken]) -> list[Row]:
    bound = _latency_bound(run.scale.cluster_requests)
    rows = []
    for name, fraction, target in PERCENTILES:
        samples = {peer: Sample(percentile(each.latencies, fraction) / 1e3) for peer, each in taken.items()}
        case = f"{BROKERS} replicas: synchronous acks=all, {name}"
        limit = Sample(percentile(bound, fraction) / 1e3)
        rows.append(Row(case, "µs", samples.get("Tidelog"), samples.get("Kafka"), target, limit))
    costs = {
        peer: Sample(each.latency_cpu_seconds / len(each.latencies) * 1e6) for peer, each in taken.items()
    }
    case = f"{BROKERS} replicas: CPU of a synchronous record"
    return [*rows, Row(case, "µs", costs.get("Tidelog"), costs.get("Kafka"))]


def _latency_bound(count: int) -> list[int]:
    frame, layout = produce_frame(CANNED_TOPIC, 0, build_batch(1, 100)), produce_layout(CANNED_TOPIC)
    with canned(len(frame), layout) as address:
        caller = Caller(address, frame, layout)
        try:
            caller.latencies(WARM_UP_REQUESTS)
            return caller.latencies(count)
        finally:
            caller.close()


def _other_rows(run: Run, taken: dict[str, Taken]) -> list[Row]:
    name = f"{run.scale.partition_count:,} partitions × {BROKERS} replicas"
    created = {peer: Sample(median(each.created_seconds)) for peer, each in taken.items()}
    rows = [Row(f"{name}: create", "s", created.get("Tidelog"), created.get("Kafka"))]
    for place, whom in enumerate(VICTIMS[: run.scale.cluster_turns]):
        away = {peer: each.away_seconds[place :: len(VICTIMS)] for peer, each in taken.items()}
        half = {peer: Sample(median(map(median, turns))) for peer, turns in away.items()}
        last = {peer: Sample(max(map(max, turns))) for peer, turns in away.items()}
        case = f"{name}: writable after SIGKILL of {whom}"
        rows.append(Row(f"{case}, half", "s", half.get("Tidelog"), half.get("Kafka")))
        rows.append(Row(f"{case}, all", "s", last.get("Tidelog"), last.get("Kafka"), WRITABLE_TARGET))
    memory = {peer: Sample(median(each.resident_bytes) / 1e6) for peer, each in taken.items()}
    case = f"resident memory of {BROKERS} brokers, after load"
    return [*rows, Row(case, "MB", memory.get("Tidelog"), memory.get("Kafka"), MEMORY_TARGET)]
