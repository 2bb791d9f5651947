"""A partition's history with everything in it that a log can hold, written through librdkafka.

Values are mostly random bytes, so that segments roll by size with every codec, and end in zeros, because
librdkafka sends a batch plain that a codec cannot make smaller. Timestamps are given, so that a copy can be
compared to the millisecond.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from confluent_kafka import Producer

from tests.compat.client import CODECS, CONSUME_SECONDS_MAX, Received, Sent, eventually
from tests.compat.confluent.driver import LINGER_MS, Confluent, produce_with

START_MS = (int(time.time()) - 3 * 3600) * 1000
"""Recent, so that no producer expires, and far enough back that no record is from the future."""

SEGMENT_SIZE = 1 << 20
"""The smallest `segment.bytes` that Kafka 4 accepts."""

KEEP = {"retention.ms": "-1"}
SMALL_SEGMENTS = KEEP | {"segment.bytes": str(SEGMENT_SIZE)}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "60000",
    "retention.ms": "-1",
}
KEY_COUNT, ROUND_COUNT = 10, 16


@dataclass(frozen=True)
class Served:
    """All that a broker answers about one partition."""

    edges: tuple[int, int]
    uncommitted: list[Received]
    committed: list[Received]
    offsets_by_time: list[int | None]


def served(bootstrap: str, topic: str) -> Served:
    client = Confluent(bootstrap)
    times = [START_MS - 1, START_MS, START_MS + 1_500, START_MS + 400_001, START_MS + 1_000_000_000]
    return Served(
        edges=client.edges(topic),
        uncommitted=client.read_to_end(topic, committed_only=False),
        committed=client.read_to_end(topic, committed_only=True),
        offsets_by_time=[client.offset_for_time(topic, time_ms) for time_ms in times],
    )


def random_records(count: int, value_size: int, first: int = 0) -> list[Sent]:
    source = random.Random(first)
    return [
        Sent(
            value=source.randbytes(value_size - 200) + bytes(200),
            key=b"key %d" % number if number % 3 else None,
            headers=(("number", b"%d" % number), ("null", None)) if number % 5 == 0 else (),
            timestamp_ms=START_MS + 1000 * number,
        )
        for number in range(first, first + count)
    ]


def write_every_codec(bootstrap: str, topic: str) -> None:
    """About 4 MB: 800 records of 1,000 bytes with each codec, in batches of 100, every second idempotent."""
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "enable.idempotence": number % 2 == 0, "linger.ms": LINGER_MS}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        records = random_records(800, 1000, first=800 * number)
        for start in range(0, len(records), 100):
            produce_with(producer, topic, records[start : start + 100])


def write_transactions(bootstrap: str, topic: str) -> None:
    """Plain records, a committed, two aborted (overlapping) and again a committed transaction."""
    plain = Confluent(bootstrap)
    first, second = (_transactional(bootstrap, f"{topic}-{name}") for name in ("first", "second"))
    plain.produce(topic, [Sent(b"plain", timestamp_ms=START_MS)])
    _in_transaction(first, topic, b"committed", commit=True)
    first.begin_transaction()
    second.begin_transaction()
    produce_with(first, topic, [Sent(b"aborted, first", b"k", (("h", b"1"),), START_MS + 2000)])
    produce_with(second, topic, [Sent(b"aborted, second", timestamp_ms=START_MS + 3000)] * 3)
    plain.produce(topic, [Sent(b"between", timestamp_ms=START_MS + 4000)])
    second.abort_transaction(CONSUME_SECONDS_MAX)
    first.abort_transaction(CONSUME_SECONDS_MAX)
    _in_transaction(second, topic, b"committed at last", commit=True)
    plain.produce(topic, [Sent(b"plain at last", timestamp_ms=START_MS + 6000)])


def write_and_await_compaction(bootstrap: str, topic: str, first_round: int = 0) -> None:
    """Ten keys, each rarer than the one before it, some deleted, until the cleaner has nothing left to do."""
    client = Confluent(bootstrap)
    for number in range(first_round, first_round + ROUND_COUNT):
        written = client.produce(topic, _round(number), codec=CODECS[number % len(CODECS)])
    active_offset = written[0].offset

    def clean() -> bool:
        records = client.read_to_end(topic, committed_only=False)
        keys = [record.key for record in records if record.offset < active_offset]
        return len(keys) == len(set(keys))

    eventually(clean, "the cleaner left several records of one key")


def _round(number: int) -> list[Sent]:
    """Each round is later than `segment.ms`, so each begins a segment; key k is in every (k+1)th round."""
    start_ms = START_MS + 100_000 * number
    keys = [key for key in range(KEY_COUNT) if number % (key + 1) == 0]
    return [
        Sent(
            value=None if (number + key) % 7 == 0 else b"%d of %d " % (number, key) * 20,
            key=b"key %d" % key,
            timestamp_ms=start_ms + key,
        )
        for key in keys
    ]


def _transactional(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(CONSUME_SECONDS_MAX)
    return producer


def _in_transaction(producer: Producer, topic: str, value: bytes, *, commit: bool) -> None:
    producer.begin_transaction()
    produce_with(producer, topic, [Sent(value, timestamp_ms=START_MS + 1000)] * 2)
    (producer.commit_transaction if commit else producer.abort_transaction)(CONSUME_SECONDS_MAX)
