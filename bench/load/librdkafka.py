"""librdkafka (confluent-kafka) as load: what a user's client sees.

Here the client is often the limit; its own bound is what it reaches against `peers.mock`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.load.pipeline import BadAnswer, Span

PRODUCE_CALL = 10_000
QUEUE_MESSAGES = 500_000
CONSUME_CALL = 20_000
TIMEOUT_SECONDS = 60.0
PRODUCER_SETTINGS: dict[str, str | int | bool] = {
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
    "queue.buffering.max.kbytes": 1 << 20,
    "delivery.report.only.error": True,
}
# By default a consumer that has 100,000 records queued stops fetching for a second: a pause, not a rate.
CONSUMER_SETTINGS: dict[str, str | int | bool] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
    "fetch.queue.backoff.ms": 1,
}


def produce(
    connection: Mapping[str, str | int], topic: str, partition_count: int, value: bytes, count: int
) -> Span:
    """Send `count` copies of `value`, round robin by call; return when all are acknowledged."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(PRODUCER_SETTINGS | dict(connection))
    producer.list_topics(topic, timeout=TIMEOUT_SECONDS)
    messages = [{"value": value} for _ in range(PRODUCE_CALL)]
    cpu_before, started = time.process_time(), time.perf_counter()
    for call in range(count // PRODUCE_CALL):
        while len(producer) + PRODUCE_CALL > QUEUE_MESSAGES:
            producer.poll(0.001)
        producer.produce_batch(topic, messages, partition=call % partition_count, on_delivery=on_delivery)
    unsent = producer.flush(TIMEOUT_SECONDS)
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    if unsent or failures:
        raise BadAnswer(f"{unsent} records unsent, {len(failures)} failed: {failures[:1]}")
    return Span(count, elapsed, cpu)


def consume(bootstrap: str, topic: str, partition_count: int, count: int) -> Span:
    """Read `count` records of `topic` from its start; the clock starts with the first record."""
    consumer = Consumer(CONSUMER_SETTINGS | {"bootstrap.servers": bootstrap})
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partition_count)])
        received = len(consumer.consume(1, TIMEOUT_SECONDS))
        cpu_before, started = time.process_time(), time.perf_counter()
        while received < count:
            messages = consumer.consume(min(CONSUME_CALL, count - received), TIMEOUT_SECONDS)
            if not messages:
                raise BadAnswer(f"{received} of {count} records, then nothing for {TIMEOUT_SECONDS:.0f} s")
            if (error := messages[-1].error()) is not None:
                raise BadAnswer(f"while consuming: {error}")
            received += len(messages)
        elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    finally:
        consumer.close()
    return Span(received, elapsed, cpu)
