"""Small requests: one record of 100 B each, and batches of 50 records of 200 B."""

from __future__ import annotations

from bench.arena import Sample, fresh_topic
from bench.load.batches import Batch, build_batch
from bench.load.produce import produce_small
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

METHOD = (
    "small requests: one partition, up to 512 Produce requests in flight on each connection, acks=all;"
    " the frames are written 64 at a time and the answers checked in bulk",
)
CASES = (
    ("one record of 100 B per request", 1, 100, Target(ratio_min=4)),
    ("batches of 50 × 200 B", 50, 200, Target(ratio_min=2)),
)


def run(run: Run) -> list[Row]:
    rows = []
    for name, record_count, value_size, target in CASES:
        batch = build_batch(record_count, value_size)
        rows.append(_row(run, name, batch, 1, target))
        rows.append(_row(run, f"{name}, 8 connections", batch, 8, None))
    return rows


def _row(run: Run, case: str, batch: Batch, connections: int, target: Target | None) -> Row:
    def measure(broker: RunningBroker) -> Sample:
        with fresh_topic(broker, 1) as topic:
            return produce_small(topic, batch, run.scale.small_seconds, connections)

    samples = run.arena.compare(measure)
    return Row(case, "msg/s", samples.get("Tidelog"), samples.get("Kafka"), target)
