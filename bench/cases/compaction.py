"""A round of compaction over a log that is dirty from its first segment to its last but one.

Apache Kafka gets the batches by Produce and cleans when its ratio is lowered. Ours cleans the same batches in
the same segments, in a process of its own, once by the compiled loops and once by the plain ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.arena import Sample
from bench.load import pipeline
from bench.load.admin import Admin
from bench.load.batches import Batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.keyed import keyed_batches, write_segments
from bench.load.pipeline import Lane
from bench.peers.process import Peer, PeerFailed, RunningBroker
from bench.report import Row, Target
from bench.run import Run

CASES = [
    (value_size, superseded, codec)
    for value_size in (100, 1_000)
    for superseded in (0.1, 0.9)
    for codec in ("none", "zstd")
]
SEGMENTS = 8  # of which the last one is active
SEGMENT_BYTES_MIN = 1 << 20  # that Kafka accepts
WINDOW = 32
POLL_SECONDS = 0.002
CLEANED_SECONDS_MAX = 120.0
PLAIN_SHARE = 0.25  # of the bytes: the plain loops take some ten times as long
SETTINGS = {"log.cleaner.backoff.ms": "15"}
GOALS = {"none": Target(ratio_min=2.0), "zstd": Target(ratio_min=1.3)}
CPU_SECONDS_MIN = 0.01  # the kernel's tick
CHECKPOINT = "cleaner-offset-checkpoint"
METHOD = (
    "compaction: one partition, batches of 16 kB before compression, eight segments, all but the active one"
    " cleaned in one round with its fsyncs; stored bytes, each counted once, by the wall. Kafka's is the time"
    " from lowering min.cleanable.dirty.ratio until its checkpoint has moved, less the same for 1 MiB (no"
    " figure where that is half of it); a round of each codec warms it up. Ours is `clean` in a process,"
    " as in the broker, without throttle and with no broker beside it; in plain Python a quarter of it",
)


class Speed(NamedTuple):
    """MB/s of stored bytes; none by the wall where waiting was most of the time."""

    wall: Sample | None
    cpu: Sample | None


def run(run: Run) -> list[Row]:
    kafka = next((peer for peer in run.peers if peer.name == "Kafka"), None)
    folder = run.directory / "compaction"
    broker = None
    rows = []
    try:
        if kafka is not None:
            broker = _start(kafka, run.directory / "compaction-kafka")
        measured = _Kafka(broker, run.scale.cleaned_bytes) if broker is not None else None
        for value_size, superseded, codec in CASES:
            batches = list(keyed_batches(run.scale.cleaned_bytes, value_size, superseded, codec))
            theirs = measured.clean(batches) if measured is not None else Speed(None, None)
            case = f"compaction, {value_size:,} B, {superseded:.0%} superseded, {codec}"
            ours = _clean(folder, batches, "compiled")
            rows.append(Row(case, "MB/s", ours.wall, theirs.wall, GOALS[codec]))
            rows.append(Row(case + ", per second of CPU", "MB/s", ours.cpu, theirs.cpu))
            fewer = batches[: int(len(batches) * PLAIN_SHARE)]
            rows.append(
                Row(case + ", plain Python", "MB/s", _clean(folder, fewer, "plain").wall, theirs.wall)
            )
    finally:
        if broker is not None:
            broker.kill()
    return rows


def _segment_bytes(batches: Sequence[Batch]) -> int:
    return max(sum(batch.size for batch in batches) // SEGMENTS + 1, SEGMENT_BYTES_MIN)


def _start(peer: Peer, directory: Path) -> RunningBroker:
    broker = peer.prepare(directory, SETTINGS).spawn()
    broker.wait_ready()
    return broker


def _clean(folder: Path, batches: Sequence[Batch], loops: str) -> Speed:
    """MB/s of stored bytes, sealed segments only if there are several."""
    shutil.rmtree(folder, ignore_errors=True)
    segment_bytes = _segment_bytes(batches)
    segments = write_segments(folder, list(batches), segment_bytes)
    end_offset = sum(batch.record_count for batch in batches)
    if len(segments) > 1:
        active, end_offset = segments[-1]
        active.unlink()
    size = sum(path.stat().st_size for path in folder.glob("*.log"))
    os.sync()
    done = subprocess.run(
        [sys.executable, "-m", "bench.load.cleaning", *map(str, (folder, end_offset, segment_bytes)), loops],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerFailed(f"the round failed\n{done.stderr}")
    taken = json.loads(done.stdout)
    shutil.rmtree(folder)
    return Speed(Sample(size / taken["seconds"] / 1e6), Sample(size / taken["cpu_seconds"] / 1e6))


class _Kafka:
    """A broker whose cleaner waits for a topic's ratio to be lowered."""

    def __init__(self, broker: RunningBroker, warm_bytes: int) -> None:
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}"})
        self._topics = 0
        self._idle_seconds = 0.0
        for codec in ("none", "zstd"):
            self.clean(list(keyed_batches(warm_bytes, 100, 0.5, codec)))
        small = list(keyed_batches(2 * SEGMENT_BYTES_MIN, 100, 0.0, "none"))
        self._idle_seconds = min(self._seconds(small)[0] for _ in range(3))

    def clean(self, batches: Sequence[Batch]) -> Speed:
        seconds, cpu_seconds, size = self._seconds(batches)
        working = seconds - self._idle_seconds
        wall = Sample(size / working / 1e6) if working > self._idle_seconds else None
        return Speed(wall, Sample(size / max(cpu_seconds, CPU_SECONDS_MIN) / 1e6))

    def _seconds(self, batches: Sequence[Batch]) -> tuple[float, float, int]:
        """Until all but the active segment is clean, of wall and CPU, and how many bytes that was."""
        self._topics += 1
        topic = f"bench-compaction-{self._topics}"
        segment_bytes = str(_segment_bytes(batches))
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1.0",
            "segment.bytes": segment_bytes,
        }
        self._admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
        with Admin(self._broker.host, self._broker.port) as admin:
            admin.wait_for_leaders(topic, 1)
        frames = [produce_frame(topic, 0, batch) for batch in batches]
        lane = Lane((self._broker.host, self._broker.port), frames, 1, WINDOW, produce_layout(topic))
        try:
            pipeline.run([lane], frame_count=len(frames))
        finally:
            pipeline.close([lane])
        folder = self._broker.site.log_directory / f"{topic}-0"
        sealed = sorted(folder.glob("*.log"))[:-1]
        size = sum(path.stat().st_size for path in sealed)
        end_offset = int(sorted(folder.glob("*.log"))[-1].stem)
        os.sync()
        cpu, started = self._broker.cpu_seconds(), time.perf_counter()
        self._lower_ratio(topic)
        self._await_checkpoint(f"{topic} 0 {end_offset}\n")
        seconds, cpu_seconds = time.perf_counter() - started, self._broker.cpu_seconds() - cpu
        self._admin.delete_topics([topic])[topic].result()
        return seconds, cpu_seconds, size

    def _lower_ratio(self, topic: str) -> None:
        entry = ConfigEntry("min.cleanable.dirty.ratio", "0.0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in self._admin.incremental_alter_configs([resource]).values():
            answer.result()

    def _await_checkpoint(self, line: str) -> None:
        path = self._broker.site.log_directory / CHECKPOINT
        deadline = time.monotonic() + CLEANED_SECONDS_MAX
        while not path.exists() or line not in path.read_text():
            if time.monotonic() > deadline:
                raise PeerFailed(f"Kafka did not clean {line.strip()} within {CLEANED_SECONDS_MAX:.0f} s")
            time.sleep(POLL_SECONDS)
