"""A coordinator that starts again: how soon it answers for its groups, with a million commits behind it."""

from __future__ import annotations

import os
import time

from bench.arena import Sample
from bench.load.admin import Admin
from bench.load.commits import fetch_frames, fill, sum_of_commits, wait_for_coordinator
from bench.load.pipeline import BadAnswer
from bench.peers.process import POLL_SECONDS, READY_SECONDS_MAX, Peer, PeerFailed, RunningBroker, Site
from bench.report import Row
from bench.run import Run

TOPIC = "bench-loading"
PARTITION_COUNT = 100
GROUP_COUNT = 192
METHOD = (
    f"groups, loading: {GROUP_COUNT} groups have committed to {PARTITION_COUNT} partitions many times, a"
    " clean stop; from the start of the process until OffsetFetch answers for all groups with the very bytes"
    " of before the stop; also from when it first lists itself in metadata; one run",
)


def run(run: Run) -> list[Row]:
    times = run.scale.group_commits // (GROUP_COUNT * PARTITION_COUNT)
    taken = {peer.name: _seconds(run, peer, times) for peer in run.peers}
    rows = []
    count = times * GROUP_COUNT * PARTITION_COUNT
    for index, step in enumerate(("from the start", "since it serves metadata")):
        samples = {name: Sample(seconds[index]) for name, seconds in taken.items()}
        case = f"{count:,} commits loaded, {step}"
        rows.append(Row(case, "s", samples.get("Tidelog"), samples.get("Kafka")))
    return rows


def _seconds(run: Run, peer: Peer, times: int) -> tuple[float, float]:
    site = peer.prepare(run.directory / f"loading-{peer.name}", {})
    groups = [f"bench-loading-{number:05d}" for number in range(GROUP_COUNT)]
    frames = fetch_frames(groups, TOPIC, PARTITION_COUNT)
    broker = site.spawn()
    try:
        broker.wait_ready()
        answers = _filled(broker, groups, frames, times)
        broker.stop()
        broker, started, served = _started(site)
        _wait_for_answers(broker, frames, answers)
        ended = time.perf_counter()
        return ended - started, ended - served
    finally:
        broker.kill()


def _filled(broker: RunningBroker, groups: list[str], frames: list[bytes], times: int) -> list[bytes]:
    """Commit, and return what is answered when it is fetched."""
    address = (broker.host, broker.port)
    with Admin(*address) as admin:
        admin.create_topic(TOPIC, PARTITION_COUNT)
        wait_for_coordinator(address, groups)
        fill(address, groups, TOPIC, PARTITION_COUNT, times)
        answers = [admin.exchange(frame) for frame in frames]
    if sum(map(sum_of_commits, answers)) != times * len(groups) * PARTITION_COUNT:
        raise BadAnswer(f"{broker.name} does not have the last commits")
    return answers


def _started(site: Site) -> tuple[RunningBroker, float, float]:
    os.sync()
    started = time.perf_counter()
    broker = site.spawn()
    broker.wait_ready()
    return broker, started, time.perf_counter()


def _wait_for_answers(broker: RunningBroker, frames: list[bytes], answers: list[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    with Admin(broker.host, broker.port) as admin:
        for frame, answer in zip(frames, answers, strict=True):
            while admin.exchange(frame) != answer:
                if time.monotonic() > deadline:
                    raise PeerFailed(f"{broker.name} did not load its groups in {READY_SECONDS_MAX:.0f} s")
                time.sleep(POLL_SECONDS)
