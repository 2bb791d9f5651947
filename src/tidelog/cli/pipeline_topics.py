"""The topics of a pipeline: check that they exist, create them, fill them with generated records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.connection import client_settings, cluster_metadata, open_admin
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import await_controller
from tidelog.cli.outcomes import await_topics

if TYPE_CHECKING:
    from tidelog.spark.pipelines.generated import Record
    from tidelog.spark.pipelines.pipeline import Pipeline

DELIVERY_TIMEOUT_S = 120.0
ARRIVAL_HOURS_MAX = 4  # the last of a day's records arrive about three hours after it


def require_topics(
    pipeline: Pipeline, bootstrap_server: str, *, may_create: bool, partitions: int
) -> list[str]:
    """Ensure that all topics of the pipeline exist; the created ones."""
    admin = open_admin(bootstrap_server)
    known = cluster_metadata(admin, bootstrap_server).topics
    missing = [topic for topic in (*pipeline.topics_in, *pipeline.topics_out) if topic not in known]
    if missing and not may_create:
        some = ", ".join(missing)
        raise Failure(f"missing topics: {some}; create them, or write --create-topics")
    if missing:
        await_controller(bootstrap_server)
        new = [NewTopic(topic, num_partitions=partitions) for topic in missing]
        await_topics(admin.create_topics(new, request_timeout=ANSWER_TIMEOUT_S), bootstrap_server)
    return missing


class Sending:
    """A producer that keeps the order of records and requires acknowledgements.

    Keys are partitioned as in the Java client, so that the sink's records and these agree.
    """

    def __init__(self, bootstrap_server: str) -> None:
        self._producer = Producer(
            client_settings(bootstrap_server)
            | {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "compression.type": "zstd",
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
            }
        )
        self.acknowledged = 0
        self._failure: KafkaError | None = None
        self._failed_topic = ""

    def send(self, records: Iterable[Record]) -> None:
        """Queue the records; waits while the queue is full."""
        for topic, key, value, timestamp_ms in records:
            while True:
                try:
                    self._producer.produce(
                        topic, value, key, timestamp=timestamp_ms, on_delivery=self._on_delivery
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
            self._producer.poll(0)

    def flush(self) -> None:
        """Return when everything queued is acknowledged."""
        left = self._producer.flush(DELIVERY_TIMEOUT_S + 5)
        self._check()
        if left:
            raise Failure(f"{left} records were not acknowledged within {DELIVERY_TIMEOUT_S:.0f} s")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self._failure is None:
            self._failure, self._failed_topic = error, message.topic() or ""

    def _check(self) -> None:
        if self._failure is not None:
            raise Failure(f"topic {self._failed_topic}: {self._failure.str()}")


def last_whole_day() -> datetime:
    """The last day that is completely past: brokers refuse timestamps from the future."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    is_over = datetime.now(UTC) - midnight > timedelta(hours=ARRIVAL_HOURS_MAX)
    return midnight - timedelta(days=1 if is_over else 2)
