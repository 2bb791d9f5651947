"""The measurements that the generator makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from tests.spark.pipelines.inputs import placed
from tests.spark.pipelines.metrics import oracle
from tidelog.spark.pipelines.generated import Record
from tidelog.spark.pipelines.metrics.generator import NAMES, generate, tags_of
from tidelog.spark.pipelines.metrics.topics import MEASUREMENTS

START = datetime(2026, 3, 2, tzinfo=UTC)
HOSTS = 6


def some(events: int, seed: int = 1) -> list[Record]:
    return list(generate(seed, HOSTS, events, START, timedelta(days=1)))


def test_as_many_measurements_are_made_as_asked_in_the_order_of_arrival() -> None:
    records = some(45_000)
    assert len(records) == 45_000 and {record[0] for record in records} == {MEASUREMENTS}
    assert all(one[3] <= other[3] for one, other in pairwise(records))


def test_a_seed_gives_the_same_measurements_again_and_another_seed_others() -> None:
    assert some(3_000) == some(3_000)
    assert some(3_000) != some(3_000, seed=2)


def test_every_host_measures_everything_under_its_tags() -> None:
    measured, broken = oracle.read(placed(some(20_000)))
    assert 0 < len(broken) < 40
    assert len({one.series for one in measured}) == HOSTS * len(NAMES)
    assert all(one.value["tags"] == tags_of(int(one.value["tags"]["host"][5:])) for one in measured)
    assert len({tuple(one.value["tags"]) for one in measured}) == 2
    assert 0 < sum(one.late for one in measured) < 100


def test_measurements_follow_the_day_with_a_few_outliers() -> None:
    measured, _ = oracle.read(placed(some(40_000)))
    cpu = [one.value for one in measured if one.value["name"] == "cpu.percent"]
    by_hour = [median(v["value"] for v in cpu if v["time"] // 3_600_000 % 24 == hour) for hour in (4, 12, 20)]
    assert by_hour[0] * 1.3 < by_hour[1] < by_hour[2] * 1.3
    outliers = sum(v["value"] == 100 for v in cpu)
    assert 0 < outliers < 0.02 * len(cpu)
