"""1,000 topics of 10 partitions on one broker: create, describe, write, read, restart, delete.

A bystander asks for something small all the while: its worst wait says how long the broker served nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from kio.schema.fetch.v12.response import FetchResponse

from bench.arena import Sample
from bench.cases.latency import percentile
from bench.load import pipeline
from bench.load.admin import (
    Admin,
    Refused,
    led_partition_count,
    metadata_frame,
    offsets_frame,
    read_response,
    sum_of_offsets,
)
from bench.load.batches import build_batch
from bench.load.bystander import Bystander
from bench.load.frames import fetch_frame, fetch_layout, produce_frame, produce_layout
from bench.load.pipeline import BadAnswer, DiscardLane, Lane
from bench.peers.process import Peer, PeerFailed, RunningBroker, Site
from bench.report import Row
from bench.run import Run

PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 100
DESCRIPTIONS = 5
CONNECTIONS = 4
BATCH = build_batch(10, 100)
FETCH_BYTES = 1 << 16
FILES_GONE_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 90.0
START_SECONDS_MAX = 120.0
METHOD = (
    f"scale: topics of {PARTITIONS_PER_TOPIC} partitions, made and deleted {TOPICS_PER_REQUEST} to a request;"
    f" described by one Metadata of all, median of {DESCRIPTIONS}, and page by page (DescribeTopicPartitions,"
    " which the client must decode to go on); written with one batch of"
    f" {BATCH.record_count} × 100 B to each partition, one to a request, acks=all, over {CONNECTIONS}"
    " connections; read back a topic to a request; each broker goes through all of it once, alone",
    "scale, started again: from the start of the process until metadata has been answered and the end offset"
    " of every partition, and is what it was; stopped: from SIGTERM to the end of the process; where"
    " Kafka has no figure, it did not come back in five minutes",
    "scale, bystander: one small request every 2 ms on a connection of its own during the step; its longest"
    " wait is how long the broker served nobody. Open files are what /proc lists, memory is VmRSS",
)


@dataclass
class Course:
    """What one broker took for each step, in the order of the steps."""

    figures: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, step: str, value: float, unit: str) -> None:
        self.figures[step] = (value, unit)


def run(run: Run) -> list[Row]:
    courses = {peer.name: Course() for peer in run.peers}
    for peer in run.peers:
        try:
            _go(run, peer, courses[peer.name])
        except (PeerFailed, OSError):
            if peer.name == "Tidelog":
                raise  # the other's figures end where it gave up
    return rows_of(courses, run.scale.scale_topic_count * PARTITIONS_PER_TOPIC)


def rows_of(courses: dict[str, Course], partition_count: int) -> list[Row]:
    longest = max(courses.values(), key=lambda course: len(course.figures))
    rows = []
    for step, (_, unit) in longest.figures.items():
        known = {
            n: Sample(course.figures[step][0]) for n, course in courses.items() if step in course.figures
        }
        case = f"{partition_count:,} partitions: {step}"
        rows.append(Row(case, unit, known.get("Tidelog"), known.get("Kafka")))
    return rows


def _go(run: Run, peer: Peer, course: Course) -> None:
    fleet = Fleet([f"bench-scale-{number:05d}" for number in range(run.scale.scale_topic_count)])
    site = peer.prepare(run.directory / f"scale-{peer.name}", {})
    broker = site.spawn()
    try:
        broker.wait_ready()
        _live(fleet, broker, course)
        course.note("stop", _seconds(lambda: broker.stop(STOP_SECONDS_MAX)), "s")
        broker = _start_again(site, fleet, course, "a clean stop")
        course.note("resident memory after a clean stop", broker.resident_bytes() / 1e6, "MB")
        broker.kill()
        broker = _start_again(site, fleet, course, "SIGKILL")
        _watched(course, broker, "delete", lambda: fleet.delete(broker))
        course.note("delete, until the files are gone", _seconds(lambda: _wait_for_no_files(broker)), "s")
        course.note("resident memory when deleted", broker.resident_bytes() / 1e6, "MB")
        broker.assert_alive()
    finally:
        broker.kill()


def _live(fleet: Fleet, broker: RunningBroker, course: Course) -> None:
    _watched(course, broker, "create", lambda: fleet.create(broker))
    course.note("resident memory when created", broker.resident_bytes() / 1e6, "MB")
    _watched(course, broker, "describe all", lambda: fleet.describe(broker), fleet.describe(broker))
    _watched(course, broker, "describe by pages", lambda: fleet.describe_by_pages(broker))
    _watched(course, broker, "write to each", lambda: fleet.write(broker))
    _watched(course, broker, "read each", lambda: fleet.read(broker))
    course.note("resident memory when written and read", broker.resident_bytes() / 1e6, "MB")
    course.note("open files when written and read", broker.open_file_count(), "files")


def _watched(
    course: Course,
    broker: RunningBroker,
    step: str,
    work: Callable[[], object],
    seconds: float | None = None,
) -> None:
    """Note how long the step took, or the `seconds` given, and what a bystander saw of it."""
    with Bystander(broker.host, broker.port) as bystander:
        taken = _seconds(work)
    course.note(step, seconds if seconds is not None else taken, "s")
    course.note(f"{step}, a bystander's p99", percentile(bystander.latencies, 0.99) / 1e6, "ms")
    course.note(f"{step}, a bystander's longest wait", bystander.worst_ms, "ms")


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _start_again(site: Site, fleet: Fleet, course: Course, ending: str) -> RunningBroker:
    os.sync()
    frames = fleet.offset_frames()
    started = time.perf_counter()
    broker = site.spawn()
    broker.wait_ready(START_SECONDS_MAX)
    kept = fleet.wait_for_offsets(broker, frames)
    course.note(f"start after {ending}", time.perf_counter() - started, "s")
    if kept != fleet.partition_count * BATCH.record_count:
        raise BadAnswer(f"{site.name} kept {kept} of {fleet.partition_count * BATCH.record_count} records")
    return broker


def _wait_for_no_files(broker: RunningBroker) -> None:
    deadline = time.monotonic() + FILES_GONE_SECONDS_MAX
    while any(broker.site.log_directory.glob("bench-scale-*")):
        if time.monotonic() > deadline:
            raise PeerFailed(f"{broker.name} still has files of deleted topics")
        time.sleep(0.05)


class Fleet:
    """Many topics, and what is done to all of them."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self.partition_count = len(topics) * PARTITIONS_PER_TOPIC

    def _portions(self) -> list[Sequence[str]]:
        starts = range(0, len(self._topics), TOPICS_PER_REQUEST)
        return [self._topics[start : start + TOPICS_PER_REQUEST] for start in starts]

    def create(self, broker: RunningBroker) -> None:
        with Admin(broker.host, broker.port) as admin:
            for topics in self._portions():
                admin.create_topics(topics, PARTITIONS_PER_TOPIC)

    def delete(self, broker: RunningBroker) -> None:
        with Admin(broker.host, broker.port) as admin:
            for topics in self._portions():
                admin.delete_topics(topics)

    def describe(self, broker: RunningBroker) -> float:
        """Seconds that one Metadata of all took; the answers are read after that."""
        frame = metadata_frame(None)
        taken, answers = [], []
        with Admin(broker.host, broker.port) as admin:
            for _ in range(DESCRIPTIONS):
                taken.append(_seconds(lambda: answers.append(admin.exchange(frame))))
        if (led := led_partition_count(answers[-1])) != self.partition_count:
            raise BadAnswer(f"{broker.name} names leaders of {led} partitions")
        return median(taken)

    def describe_by_pages(self, broker: RunningBroker) -> None:
        """DescribeTopicPartitions, as the admin clients ask: a page, and on from its cursor."""
        count = 0
        with Admin(broker.host, broker.port) as admin:
            for topics in self._portions():
                count += admin.described_partition_count(topics)
        if count != self.partition_count:
            raise BadAnswer(f"{broker.name} describes {count} partitions")

    def write(self, broker: RunningBroker) -> None:
        frames = [
            produce_frame(topic, index, BATCH)
            for topic in self._topics
            for index in range(PARTITIONS_PER_TOPIC)
        ]
        lanes = []
        for place in range(CONNECTIONS):
            own = frames[place::CONNECTIONS]
            lanes.append(Lane((broker.host, broker.port), own, 1, 64, produce_layout(self._topics[0])))
        self._run(lanes, len(frames) // CONNECTIONS)

    def read(self, broker: RunningBroker) -> None:
        frames = [fetch_frame(topic, [0] * PARTITIONS_PER_TOPIC, FETCH_BYTES) for topic in self._topics]
        with Admin(broker.host, broker.port) as admin:
            answer = admin.exchange(frames[0])
        records = read_response(answer, FetchResponse).responses[0].partitions
        if any(len(partition.records or b"") != BATCH.size for partition in records):
            raise BadAnswer(f"{broker.name} gave back something else than was written")
        lanes: list[Lane] = []
        for place in range(CONNECTIONS):
            own = frames[place::CONNECTIONS]
            lanes.append(DiscardLane((broker.host, broker.port), own, 1, 2, fetch_layout(len(answer))))
        self._run(lanes, len(frames) // CONNECTIONS)

    def _run(self, lanes: list[Lane], frame_count: int) -> None:
        try:
            pipeline.run(lanes, frame_count=frame_count)
        finally:
            pipeline.close(lanes)

    def offset_frames(self) -> list[bytes]:
        return [offsets_frame(topics, PARTITIONS_PER_TOPIC) for topics in self._portions()]

    def wait_for_offsets(self, broker: RunningBroker, frames: Sequence[bytes]) -> int:
        """The sum of all end offsets, once no partition answers with an error any more."""
        total = 0
        waiting = list(frames)
        with Admin(broker.host, broker.port) as admin:
            while waiting:
                try:
                    total += sum_of_offsets(admin.exchange(waiting[0]))
                    del waiting[0]
                except Refused:
                    broker.assert_alive()
                    time.sleep(0.05)
        return total
