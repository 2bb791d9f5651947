"""Fetch load: the same whole batches from every broker, dropped unread by the client.

All batches of a topic have one size, so a fetch that asks for a multiple of it gets exactly that, and the
offsets of all fetches are known beforehand. The first answer is read whole and compared with what was sent.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.response import FetchResponse

from bench.arena import Sample, Topic, timed
from bench.load import pipeline
from bench.load.admin import Admin, read_response
from bench.load.batches import Batch
from bench.load.frames import fetch_frame, fetch_layout
from bench.load.pipeline import BadAnswer, DiscardLane

PARTITION_BYTES = 1 << 20  # what librdkafka and the Java client ask of one partition
IN_FLIGHT = 2
STAMPED_SIZE = 16  # base offset, length and leader epoch: what a broker may write into a batch


def consume(topic: Topic, batch: Batch, batch_count: int, seconds: float) -> Sample:
    """Records per second, reading the topic from start to end again and again for `seconds`."""
    batches_per_fetch = max(1, PARTITION_BYTES // batch.size)
    fetch_count = batch_count // topic.partition_count // batches_per_fetch
    bytes_max = batches_per_fetch * batch.size
    frames = [
        fetch_frame(
            topic.name,
            [index * batches_per_fetch * batch.record_count] * topic.partition_count,
            bytes_max,
        )
        for index in range(fetch_count)
    ]
    layout = fetch_layout(_checked_answer_size(topic, frames[0], batch, batches_per_fetch))
    lanes = [DiscardLane(topic.address, frames, 1, IN_FLIGHT, layout)]
    records_per_fetch = batches_per_fetch * batch.record_count * topic.partition_count
    try:
        return timed(topic.broker, lambda: pipeline.run(lanes, seconds=seconds), records_per_fetch)
    finally:
        pipeline.close(lanes)


def _checked_answer_size(topic: Topic, frame: bytes, batch: Batch, batches_per_fetch: int) -> int:
    """The size of an answer after reading it whole: every byte must be what the producer sent."""
    with Admin(*topic.address) as admin:
        answer = admin.exchange(frame)
    response = read_response(answer, FetchResponse)
    partitions = response.responses[0].partitions
    if len(partitions) != topic.partition_count:
        raise BadAnswer(f"{topic.broker.name} answered for {len(partitions)} partitions")
    for partition in partitions:
        records = bytes(partition.records or b"")
        if partition.error_code is not ErrorCode.none or len(records) != batches_per_fetch * batch.size:
            raise BadAnswer(f"{topic.broker.name}: {partition.error_code.name}, {len(records)} bytes")
        for start in range(0, len(records), batch.size):
            if records[start + STAMPED_SIZE : start + batch.size] != batch.content[STAMPED_SIZE:]:
                raise BadAnswer(f"{topic.broker.name} gave back other bytes than it was sent")
    return len(answer)
