"""A driver that is killed at each step of a micro-batch, again and again: each row is there once.

In the topic, which is written exactly once, for readers with `read_committed`; and in a Parquet table, which
keeps a log of its own files: there each offset must be found once.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.soak import Tally, choose_seed, is_soak, record
from tests.spark.conftest import NewTopic
from tests.spark.queries import fill, numbered

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.spark.drivers import STEPS, Copies, Driver

SAMPLE_KILLS, SOAK_KILLS = 1, 100
RECORDS_PER_ROUND = 100  # for each of the partitions: some four micro-batches
PARTITIONS = 2


@pytest.mark.soak
@pytest.mark.timeout(3 * 3_600)
def test_each_row_is_there_once_after_killing_the_driver_at_any_step(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    seed = choose_seed()
    steps = steps_of(random.Random(seed), SOAK_KILLS if is_soak() else SAMPLE_KILLS)
    driver = Driver(bootstrap, new_topic(PARTITIONS), new_topic(PARTITIONS), str(tmp_path))
    kills, missing, doubled, outcome = 0, 0, 0, "failed"
    try:
        for step in steps:
            write_more(driver, first=kills * RECORDS_PER_ROUND)
            driver.killed_at(step)
            kills += 1
        copies = driver.finished()
        missing, doubled = differences(copies, kills * RECORDS_PER_ROUND)
        assert not missing, f"{missing} rows are missing in the topic, after kills at {steps}"
        assert not doubled, f"{doubled} rows are there twice in the topic, after kills at {steps}"
        check_table(copies, kills * RECORDS_PER_ROUND)
        outcome = "passed"
    finally:
        written = kills * RECORDS_PER_ROUND * PARTITIONS
        record("SIGKILL of a Spark driver", Tally(outcome, kills, written, missing, doubled, seed))


def differences(copies: Copies, count: int) -> tuple[int, int]:
    """How many rows are missing in the target topic, and how many are there once more than written."""
    found = Counter(number for _, number in copies.topic)
    assert found.keys() <= set(range(count)), "rows that nobody wrote"
    surplus = [found[number] - PARTITIONS for number in range(count)]
    return -sum(each for each in surplus if each < 0), sum(each for each in surplus if each > 0)


def check_table(copies: Copies, count: int) -> None:
    """Each offset once, with the row that was written there."""
    expected = [(partition, number) for partition in range(PARTITIONS) for number in range(count)]
    assert copies.table == expected
    assert copies.places == expected


def steps_of(chance: random.Random, count: int) -> list[str]:
    """Each step as often as any other, in an order of chance."""
    steps = [step for _ in range(count // len(STEPS) + 1) for step in chance.sample(STEPS, len(STEPS))]
    return steps[:count]


def write_more(driver: Driver, first: int) -> None:
    more = numbered(RECORDS_PER_ROUND, first)
    fill(driver.bootstrap, driver.source, dict.fromkeys(range(PARTITIONS), more))
