"""A stream whose topics grow, come and go while its query is stopped and started at random: each record is
read once. A seed is a test; the sample of `make test` takes a few, `make soak` many."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

from tests.compat.client import Sent, eventually
from tests.compat.confluent.driver import Confluent
from tests.soak import is_soak
from tests.spark.programs import awaited
from tests.spark.queries import QUERY_SECONDS_MAX, add_partitions, fill, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEEDS = range(20 if is_soak() else 1)
STEPS = 40 if is_soak() else 10
PARTITIONS_MAX = 12


class Reader:
    """A query into a Parquet table, which has each batch once, stopped and started again."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        writer = frame.selectExpr("cast(value as string) as value").writeStream.format("parquet")
        writer = writer.option("path", str(folder / "table"))
        self._writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self._folder = folder
        self._query: StreamingQuery = self._writer.start()

    def again(self) -> None:
        self.stop()
        self._query = self._writer.start()

    def stop(self) -> None:
        self._query.stop()
        self._check()

    def wait(self, choice: random.Random) -> None:
        """Let the query go on for a moment, to be stopped anywhere."""
        threading.Event().wait(choice.choice([0.02, 0.1, 0.3, 0.6, 1.0]))
        self._check()

    def _reads_all(self) -> bool:
        self._query = self._writer.trigger(availableNow=True).start()
        with suppress(StreamingQueryException):
            assert self._query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
        self._check()
        return self._query.exception() is None

    def _check(self) -> None:
        problem = self._query.exception()
        # Spark gives a Python process ten seconds to start, which a busy machine may exceed.
        assert problem is None or "Python worker failed to connect back" in str(problem)

    def read_rest(self, spark: SparkSession) -> list[str]:
        """Everything that has been read when nothing is left."""
        self.stop()
        awaited(self._reads_all, "the rest is not read")
        return sorted(str(row.value) for row in spark.read.parquet(str(self._folder / "table")).collect())


def labelled(label: str, count: int) -> list[Sent]:
    return [Sent(f"{label}-{number:06}".encode()) for number in range(count)]


@pytest.mark.soak
@pytest.mark.parametrize("fails_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_gets_partitions_while_its_reader_starts_again_is_read_once(
    seed: int, fails_on_data_loss: str, spark: SparkSession, bootstrap: str, client: Confluent, tmp_path: Path
) -> None:
    choice, topic = random.Random(seed), f"spark-growth-{uuid4().hex[:12]}"
    sent: list[str] = []
    partitions = 1
    client.create_topic(topic, partitions, {"retention.ms": "-1"})
    eventually(lambda: topic in client.topics(), "no topic")
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": fails_on_data_loss}
    if choice.random() < 0.5:
        options["maxOffsetsPerTrigger"] = "50"
    reader = Reader(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    try:
        for step in range(STEPS):
            what = choice.choice(["grow", "restart", "fill", "fill"])
            if what == "grow" and partitions < PARTITIONS_MAX:
                partitions += choice.randint(1, 2)
                add_partitions(bootstrap, topic, partitions)
                eventually(partial(has_partitions, client, topic, partitions), "no partitions")
            elif what == "restart":
                reader.again()
            else:
                records = labelled(f"{step}", choice.randint(1, 60))
                fill(bootstrap, topic, {choice.randrange(partitions): records})
                sent += [record.value.decode() for record in records if record.value]
            reader.wait(choice)
        assert reader.read_rest(spark) == sorted(sent), f"seed {seed}"
    finally:
        reader.stop()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_topics_that_come_and_go_under_a_pattern_end_nothing_and_are_read_once(
    seed: int, spark: SparkSession, bootstrap: str, client: Confluent, tmp_path: Path
) -> None:
    """What is deleted may be lost; what was never deleted is read, and nothing is read twice."""
    choice, prefix = random.Random(seed), f"spark-churn-{uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(4)]
    lives: dict[str, list[str]] = {}  # the records of the topics that are there
    for name in names[:2]:
        make(client, name)
        lives[name] = []
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = Reader(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    try:
        for step in range(STEPS):
            name = choice.choice(names)
            what = choice.choice(["delete", "again", "restart", "fill", "fill"])
            if what in ("delete", "again") and name in lives and len(lives) > 1:
                drop(client, name)
                del lives[name]
                if what == "again":
                    make(client, name)
                    lives[name] = []
            elif what == "restart":
                reader.again()
            else:
                if name not in lives:
                    make(client, name)
                    lives[name] = []
                records = labelled(f"{step}", choice.randint(1, 60))
                fill(bootstrap, name, {0: records})
                lives[name] += [record.value.decode() for record in records if record.value]
            reader.wait(choice)
        found = reader.read_rest(spark)
        assert len(found) == len(set(found)), f"read twice, seed {seed}"
        assert set(found) >= {value for values in lives.values() for value in values}, f"seed {seed}"
    finally:
        reader.stop()


def has_partitions(client: Confluent, topic: str, count: int) -> bool:
    return client.topics().get(topic) == count


def make(client: Confluent, name: str) -> None:
    client.create_topic(name, 1, {"retention.ms": "-1"})
    eventually(lambda: name in client.topics(), f"{name} is not listed")


def drop(client: Confluent, name: str) -> None:
    client.delete_topic(name)
    eventually(lambda: name not in client.topics(), f"{name} is still listed")
