"""Synchronous acks=all: one record of 100 B at a time, the next one after the answer."""

from __future__ import annotations

from contextlib import ExitStack

from bench.arena import Sample, Topic
from bench.load.admin import Admin
from bench.load.batches import build_batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.synchronous import Caller
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

TOPIC = "bench-latency"
WARM_UP_REQUESTS = 300
PERCENTILES = (
    ("p50", 0.50, Target(ratio_max=0.8)),
    ("p99", 0.99, Target(ratio_max=0.6)),
    ("p99.9", 0.999, None),
)
METHOD = (
    "latency: one connection, one record of 100 B per request; the brokers take turns in blocks of 2,000"
    f" requests, the first {WARM_UP_REQUESTS} after each change not counted; percentiles of all 20,000",
)


def run(run: Run) -> list[Row]:
    taken: dict[str, list[int]] = {broker.name: [] for broker in run.arena.brokers}
    with ExitStack() as open_callers:
        callers: dict[str, Caller] = {}
        for broker in run.arena.alternate(run.scale.latency_blocks):
            if broker.name not in callers:
                callers[broker.name] = _caller(broker)
                open_callers.callback(callers[broker.name].close)
            callers[broker.name].latencies(WARM_UP_REQUESTS)
            taken[broker.name] += callers[broker.name].latencies(run.scale.latency_block_requests)
    rows = []
    for name, fraction, target in PERCENTILES:
        samples = {broker: Sample(percentile(values, fraction) / 1_000) for broker, values in taken.items()}
        case = f"synchronous acks=all, {name}"
        rows.append(Row(case, "µs", samples.get("Tidelog"), samples.get("Kafka"), target))
    return rows


def percentile(values: list[int], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def _caller(broker: RunningBroker) -> Caller:
    topic = Topic(TOPIC, 1, broker)
    with Admin(*topic.address) as admin:
        admin.create_topic(TOPIC, 1)
    caller = Caller(topic.address, produce_frame(TOPIC, 0, build_batch(1, 100)), produce_layout(TOPIC))
    caller.latencies(10 * WARM_UP_REQUESTS)
    return caller
