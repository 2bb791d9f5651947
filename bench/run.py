"""One run of the benchmark: the peers, the two brokers under comparison, and how much to measure."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.arena import Arena, Sample, fresh_topic
from bench.load.batches import build_batch, full_batch
from bench.load.fetch import consume
from bench.load.produce import produce_small, produce_volume
from bench.peers.process import Peer, RunningBroker

STORE = Path(__file__).resolve().parent / ".peers"
IDLE_SECONDS = 2.0
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Scale:
    """How much is measured; `QUICK` is for trying a change, not for figures to keep."""

    rounds: int = 3
    batch_count: int = 384
    consume_seconds: float = 1.0
    small_seconds: float = 2.0
    latency_blocks: int = 10
    latency_block_requests: int = 2_000
    warm_up_rounds: int = 4
    client_records: int = 2_000_000
    log_sizes: tuple[int, ...] = (10 * MEBIBYTE, 100 * MEBIBYTE, 1024 * MEBIBYTE, 10240 * MEBIBYTE)
    kafka_log_size_max: int = 1024 * MEBIBYTE
    cleaned_bytes: int = 128 * MEBIBYTE
    partition_count: int = 1_000
    scale_topic_count: int = 1_000
    load_requests: int = 6_000
    group_rebalances: int = 100
    group_seconds: float = 2.0
    group_members: int = 1_000
    group_commits: int = 1_000_000
    spark_rows: int = 10_000_000
    spark_seconds: float = 15.0
    quota_seconds: float = 33.0
    replicated_partitions: tuple[int, ...] = (1, 500, 2_000)
    cluster_turns: int = 4  # what one start can do differs by a third from what another can
    cluster_bytes: int = 256_000_000
    cluster_requests: int = 3_000
    waiter_counts: tuple[int, ...] = (100, 1_000, 5_000)
    record_sizes: tuple[int, ...] = (1_000_000, 4_000_000, 10_000_000)
    topic_counts: tuple[int, ...] = (1_000, 5_000, 15_000)
    absent_member_counts: tuple[int, ...] = (500, 1_000, 2_000)


FULL = Scale()
QUICK = Scale(
    rounds=1,
    batch_count=96,
    consume_seconds=0.5,
    small_seconds=0.5,
    latency_blocks=2,
    latency_block_requests=1_000,
    warm_up_rounds=1,
    client_records=200_000,
    log_sizes=(10 * MEBIBYTE, 100 * MEBIBYTE),
    kafka_log_size_max=100 * MEBIBYTE,
    cleaned_bytes=32 * MEBIBYTE,
    partition_count=100,
    scale_topic_count=100,
    load_requests=2_000,
    group_rebalances=30,
    group_seconds=0.4,
    group_members=100,
    group_commits=60_000,
    spark_rows=1_000_000,
    spark_seconds=5.0,
    replicated_partitions=(1, 200),
    cluster_turns=1,
    cluster_bytes=64_000_000,
    cluster_requests=500,
    waiter_counts=(100, 500, 1_000),
    record_sizes=(1_000_000, 2_000_000, 4_000_000),
    topic_counts=(100, 500, 1_000),
    absent_member_counts=(50, 100, 200),
)


@dataclass
class Run:
    peers: Sequence[Peer]
    arena: Arena
    directory: Path
    scale: Scale
    idle_megabytes: dict[str, Sample] = field(default_factory=dict)


@contextmanager
def opened(peers: Sequence[Peer], scale: Scale) -> Iterator[Run]:
    """Start one broker of each peer, note its idle memory, warm it up; stop and clean up at the end."""
    STORE.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=STORE))
    brokers: list[RunningBroker] = []
    try:
        for peer in peers:
            brokers.append(peer.prepare(directory / peer.name, peer.settings_if_paused).spawn())
            brokers[-1].wait_ready()
        time.sleep(IDLE_SECONDS)
        idle = {broker.name: Sample(broker.resident_bytes() / 1e6) for broker in brokers}
        arena = Arena(brokers, scale.rounds)
        for broker in arena.alternate(scale.warm_up_rounds):
            warm_up(broker, scale)
        yield Run(peers, arena, directory, scale, idle)
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


def warm_up(broker: RunningBroker, scale: Scale) -> None:
    """Throwaway load of every kind, so that the JIT has seen the paths that are measured later."""
    for codec in ("none", "lz4"):
        batch = full_batch(100, codec)
        with fresh_topic(broker, 6) as topic:
            produce_volume(topic, batch, scale.batch_count // 2)
            consume(topic, batch, scale.batch_count // 2, scale.consume_seconds / 2)
    with fresh_topic(broker, 1) as topic:
        produce_small(topic, build_batch(1, 100), scale.small_seconds / 2)
        produce_small(topic, build_batch(50, 200), scale.small_seconds / 4)
