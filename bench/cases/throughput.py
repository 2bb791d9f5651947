"""Produce and consume of full batches: 100 B and 1,000 B records, 1 and 6 partitions, none and lz4."""

from __future__ import annotations

from functools import partial
from itertools import product

from bench.arena import Sample, fresh_topic, median_sample
from bench.load.batches import Batch, full_batch
from bench.load.fetch import consume
from bench.load.produce import produce_volume
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

PRODUCE_TARGETS = {100: Target(ratio_min=1.3), 1_000: Target(ratio_min=1.5)}
CONSUME_TARGET = Target(ratio_min=1.2)
METHOD = (
    "produce: one connection, five Produce requests of one batch (up to 1,000,000 B before compression) in"
    " flight, acks=all, round robin over the partitions; the same bytes to both brokers",
    "consume: one connection, two Fetch requests in flight, 1 MiB per partition; reads the batches that the"
    " produce case left, from the page cache, the client dropping them in the kernel (MSG_TRUNC)",
    "six connections: the same number of batches, one partition to each connection, as from six producers",
)


def run(run: Run) -> list[Row]:
    produced, consumed = [], []
    for codec, value_size, partitions in product(("none", "lz4"), (100, 1_000), (1, 6)):
        batch = full_batch(value_size, codec)
        suffix = f"{value_size:,} B, {partitions} partition{'s' * (partitions > 1)}, {codec}"
        writes, reads = _pair(run, batch, partitions)
        target = PRODUCE_TARGETS[value_size]
        produced.append(Row(f"produce {suffix}", "msg/s", writes.get("Tidelog"), writes.get("Kafka"), target))
        consumed.append(
            Row(f"consume {suffix}", "msg/s", reads.get("Tidelog"), reads.get("Kafka"), CONSUME_TARGET)
        )
    return produced + _six_connections(run) + consumed


def _pair(run: Run, batch: Batch, partitions: int) -> tuple[dict[str, Sample], dict[str, Sample]]:
    names = [broker.name for broker in run.arena.brokers]
    writes: dict[str, list[Sample]] = {name: [] for name in names}
    reads: dict[str, list[Sample]] = {name: [] for name in names}
    count = run.scale.batch_count
    for broker in run.arena.alternate():
        with fresh_topic(broker, partitions) as topic:
            writes[broker.name].append(produce_volume(topic, batch, count))
            reads[broker.name].append(consume(topic, batch, count, run.scale.consume_seconds))
    return (
        {name: median_sample(samples) for name, samples in writes.items()},
        {name: median_sample(samples) for name, samples in reads.items()},
    )


def _six_connections(run: Run) -> list[Row]:
    """Without a target: Kafka spreads connections over threads, so this shows what one connection hides."""
    rows = []
    for value_size in (100, 1_000):
        samples = run.arena.compare(partial(_produce_by_six, full_batch(value_size), run.scale.batch_count))
        case = f"produce {value_size:,} B, 6 partitions, none, 6 connections"
        rows.append(Row(case, "msg/s", samples.get("Tidelog"), samples.get("Kafka")))
    return rows


def _produce_by_six(batch: Batch, batch_count: int, broker: RunningBroker) -> Sample:
    with fresh_topic(broker, 6) as topic:
        return produce_volume(topic, batch, batch_count, connections=6)
