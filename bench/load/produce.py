"""Produce load: ready-made batches to every partition of a topic, and a check of what was kept."""

from __future__ import annotations

from bench.arena import Sample, Topic, timed
from bench.load import pipeline
from bench.load.batches import Batch
from bench.load.frames import produce_frame, produce_layout
from bench.load.pipeline import BadAnswer, Lane, Span

IN_FLIGHT = 5
SMALL_WINDOW = 512
SMALL_CHUNK = 64


def produce_volume(topic: Topic, batch: Batch, batch_count: int, connections: int = 1) -> Sample:
    """Records per second for `batch_count` big batches, five requests in flight on each connection."""
    lanes = [
        Lane(
            topic.address,
            _big_chunks(topic, batch, index, connections),
            1,
            IN_FLIGHT,
            produce_layout(topic.name),
        )
        for index in range(connections)
    ]
    before = topic.end_offset()
    sample = _measure(topic, lanes, batch, frame_count=batch_count // connections)
    _check_kept(topic, before, sum(lane.answered_count for lane in lanes) * batch.record_count)
    return sample


def produce_small(topic: Topic, batch: Batch, seconds: float, connections: int = 1) -> Sample:
    """Records per second for small requests, hundreds in flight on each connection."""
    chunk = b"".join(produce_frame(topic.name, 0, batch, correlation) for correlation in range(SMALL_CHUNK))
    layout = produce_layout(topic.name)
    lanes = [Lane(topic.address, [chunk], SMALL_CHUNK, SMALL_WINDOW, layout) for _ in range(connections)]
    before = topic.end_offset()
    sample = _measure(topic, lanes, batch, seconds=seconds)
    _check_kept(topic, before, sum(lane.answered_count for lane in lanes) * batch.record_count)
    return sample


def fill(topic: Topic, chunk: bytes, frames_per_chunk: int, chunk_count: int) -> Span:
    """Send a ready chunk of frames many times: to grow a log."""
    lane = Lane(topic.address, [chunk], frames_per_chunk, 2 * frames_per_chunk, produce_layout(topic.name))
    try:
        return pipeline.run([lane], frame_count=frames_per_chunk * chunk_count)
    finally:
        pipeline.close([lane])


def _measure(
    topic: Topic,
    lanes: list[Lane],
    batch: Batch,
    frame_count: int | None = None,
    seconds: float | None = None,
) -> Sample:
    try:
        return timed(
            topic.broker,
            lambda: pipeline.run(lanes, frame_count=frame_count, seconds=seconds),
            batch.record_count,
        )
    finally:
        pipeline.close(lanes)


def _big_chunks(topic: Topic, batch: Batch, lane_index: int, lane_count: int) -> list[bytes]:
    """The frames of one lane: its share of the partitions, or the one partition that all share."""
    partitions = range(topic.partition_count)[lane_index % topic.partition_count :: lane_count]
    return [produce_frame(topic.name, partition, batch) for partition in partitions]


def _check_kept(topic: Topic, before: int, acknowledged: int) -> None:
    kept = topic.end_offset() - before
    if kept != acknowledged:
        raise BadAnswer(f"{topic.broker.name} acknowledged {acknowledged} records and kept {kept}")
