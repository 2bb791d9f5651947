"""From the start of the process to the first acknowledged record, on an empty, formatted directory."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from statistics import median

from bench.arena import Sample
from bench.load.admin import Admin, Refused
from bench.load.batches import build_batch
from bench.load.frames import produce_frame, produce_layout
from bench.peers.process import POLL_SECONDS, READY_SECONDS_MAX, PeerFailed, RunningBroker, Site
from bench.report import Row, Target
from bench.run import Run

TOPIC = "bench-start"
METHOD = (
    "start: spawn the process, connect as soon as it listens, create a topic of one partition, produce one"
    " record with acks=all; formatting Kafka's directory is not counted, and the disk is synced before",
)


def run(run: Run) -> list[Row]:
    taken: dict[str, list[float]] = {peer.name: [] for peer in run.peers}
    for round_index in range(max(run.scale.rounds, 1)):
        for peer in run.peers:
            site = peer.prepare(run.directory / f"start-{peer.name}-{round_index}", {})
            taken[peer.name].append(seconds_to_first_record(site))
    samples = {name: Sample(median(seconds)) for name, seconds in taken.items()}
    target = Target(ratio_max=0.1, tidelog_max=0.5)
    case = "start to first acknowledged record"
    return [Row(case, "s", samples.get("Tidelog"), samples.get("Kafka"), target)]


def seconds_to_first_record(site: Site) -> float:
    os.sync()  # or the first fsync of the new process would wait for what earlier cases wrote
    started = time.perf_counter()
    broker = site.spawn()
    try:
        while not _is_first_record_acknowledged(broker):
            if time.perf_counter() - started > READY_SECONDS_MAX:
                raise PeerFailed(f"{site.name} took no record within {READY_SECONDS_MAX:.0f} s")
            broker.assert_alive()
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - started
    finally:
        broker.kill()


def _is_first_record_acknowledged(broker: RunningBroker) -> bool:
    position = produce_layout(TOPIC).error_position
    try:
        with Admin(broker.host, broker.port) as admin:
            with suppress(Refused):  # it exists already when an earlier attempt ended after this step
                admin.create_topic(TOPIC, 1)
            answer = admin.exchange(produce_frame(TOPIC, 0, build_batch(1, 100)))
            return answer[position : position + 2] == b"\x00\x00"
    except OSError:
        return False
