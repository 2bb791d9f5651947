"""What an append and a seek cost as one partition's log grows from 10 MB to 10 GB: they must not grow too.

The log is filled with batches of 16 KB, and after every 63 of them one batch of a single record. A seek is
a Fetch of the offset of such a record, chosen at random, that may return only that one.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from statistics import median

from kio.schema.fetch.v12.response import FetchResponse

from bench.arena import Sample, Topic, fresh_topic
from bench.load import pipeline
from bench.load.admin import Admin, read_response
from bench.load.batches import build_batch
from bench.load.frames import fetch_frame, fetch_layout, produce_frame
from bench.load.pipeline import BadAnswer, Lane, Span
from bench.load.produce import fill
from bench.report import Row, Target
from bench.run import Run

CHUNK = 64
OPERATIONS = 100 * CHUNK
REPEATS = 3
TURNS = 7
FLAT = Target(tidelog_max=1.3)
FREE_SPACE_FACTOR = 1.5
FILLER = build_batch(145, 100)
SINGLE = build_batch(1, 100)
BLOCK_RECORDS = (CHUNK - 1) * FILLER.record_count + SINGLE.record_count
METHOD = (
    "growth: one partition, segments of 1 GB; at each size 6,400 one-record appends and 6,400 fetches of one"
    " random record, 128 in flight on one connection, median of 3; written pages are synced first; flat"
    f" means that the largest log costs at most {FLAT.tidelog_max} × a log of the smallest size, the two"
    f" measured by turns, {TURNS} times",
)


@dataclass
class GrowingLog:
    topic: Topic
    seed: random.Random = field(default_factory=lambda: random.Random(1))
    size: int = 0
    end_offset: int = 0
    single_offsets: list[int] = field(default_factory=list)

    def grow_to(self, size: int) -> None:
        frames = [produce_frame(self.topic.name, 0, FILLER)] * (CHUNK - 1)
        chunk = b"".join([*frames, produce_frame(self.topic.name, 0, SINGLE)])
        block_size = (CHUNK - 1) * FILLER.size + SINGLE.size
        block_count = max(1, (size - self.size) // block_size)
        fill(self.topic, chunk, CHUNK, block_count)
        self.size += block_count * block_size
        for _ in range(block_count):
            self.end_offset += BLOCK_RECORDS
            self.single_offsets.append(self.end_offset - 1)
        os.sync()  # or the disk's writing of the fill would be measured as well

    def append_microseconds(self) -> float:
        chunk = produce_frame(self.topic.name, 0, SINGLE) * CHUNK
        span = fill(self.topic, chunk, CHUNK, OPERATIONS // CHUNK)
        self.end_offset += OPERATIONS
        self.size += OPERATIONS * SINGLE.size
        return _microseconds(span)

    def seek_microseconds(self) -> float:
        frames = [self._seek_frame() for _ in range(OPERATIONS)]
        chunks = [b"".join(frames[start : start + CHUNK]) for start in range(0, OPERATIONS, CHUNK)]
        lane = Lane(self.topic.address, chunks, CHUNK, 2 * CHUNK, fetch_layout(self._checked_answer_size()))
        try:
            return _microseconds(pipeline.run([lane], frame_count=OPERATIONS))
        finally:
            pipeline.close([lane])

    def _seek_frame(self) -> bytes:
        return fetch_frame(self.topic.name, [self.seed.choice(self.single_offsets)], 1)

    def _checked_answer_size(self) -> int:
        wanted = self.seed.choice(self.single_offsets)
        with Admin(*self.topic.address) as admin:
            answer = admin.exchange(fetch_frame(self.topic.name, [wanted], 1))
        records = bytes(read_response(answer, FetchResponse).responses[0].partitions[0].records or b"")
        if len(records) != SINGLE.size or int.from_bytes(records[:8], "big") != wanted:
            raise BadAnswer(f"{self.topic.broker.name}: a fetch of offset {wanted} gave {len(records)} bytes")
        return len(answer)


def run(run: Run) -> list[Row]:
    costs: dict[str, dict[int, tuple[float, float]]] = {}
    growth: dict[str, tuple[float, float]] = {}
    for broker in run.arena.alternate(1):
        size_max = run.scale.kafka_log_size_max if broker.name == "Kafka" else None
        with fresh_topic(broker, 1) as large, fresh_topic(broker, 1) as small:
            costs[broker.name], growth[broker.name] = _measure(run, large, small, size_max)
    rows = []
    for index, operation in enumerate(("append", "seek")):
        by_peer = {name: {size: pair[index] for size, pair in at.items()} for name, at in costs.items()}
        rows += _rows(operation, by_peer.get("Tidelog", {}), by_peer.get("Kafka", {}))
        by_name = {name: Sample(pair[index]) for name, pair in growth.items()}
        sizes = sorted(by_peer.get("Tidelog") or by_peer.get("Kafka") or {0: 0.0})
        case = f"{operation}: log of {size_text(sizes[-1])} ÷ log of {size_text(sizes[0])}"
        rows.append(Row(case, "×", by_name.get("Tidelog"), by_name.get("Kafka"), FLAT))
    return rows


def _measure(
    run: Run, large: Topic, small: Topic, size_max: int | None
) -> tuple[dict[int, tuple[float, float]], tuple[float, float]]:
    """Costs by size, and how much the largest costs in units of the smallest, measured by turns."""
    log, control = GrowingLog(large), GrowingLog(small)
    control.grow_to(run.scale.log_sizes[0])
    costs = {}
    for size in run.scale.log_sizes:
        has_room = shutil.disk_usage(run.directory).free > FREE_SPACE_FACTOR * size
        if (size_max is None or size <= size_max) and has_room:
            log.grow_to(size)
            _costs(log)
            costs[size] = _median_costs([_costs(log) for _ in range(REPEATS)])
    pairs = [(_costs(log), _costs(control)) for _ in range(TURNS)]
    grown, kept = _median_costs([pair[0] for pair in pairs]), _median_costs([pair[1] for pair in pairs])
    return costs, (grown[0] / kept[0], grown[1] / kept[1])


def _costs(log: GrowingLog) -> tuple[float, float]:
    return log.append_microseconds(), log.seek_microseconds()


def _median_costs(costs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(append for append, _ in costs), median(seek for _, seek in costs)


def _rows(operation: str, tidelog: dict[int, float], kafka: dict[int, float]) -> list[Row]:
    return [
        Row(f"{operation} in a log of {size_text(size)}", "µs", _sample(tidelog, size), _sample(kafka, size))
        for size in sorted(tidelog.keys() | kafka.keys())
    ]


def size_text(size: int) -> str:
    return f"{size >> 30} GB" if size >= 1 << 30 else f"{size >> 20} MB"


def _sample(costs: dict[int, float], size: int) -> Sample | None:
    return Sample(costs[size]) if size in costs else None


def _microseconds(span: Span) -> float:
    return span.seconds / span.frame_count * 1e6
