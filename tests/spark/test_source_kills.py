"""A driver that is killed at each step of a micro-batch, again and again: no row is lost.

A sink that is written in Python is written to at least once; Parquet, which keeps a log of its own files,
exactly once: there each offset must be found once, whatever happened.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.soak import Tally, choose_seed, is_soak, record
from tests.spark.conftest import NewTopic
from tests.spark.queries import fill, numbered, numbers, read

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'tidelog[spark]'")

from tests.spark.drivers import STEPS, Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_KILLS, SOAK_KILLS = 4, 30
RECORDS_PER_ROUND = 100  # for each of the partitions: some four micro-batches
PARTITIONS = 2


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_no_row_is_lost_by_killing_the_driver_at_any_step(
    request: pytest.FixtureRequest, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    seed = choose_seed()
    steps = steps_of(random.Random(seed), SOAK_KILLS if is_soak() else SAMPLE_KILLS)
    driver = Driver(bootstrap, new_topic(PARTITIONS), new_topic(PARTITIONS), str(tmp_path))
    written = 0
    for step in steps:
        write_more(driver, written)
        written += RECORDS_PER_ROUND
        driver.killed_at(step)
    driver.finished()

    spark: SparkSession = request.getfixturevalue("spark")  # now: one JVM at a time is enough
    expected = [(partition, number) for partition in range(PARTITIONS) for number in range(written)]
    copied = [number for _, number in numbers(read(spark, "tidelog", bootstrap, subscribe=driver.target))]
    table = spark.read.parquet(driver.table)
    missing = sum(PARTITIONS - min(copied.count(number), PARTITIONS) for number in range(written))
    doubled = len(copied) - len(expected) + missing
    outcome = "passed" if not missing and numbers(table) == expected else "failed"
    record("spark driver", Tally(outcome, len(steps), len(expected), missing, doubled, seed))
    assert not missing, f"{missing} rows are missing in the topic, after kills at {steps}"
    assert numbers(table) == expected, f"Parquet has other rows, after kills at {steps}"
    assert len({(row.partition, row.offset) for row in table.collect()}) == len(expected)


def steps_of(chance: random.Random, count: int) -> list[str]:
    """Each step as often as any other, in an order of chance."""
    steps = [step for _ in range(count // len(STEPS) + 1) for step in chance.sample(STEPS, len(STEPS))]
    return steps[:count]


def write_more(driver: Driver, first: int) -> None:
    more = numbered(RECORDS_PER_ROUND, first)
    fill(driver.bootstrap, driver.source, dict.fromkeys(range(PARTITIONS), more))
