"""Starting with 1,000 partitions that hold data: after a clean stop, and after a SIGKILL."""

from __future__ import annotations

import os
import time

from bench.arena import Sample, Topic
from bench.load import pipeline
from bench.load.admin import Admin
from bench.load.batches import build_batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.pipeline import BadAnswer, Lane
from bench.peers.process import Peer, RunningBroker, Site
from bench.report import Row, Target
from bench.run import Run

TOPIC = "bench-opening"
BATCHES_PER_PARTITION = 4
BATCH = build_batch(145, 100)
TARGET = Target(tidelog_max=5)
METHOD = (
    "opening: one topic, 64 KB in each partition; from the start of the process until metadata names every"
    " leader and every end offset is answered, and is what it was; one run; after SIGKILL, Kafka's controller"
    " refuses its own broker until the session of the killed one has ended (9 s by default)",
)


def run(run: Run) -> list[Row]:
    taken = {peer.name: _clean_and_killed(run, peer) for peer in run.peers}
    rows = []
    for index, ending in enumerate(("a clean stop", "SIGKILL")):
        samples = {name: Sample(seconds[index]) for name, seconds in taken.items()}
        case = f"open {run.scale.partition_count:,} partitions after {ending}"
        rows.append(Row(case, "s", samples.get("Tidelog"), samples.get("Kafka"), TARGET))
    return rows


def _clean_and_killed(run: Run, peer: Peer) -> tuple[float, float]:
    count = run.scale.partition_count
    site = peer.prepare(run.directory / f"opening-{peer.name}", {})
    broker = site.spawn()
    try:
        broker.wait_ready()
        topic = Topic(TOPIC, count, broker)
        with Admin(*topic.address) as admin:
            admin.create_topic(TOPIC, count)
        _fill(topic)
        broker.stop()
        broker, clean_seconds = _reopen(site, count, BATCHES_PER_PARTITION)
        _fill(Topic(TOPIC, count, broker))
        broker.kill()
        broker, killed_seconds = _reopen(site, count, 2 * BATCHES_PER_PARTITION)
    finally:
        broker.stop()
    return clean_seconds, killed_seconds


def _fill(topic: Topic) -> None:
    frames = [produce_frame(topic.name, index, BATCH) for index in range(topic.partition_count)]
    lane = Lane(topic.address, frames, 1, 64, produce_layout(topic.name))
    try:
        pipeline.run([lane], frame_count=BATCHES_PER_PARTITION * topic.partition_count)
    finally:
        pipeline.close([lane])


def _reopen(site: Site, partition_count: int, batches_per_partition: int) -> tuple[RunningBroker, float]:
    os.sync()
    started = time.perf_counter()
    broker = site.spawn()
    broker.wait_ready()
    topic = Topic(TOPIC, partition_count, broker)
    with Admin(*topic.address) as admin:
        admin.wait_for_leaders(TOPIC, partition_count)
    seconds = time.perf_counter() - started
    kept, wanted = topic.end_offset(), partition_count * batches_per_partition * BATCH.record_count
    if kept != wanted:
        raise BadAnswer(f"{site.name} kept {kept} of {wanted} records")
    return broker, seconds
