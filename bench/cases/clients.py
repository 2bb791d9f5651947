"""librdkafka against both brokers, and against its own mock as the client's bound.

**Invariant:** no targets here: the client is part of what is measured.
"""

from __future__ import annotations

from functools import partial
from statistics import median

from bench.arena import Sample, fresh_topic, timed
from bench.load import librdkafka
from bench.load.batches import Batch, full_batch
from bench.load.pipeline import Span
from bench.load.produce import produce_volume
from bench.peers.mock import MOCK_SETTINGS
from bench.peers.process import RunningBroker
from bench.report import Row
from bench.run import Run

METHOD = (
    "librdkafka: confluent-kafka from Python (`produce_batch`, `consume`), acks=all, linger 5 ms, one"
    " partition, consuming the same full batches from both; its bound is the same producer against"
    " librdkafka's in-process mock cluster, which keeps only the last records and so has no consume figure",
)


def run(run: Run) -> list[Row]:
    rows = []
    for value_size in (100, 1_000):
        count = run.scale.client_records // (1 if value_size == 100 else 5)
        samples = run.arena.compare(partial(_produce, value_size, count))
        case = f"librdkafka produce {value_size:,} B"
        bound = _mock_bound(value_size, count, run.scale.rounds)
        rows.append(Row(case, "msg/s", samples.get("Tidelog"), samples.get("Kafka"), bound=bound))
    for value_size in (100, 1_000):
        batch = full_batch(value_size)
        count = run.scale.client_records // (1 if value_size == 100 else 5)
        samples = run.arena.compare(partial(_consume, batch, count))
        case = f"librdkafka consume {value_size:,} B"
        rows.append(Row(case, "msg/s", samples.get("Tidelog"), samples.get("Kafka")))
    return rows


def _produce(value_size: int, count: int, broker: RunningBroker) -> Sample:
    connection: dict[str, str | int] = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
    with fresh_topic(broker, 1) as topic:
        return timed(broker, lambda: _produced(connection, topic.name, value_size, count), 1)


def _mock_bound(value_size: int, count: int, rounds: int) -> Sample:
    spans = [_produced(MOCK_SETTINGS, "bound", value_size, count) for _ in range(rounds)]
    return Sample(median(span.frames_per_second for span in spans))


def _produced(connection: dict[str, str | int], topic: str, value_size: int, count: int) -> Span:
    return librdkafka.produce(connection, topic, 1, bytes(value_size), count)


def _consume(batch: Batch, count: int, broker: RunningBroker) -> Sample:
    with fresh_topic(broker, 1) as topic:
        batch_count = -(-count // batch.record_count)
        produce_volume(topic, batch, batch_count)
        bootstrap = f"{broker.host}:{broker.port}"
        total = batch_count * batch.record_count
        return timed(broker, lambda: librdkafka.consume(bootstrap, topic.name, 1, total), 1)
