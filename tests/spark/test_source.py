"""`format("tidelog")` reading batches: what it pushes down, and what it says when something is wrong.

Which rows come for which options is compared with Spark's own connector in `test_source_differential`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent
from tests.spark.conftest import NewTopic
from tests.spark.queries import (
    SPACING_MS,
    STARTED_MS,
    add_partitions,
    delete_before,
    fill,
    numbered,
    numbers,
    read,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = [(partition, number) for partition in range(2) for number in range(20)]
FILTERS: dict[str, Callable[[int, int], bool]] = {
    "partition = 1": lambda partition, number: partition == 1,
    "offset >= 5 and offset < 9": lambda partition, number: 5 <= number < 9,
    "offset in (3, 7)": lambda partition, number: number in (3, 7),
    "partition = 0 and offset > 17": lambda partition, number: partition == 0 and number > 17,
    "timestamp >= timestamp_millis({})": lambda partition, number: number >= 12,
    "timestamp < timestamp_millis({})": lambda partition, number: number < 12,
    "offset = 4 or partition = 1": lambda partition, number: number == 4 or partition == 1,
    "partition is null": lambda partition, number: False,
}


@pytest.fixture
def filled(new_topic: NewTopic, bootstrap: str) -> str:
    topic = new_topic(2)
    fill(bootstrap, topic, {0: numbered(20), 1: numbered(20)})
    return topic


@pytest.mark.parametrize("condition", FILTERS)
@pytest.mark.parametrize("pushed", [True, False])
def test_filters_leave_the_same_rows_wherever_they_run(
    condition: str, pushed: bool, spark: SparkSession, bootstrap: str, filled: str
) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=filled, pushFilters=pushed)
    found = numbers(frame.where(condition.format(STARTED_MS + 12 * SPACING_MS)))
    assert found == [place for place in NUMBERS if FILTERS[condition](*place)]


def test_a_pushed_filter_leaves_fewer_tasks(spark: SparkSession, bootstrap: str, filled: str) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=filled, pushFilters=True, maxRecordsPerPartition=5)
    assert frame.rdd.getNumPartitions() == 8
    assert frame.where("partition = 1 and offset >= 10").rdd.getNumPartitions() == 2


def test_columns_may_be_left_out(spark: SparkSession, bootstrap: str, filled: str) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=filled, includeHeaders=True)
    assert frame.count() == 40
    assert sorted(row.offset for row in frame.select("offset").collect()) == sorted(n for _, n in NUMBERS)


def test_a_view_in_sql_reads_a_topic(spark: SparkSession, bootstrap: str, filled: str) -> None:
    spark.sql(
        f"create or replace temporary view filled using tidelog options "
        f"(kafka.bootstrap.servers '{bootstrap}', subscribe '{filled}')"
    )
    assert spark.sql("select count(*) from filled where offset < 3").collect()[0][0] == 6
    spark.sql("drop view filled")


# What is said of a query that cannot be, by the options that are wrong in it.
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no topic": ({}, "subscribe"),
    "a topic that is not there": ({"subscribe": "nowhere"}, "missing topics: nowhere"),
    "a name that no topic has": ({"subscribe": "a topic!"}, r"a topic!"),
    "a number that is none": ({"subscribe": "t", "minPartitions": "many"}, "minPartitions=many"),
    "a boolean that is none": ({"subscribe": "t", "failOnDataLoss": "maybe"}, "failOnDataLoss=maybe"),
    "a forbidden property": (
        {"subscribe": "t", "kafka.enable.auto.commit": "true"},
        "kafka.enable.auto.commit",
    ),
    "offsets that are no JSON": ({"subscribe": "t", "startingOffsets": "{"}, "startingOffsets"),
    "a batch from the latest offset": (
        {"subscribe": "t", "startingOffsets": "latest"},
        "startingOffsets=latest",
    ),
    "a broken pattern": ({"subscribePattern": "("}, "subscribePattern"),
    "a client property": ({"subscribe": "t", "kafka.security.protocol": "MAGIC"}, "MAGIC"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str, spark: SparkSession, bootstrap: str) -> None:
    options, words = WRONG[case]
    with pytest.raises(Exception, match=words):
        read(spark, "tidelog", bootstrap, **options).collect()


def test_without_a_broker_the_option_is_named(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers is missing"):
        spark.read.format("tidelog").option("subscribe", "t").load().collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, bootstrap: str, filled: str) -> None:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(Exception, match=r"the columns are always .*leave out\s+schema"):
        reader.option("subscribe", filled).schema("value string").load().collect()


def test_a_broker_that_is_not_there_is_given_up_by_its_address(spark: SparkSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = {"subscribe": "t", "kafka.default.api.timeout.ms": 300, "fetchOffset.numRetries": 1}
        with pytest.raises(Exception, match=address):
            read(spark, "tidelog", address, **options).collect()


def test_offsets_that_are_gone_are_named(spark: SparkSession, bootstrap: str, filled: str) -> None:
    delete_before(bootstrap, filled, 1, 5)
    options = {"subscribe": filled, "startingOffsets": json.dumps({filled: {"0": 0, "1": 2}})}
    words = rf"{filled}-1 begins at offset 5: records 2 to 4 are gone.* set failOnDataLoss to false"
    with pytest.raises(Exception, match=words):
        read(spark, "tidelog", bootstrap, **options).collect()


def test_records_that_go_between_planning_and_reading_are_a_loss(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    options = {"subscribe": filled, "startingOffsets": json.dumps({filled: {"0": 0, "1": 0}})}
    tasks = read(spark, "tidelog", bootstrap, **options).select("offset").rdd
    assert tasks.getNumPartitions() == 2
    delete_before(bootstrap, filled, 1, 5)
    with pytest.raises(Exception, match=rf"{filled}-1.*records 0 to 4 are gone.*failOnDataLoss"):
        tasks.collect()


def test_records_that_go_between_planning_and_reading_may_be_let_go(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    starting = json.dumps({filled: {"0": 0, "1": 0}})
    options = {"subscribe": filled, "startingOffsets": starting, "failOnDataLoss": False}
    frame = read(spark, "tidelog", bootstrap, **options)
    tasks = frame.select("partition", "offset").rdd
    assert tasks.getNumPartitions() == 2
    delete_before(bootstrap, filled, 1, 5)
    assert sorted(map(tuple, tasks.collect())) == [
        place for place in NUMBERS if place >= (1, 5) or place < (1, 0)
    ]


def test_the_earliest_offset_is_that_of_the_time_when_it_is_read(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    tasks = read(spark, "tidelog", bootstrap, subscribe=filled).select("partition", "offset").rdd
    assert tasks.getNumPartitions() == 2
    delete_before(bootstrap, filled, 1, 5)
    fill(bootstrap, filled, {0: numbered(3, first=20)})
    expected = [place for place in NUMBERS if place >= (1, 5) or place < (1, 0)] + [
        (0, n) for n in range(20, 23)
    ]
    assert sorted(map(tuple, tasks.collect())) == sorted(expected)


@pytest.mark.parametrize("form", ["tidelog", "kafka"])
def test_a_second_action_reads_what_came_since(
    form: str, spark: SparkSession, bootstrap: str, topic: str, kafka_connector: str
) -> None:
    """On a frame, a plan that was made before, a view, and what is built on them; as by Spark's connector."""
    fill(bootstrap, topic, {0: numbered(10)})
    frame = read(spark, form, bootstrap, subscribe=topic)
    few = frame.where("offset < 100")
    frame.createOrReplaceTempView("seen_again")

    def counts() -> list[int]:
        in_view = spark.sql("select count(*) from seen_again where offset >= 0").collect()[0][0]
        made_before = [len(frame.collect()), len(few.collect())]
        return [*made_before, frame.count(), few.count(), in_view, frame.union(frame).count() // 2]

    assert counts() == [10] * 6
    fill(bootstrap, topic, {0: numbered(5, first=10)})
    assert counts() == [15] * 6
    add_partitions(bootstrap, topic, 2)
    fill(bootstrap, topic, {1: numbered(7)})
    assert counts() == [15] * 2 + [22] * 4, "the tasks of a plan are those of its partitions"
    spark.sql("drop view seen_again")


def test_actions_with_other_filters_do_not_disturb_each_other(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    frame = read(spark, "tidelog", bootstrap, subscribe=filled, pushFilters=True)
    few, one = frame.where("offset < 3"), frame.where("partition = 1")
    for each in (few, one):  # both are planned before one of them runs
        each._jdf.queryExecution().executedPlan()
    for _ in range(2):
        assert numbers(few) == [place for place in NUMBERS if place[1] < 3]
        assert numbers(frame) == NUMBERS
        assert numbers(one) == [place for place in NUMBERS if place[0] == 1]
        assert numbers(few.union(one)) == sorted(
            [p for p in NUMBERS if p[1] < 3] + [p for p in NUMBERS if p[0]]
        )


def test_filters_are_not_pushed_down_where_queries_share_a_plan(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    """In a session that only found the format by its name."""
    from tidelog.spark.source import TidelogSource

    own = spark.newSession()
    own.dataSource.register(TidelogSource)
    frame = read(own, "tidelog", bootstrap, subscribe=filled, pushFilters=True)
    assert numbers(frame.where("offset < 3")) == [place for place in NUMBERS if place[1] < 3]
    assert numbers(frame) == NUMBERS


def test_a_topic_that_is_made_again_between_planning_and_reading_is_not_taken_for_the_old_one(
    spark: SparkSession, bootstrap: str, filled: str, client: Confluent
) -> None:
    tasks = read(spark, "tidelog", bootstrap, subscribe=filled).select("offset").rdd
    assert tasks.getNumPartitions() == 2
    make_again(client, filled, 2)
    fill(bootstrap, filled, {0: numbered(20), 1: numbered(20)})
    with pytest.raises(Exception, match=rf"{filled}.*failOnDataLoss"):
        tasks.collect()


def make_again(client: Confluent, topic: str, partitions: int) -> None:
    client.delete_topic(topic)
    eventually(lambda: topic not in client.topics(), f"{topic} is still listed")
    client.create_topic(topic, partitions, {"retention.ms": "-1"})
    eventually(lambda: client.topics().get(topic) == partitions, f"{topic} is not listed")
