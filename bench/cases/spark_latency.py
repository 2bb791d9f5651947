"""From an event to its copy by Spark: how long a micro-batch takes, end to end.

**Invariant:** every event that was sent is found in the copy, once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.arena import Sample, Topic
from bench.cases.latency import percentile
from bench.load.admin import Admin
from bench.load.pipeline import BadAnswer
from bench.load.spark_process import SparkProcess
from bench.peers.process import PeerFailed, RunningBroker
from bench.report import Row

EVENTS_PER_SECOND = 200
VALUE_SIZE = 100
WARM_UP_SHARE = 0.5
FIRST_SECONDS_MAX = 120.0
LAST_SECONDS_MAX = 60.0
METHOD = (
    f"Spark, latency: {EVENTS_PER_SECOND} events a second with their time in the value go to a topic; a"
    " stream with the default trigger copies it to a second topic, whose timestamps are the broker's time of"
    " appending; the difference of the two, of all events after a warm-up of half as long; one connector"
    " after the other",
)


def rows(
    spark: SparkProcess, broker: RunningBroker, connectors: Mapping[str, str], seconds: float
) -> list[Row]:
    """Tidelog with both guarantees, beside the connector, which copies at least once."""
    theirs = _latencies(spark, broker, connectors["Kafka"], seconds, {})
    found = []
    for guarantee in ("at-least-once", "exactly-once"):
        options = {"deliveryGuarantee": guarantee}
        ours = _latencies(spark, broker, connectors["Tidelog"], seconds, options)
        for name, fraction in (("p50", 0.50), ("p99", 0.99)):
            measured, connector = (Sample(percentile(values, fraction)) for values in (ours, theirs))
            case = f"Spark, event to its copy in another topic, {guarantee}, {name}"
            found.append(Row(case, "ms", measured, connector))
    return found


def _latencies(
    spark: SparkProcess, broker: RunningBroker, connector: str, seconds: float, options: Mapping[str, str]
) -> list[int]:
    """Milliseconds of each event that counts."""
    label = "-".join([connector, *options.values()])
    events = Topic(f"events-{label}", 1, broker)
    copies = Topic(f"copies-{label}", 1, broker)
    with Admin(broker.host, broker.port) as admin:
        admin.create_topic(events.name, 1)
        admin.create_topic(copies.name, 1, {"message.timestamp.type": "LogAppendTime"})
    bootstrap = f"{broker.host}:{broker.port}"
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    checkpoint = str(broker.site.directory / f"checkpoint-{label}")
    spark.ask(
        "copy",
        format=connector,
        bootstrap=bootstrap,
        topic=events.name,
        to=copies.name,
        checkpoint=checkpoint,
        written=dict(options),
    )
    send_event(producer, events.name)
    _wait_for(copies, 1, FIRST_SECONDS_MAX)
    warm_up = int(EVENTS_PER_SECOND * seconds * WARM_UP_SHARE)
    count = warm_up + int(EVENTS_PER_SECOND * seconds)
    _send_paced(producer, events.name, count)
    copied = read_all(bootstrap, copies.name, 1 + count)  # an end offset also counts markers
    spark.ask("stop_copying")
    return latencies_of(copied)[1 + warm_up :]


def _send_paced(producer: Producer, topic: str, count: int) -> None:
    started = time.monotonic()
    for index in range(count):
        time.sleep(max(0.0, started + index / EVENTS_PER_SECOND - time.monotonic()))
        send_event(producer, topic)
        producer.poll(0)
    if producer.flush(LAST_SECONDS_MAX):
        raise BadAnswer("events were not acknowledged")


def send_event(producer: Producer, topic: str) -> None:
    producer.produce(topic, str(time.time_ns()).ljust(VALUE_SIZE).encode(), partition=0)


def _wait_for(topic: Topic, count: int, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while topic.end_offset() < count:
        if time.monotonic() > deadline:
            raise PeerFailed(
                f"{topic.name} has {topic.end_offset()} of {count} events after {seconds_max:.0f} s"
            )
        time.sleep(0.05)


def read_all(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench-spark", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        while len(messages) < count:
            more = consumer.consume(count - len(messages), LAST_SECONDS_MAX)
            if not more:
                raise BadAnswer(f"{topic} has {len(messages)} of {count} events")
            messages += more
        return messages
    finally:
        consumer.close()


def latencies_of(messages: list[Message]) -> list[int]:
    """Milliseconds from the time in each value to its timestamp, in the order of the events."""
    sent = [int(message.value() or b"0") for message in messages]
    if len(set(sent)) != len(sent):
        raise BadAnswer("an event was copied twice")
    pairs = sorted(zip(sent, (message.timestamp()[1] for message in messages), strict=True))
    return [appended_ms - sent_ns // 1_000_000 for sent_ns, appended_ms in pairs]
