"""Retention of 1,000 partitions at once: what a bystander sees of it.

Each partition has one segment, too old soon after it is written: it is sealed, its successor made durable and
its files removed. The bystander asks for something small all the while, first with nothing else going on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.arena import Sample
from bench.cases.latency import percentile
from bench.cases.scale import PARTITIONS_PER_TOPIC, Fleet
from bench.load.bystander import Bystander
from bench.peers.process import Peer, PeerFailed, RunningBroker
from bench.report import Row, Target
from bench.run import Run

TOPICS = 100
ROUNDS = 3
CHECK_MS = 15_000
ALONE_SECONDS = 4.0
POLL_SECONDS = 0.05
GONE_SECONDS_MAX = 120.0
KEPT = Target(tidelog_max=2.0)
SETTINGS = {
    "log.retention.ms": "1000",
    "log.retention.check.interval.ms": str(CHECK_MS),
    "log.initial.task.delay.ms": str(CHECK_MS),
}
METHOD = (
    f"retention: {TOPICS} topics of {PARTITIONS_PER_TOPIC} partitions, each with one batch that has expired;"
    f" a check every {CHECK_MS // 1_000} s finds all of them at once; {ROUNDS} rounds, each broker alone. The"
    " bystander is the one of scale: its p99 between the first segment that goes and the last one, and"
    f" before that, {ALONE_SECONDS:g} s in which nothing happens",
)


def run(run: Run) -> list[Row]:
    figures = {peer.name: _measure(run, peer) for peer in run.peers}
    names = ("taken until the last segment is gone", "a bystander's p99", "without it", "longest wait")
    units = ("s", "ms", "ms", "ms")
    case = f"retention of {TOPICS * PARTITIONS_PER_TOPIC:,} partitions: "
    rows = []
    for place, (name, unit) in enumerate(zip(names, units, strict=True)):
        known = {peer: Sample(found[place]) for peer, found in figures.items()}
        rows.append(Row(case + name, unit, known.get("Tidelog"), known.get("Kafka")))
    ratios = {peer: Sample(found[1] / found[2]) for peer, found in figures.items()}
    rows.append(Row(case + "p99 ÷ without it", "×", ratios.get("Tidelog"), ratios.get("Kafka"), KEPT))
    return rows


def _measure(run: Run, peer: Peer) -> tuple[float, float, float, float]:
    """Seconds of a round, and the bystander's p99 with it, without it, and its longest wait, in ms."""
    fleet = Fleet([f"bench-retention-{number:03d}" for number in range(TOPICS)])
    broker = peer.prepare(run.directory / f"retention-{peer.name}", SETTINGS).spawn()
    taken: list[float] = []
    alone: list[int] = []
    beside: list[int] = []
    try:
        broker.wait_ready()
        fleet.create(broker)
        for _ in range(ROUNDS):
            fleet.write(broker)
            files = _written(broker)
            with Bystander(broker.host, broker.port) as bystander:
                began = time.perf_counter_ns()
                first, last = _watch(broker, files)
            until = min(began + int(ALONE_SECONDS * 1e9), first)
            alone += bystander.between(began, until)
            beside += bystander.between(first, last)
            taken.append((last - first) / 1e9)
        broker.assert_alive()
    finally:
        broker.kill()
    p99 = [percentile(latencies, 0.99) / 1e6 for latencies in (beside, alone)]
    return sum(taken) / ROUNDS, p99[0], p99[1], max(beside) / 1e6


def _written(broker: RunningBroker) -> list[Path]:
    """The segments with something in them."""
    found = broker.site.log_directory.glob("bench-retention-*/*.log")
    files = [path for path in found if path.stat().st_size]
    if len(files) != TOPICS * PARTITIONS_PER_TOPIC:
        raise PeerFailed(f"{broker.name} has {len(files)} segments; retention was too early")
    return files


def _watch(broker: RunningBroker, files: Sequence[Path]) -> tuple[int, int]:
    """When the first of these was gone, and when the last one was."""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    left, first = list(files), 0
    while left:
        if time.monotonic() > deadline:
            raise PeerFailed(f"{broker.name} still has {len(left)} segments that have expired")
        time.sleep(POLL_SECONDS)
        left = [path for path in left if path.exists()]
        if not first and len(left) < len(files):
            first = time.perf_counter_ns() - int(POLL_SECONDS * 1e9)
    return first, time.perf_counter_ns()
