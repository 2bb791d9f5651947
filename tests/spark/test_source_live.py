"""`format("tidelog")` reading topics that are written all the while: what is planned at one moment is read at
another, and neither fails nor skips nor repeats."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent
from tests.spark.programs import awaited
from tests.spark.queries import numbers, read, run_available, stream
from tests.spark.writers import is_whole, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def live(bootstrap: str, client: Confluent) -> Iterator[str]:
    topic = f"spark-live-{uuid4().hex[:12]}"
    client.create_topic(topic, 2, {"retention.ms": "-1"})
    eventually(lambda: client.topics().get(topic) == 2, f"{topic} is not listed")
    with writing(bootstrap, topic, 2) as counts:
        eventually(lambda: counts[1] > 100, "nothing is written")
        yield topic


def firsts(found: list[tuple[int, int]]) -> dict[int, int]:
    return dict(reversed(found))


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_all_that_is_available_of_a_live_topic_is_read_once(
    starting: str, spark: SparkSession, bootstrap: str, live: str, tmp_path: Path
) -> None:
    """`latest` is the default of a stream: what came while it was planned is behind neither of its edges."""
    frame = stream(spark, "tidelog", bootstrap, subscribe=live, startingOffsets=starting)
    run_available(frame, tmp_path)

    def read_more() -> list[tuple[int, int]]:
        run_available(frame, tmp_path)
        found = numbers(spark.read.parquet(str(tmp_path / "table")))
        return found if {partition for partition, _ in found} == {0, 1} else []

    found = awaited(read_more, "nothing comes after the query's start")
    assert is_whole(found)
    assert starting == "latest" or set(firsts(found).values()) == {0}


def test_a_live_topic_is_read_in_batches_of_the_size_that_was_asked(
    spark: SparkSession, bootstrap: str, live: str, tmp_path: Path
) -> None:
    options = {"subscribe": live, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 400}
    query = run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    assert all(progress.numInputRows <= 402 for progress in query.recentProgress)
    found = numbers(spark.read.parquet(str(tmp_path / "table")))
    assert is_whole(found) and firsts(found) == {0: 0, 1: 0}


@pytest.mark.parametrize("option", ["endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_range_that_ends_about_now_ends_in_a_live_topic(
    option: str, spark: SparkSession, bootstrap: str, live: str
) -> None:
    now_ms = int(time.time() * 1_000)
    limit = now_ms if option == "endingTimestamp" else json.dumps({live: {"0": now_ms, "1": now_ms}})
    found = numbers(read(spark, "tidelog", bootstrap, subscribe=live, **{option: limit}))
    assert is_whole(found) and firsts(found) == {0: 0, 1: 0}


def test_each_action_on_a_frame_reads_what_a_live_topic_has_by_then(
    spark: SparkSession, bootstrap: str, live: str
) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=live)

    def count() -> int:
        found = numbers(frame)
        assert is_whole(found) and firsts(found) == {0: 0, 1: 0}
        return len(found)

    first = count()
    awaited(lambda: count() > first, "a second action reads what the first one read")
    rows = frame.select("partition", "value")
    planned = len(rows.collect())
    awaited(lambda: len(rows.collect()) > planned, "a plan that runs again reads what it read")


def test_filters_on_a_live_topic_take_nothing_from_each_other(
    spark: SparkSession, bootstrap: str, live: str
) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=live, pushFilters=True)
    early, late = frame.where("offset < 7"), frame.where("partition = 1 and offset >= 7")
    for each in (early, late):  # both are planned before one of them runs
        each._jdf.queryExecution().executedPlan()
    assert numbers(early) == [(partition, number) for partition in range(2) for number in range(7)]
    found = numbers(late)
    assert is_whole(found) and firsts(found) == {1: 7}
    assert firsts(numbers(frame)) == {0: 0, 1: 0}
