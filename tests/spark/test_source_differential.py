"""The same topics, the same options, the same rows: `format("tidelog")` beside Spark's own connector.

Each row of the tables is read by both in one session from one broker, and everything is compared: keys,
values, headers, offsets, timestamps; what one refuses, the other must refuse. `TIDELOG_COMPAT_BOOTSTRAP`
points the same tables at a Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.compat.client import CODECS, Sent, eventually
from tests.compat.confluent.driver import Confluent
from tests.spark.conftest import EXISTING_BROKER
from tests.spark.queries import (
    SPACING_MS,
    STARTED_MS,
    delete_before,
    everything,
    fill,
    numbered,
    read,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("kafka_connector")

ODD = [
    Sent(b"value", b"key", (("h", b"v"),)),
    Sent(None, b"a tombstone"),
    Sent(b"without a key"),
    Sent(b"", b""),
    Sent(b"v", b"k", (("same", b"1"), ("same", b"2"), ("null", None), ("empty", b""), ("", b"no name"))),
    Sent("ünïcode".encode(), "schlüssel".encode(), (("kopfzeile-ä", b"\x00\xff"),)),
    Sent(bytes(range(256)), b"\xff\xfe"),
]
TRIMMED_BEFORE = 4


@dataclass(frozen=True)
class Topics:
    """What both connectors read."""

    prefix: str

    def __getattr__(self, name: str) -> str:
        return f"{self.prefix}-{name}"


Options = Callable[[Topics], dict[str, Any]]

LAYOUT: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "other": (2, {}),
    "codecs": (len(CODECS), {}),
    "appended": (1, {"message.timestamp.type": "LogAppendTime"}),
    "large": (1, {}),
    "trimmed": (2, {}),
    "wide": (4, {}),
    "empty": (2, {}),
}


@pytest.fixture(scope="module")
def topics(client: Confluent, bootstrap: str) -> Iterator[Topics]:
    made = Topics(f"differential-{uuid4().hex[:8]}")
    for name, (partitions, settings) in LAYOUT.items():
        client.create_topic(f"{made.prefix}-{name}", partitions, {"retention.ms": "-1"} | settings)
    eventually(
        lambda: all(f"{made.prefix}-{name}" in client.topics() for name in LAYOUT), "topics are missing"
    )
    fill(bootstrap, made.plain, {0: numbered(20), 1: ODD})
    fill(bootstrap, made.other, {0: numbered(3), 1: numbered(2)})
    for partition, codec in enumerate(CODECS):
        fill(bootstrap, made.codecs, {partition: ODD + numbered(50)}, codec)
    fill(bootstrap, made.appended, {0: ODD}, "lz4")
    fill(
        bootstrap,
        made.large,
        {0: [Sent(b"x" * 1_000_000), Sent(b"y"), Sent(b"z" * 1_000_000, b"k" * 10_000)]},
    )
    fill(bootstrap, made.trimmed, {0: numbered(10), 1: numbered(10)})
    delete_before(bootstrap, made.trimmed, 0, TRIMMED_BEFORE)
    fill(bootstrap, made.wide, {partition: numbered(10 * (partition + 1)) for partition in range(4)})
    yield made
    for name in LAYOUT if EXISTING_BROKER else ():
        client.delete_topic(f"{made.prefix}-{name}")


def offsets(topic: str, *each: int) -> str:
    """An option's list of offsets or timestamps: one for each partition, beginning with 0."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(each)}})


def at(record: int) -> int:
    """The timestamp of a partition's record of that number."""
    return STARTED_MS + record * SPACING_MS


READ_ALIKE: dict[str, Options] = {
    "subscribe": lambda t: {"subscribe": t.plain},
    "headers": lambda t: {"subscribe": t.plain, "includeHeaders": True},
    "several topics": lambda t: {"subscribe": f"{t.plain},{t.other}", "includeHeaders": True},
    "topics with spaces between": lambda t: {"subscribe": f"{t.plain}, {t.other}"},
    "a topic twice": lambda t: {"subscribe": f"{t.other},{t.other}"},
    "pattern": lambda t: {"subscribePattern": f"{t.prefix}-(plain|other|empty)"},
    "pattern of a part": lambda t: {"subscribePattern": f"{t.prefix}-.*th"},
    "assign": lambda t: {"assign": json.dumps({t.plain: [0, 2], t.other: [1]})},
    "empty topic": lambda t: {"subscribe": t.empty},
    "codecs": lambda t: {"subscribe": t.codecs, "includeHeaders": True},
    "append time": lambda t: {"subscribe": t.appended, "includeHeaders": True},
    "large values": lambda t: {"subscribe": t.large},
    "earliest to latest": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    },
    "offsets": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, 3, 2, 0),
        "endingOffsets": offsets(t.plain, 17, 5, 0),
    },
    "offsets by their edges": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, -2, 2, -2),
        "endingOffsets": offsets(t.plain, -1, 5, -1),
    },
    "start at the end": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, 20, len(ODD), 0),
    },
    "nothing between": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, 5, 5, 0),
        "endingOffsets": offsets(t.plain, 5, 5, 0),
    },
    "starting timestamp": lambda t: {
        "subscribe": t.other,
        "startingTimestamp": at(1),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "timestamp between two": lambda t: {"assign": json.dumps({t.plain: [0]}), "startingTimestamp": at(3) + 1},
    "both timestamps": lambda t: {
        "assign": json.dumps({t.plain: [0]}),
        "startingTimestamp": at(3),
        "endingTimestamp": at(15),
    },
    "ending timestamp behind the end": lambda t: {"subscribe": t.plain, "endingTimestamp": at(9)},
    "offsets by timestamp": lambda t: {
        "subscribe": t.other,
        "startingOffsetsByTimestamp": offsets(t.other, at(1), at(0)),
        "endingOffsetsByTimestamp": offsets(t.other, at(2), at(1)),
    },
    "latest where no record is": lambda t: {
        "subscribe": t.plain,
        "startingOffsetsByTimestamp": offsets(t.plain, at(18), at(900), at(0)),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "timestamp over offsets": lambda t: {
        "assign": json.dumps({t.plain: [0]}),
        "startingTimestamp": at(10),
        "startingOffsetsByTimestamp": offsets(t.plain, at(12)),
        "startingOffsets": offsets(t.plain, 14),
    },
    "by timestamp over offsets": lambda t: {
        "assign": json.dumps({t.plain: [0]}),
        "startingOffsetsByTimestamp": offsets(t.plain, at(12)),
        "startingOffsets": offsets(t.plain, 14),
    },
    "trimmed from the earliest": lambda t: {"subscribe": t.trimmed},
    "trimmed at its beginning": lambda t: {
        "subscribe": t.trimmed,
        "startingOffsets": offsets(t.trimmed, TRIMMED_BEFORE, 0),
    },
    "trimmed and nobody minds": lambda t: {
        "subscribe": t.trimmed,
        "startingOffsets": offsets(t.trimmed, 1, 1),
        "failOnDataLoss": False,
    },
    "an end that is not there and nobody minds": lambda t: {
        "subscribe": t.other,
        "endingOffsets": offsets(t.other, 3, 1),
        "failOnDataLoss": False,
    },
    "read committed": lambda t: {"subscribe": t.plain, "kafka.isolation.level": "read_committed"},
    "names in any case": lambda t: {"SUBSCRIBE": t.plain, "INCLUDEHEADERS": "TRUE"},
    "a group of one's own": lambda t: {"subscribe": t.other, "kafka.group.id": "mine"},
    "small fetches": lambda t: {"subscribe": t.codecs, "kafka.max.partition.fetch.bytes": 1000},
}

CUT_ALIKE: dict[str, Options] = {
    "as many as partitions": lambda t: {"subscribe": t.wide},
    "an empty partition": lambda t: {"subscribe": t.plain},
    "minPartitions": lambda t: {"subscribe": t.wide, "minPartitions": 11},
    "fewer than partitions": lambda t: {"subscribe": t.wide, "minPartitions": 2},
    "more than records": lambda t: {"subscribe": t.other, "minPartitions": 30},
    "maxRecordsPerPartition": lambda t: {
        "subscribe": t.wide,
        "maxRecordsPerPartition": 7,
        "startingOffsets": offsets(t.wide, 0, 0, 0, 0),
        "endingOffsets": offsets(t.wide, 10, 20, 30, 40),
    },
    "both": lambda t: {
        "subscribe": t.wide,
        "minPartitions": 9,
        "maxRecordsPerPartition": 25,
        "startingOffsets": offsets(t.wide, 0, 3, 1, 0),
        "endingOffsets": offsets(t.wide, 10, 20, 30, 40),
    },
}

REFUSED_ALIKE: dict[str, Options] = {
    "a topic that is not there": lambda t: {"subscribe": t.nowhere},
    "one topic of two is not there": lambda t: {"subscribe": f"{t.plain},{t.nowhere}"},
    "no record so late": lambda t: {"subscribe": t.plain, "startingTimestamp": at(900)},
    "one partition not named": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, 0, 0),
    },
    "a partition that is not read": lambda t: {
        "assign": json.dumps({t.plain: [0]}),
        "startingOffsets": offsets(t.plain, 0, 0, 0),
    },
    "start behind the end": lambda t: {
        "subscribe": t.other,
        "startingOffsets": offsets(t.other, 2, 0),
        "endingOffsets": offsets(t.other, 1, 1),
    },
    "latest as start": lambda t: {"subscribe": t.plain, "startingOffsets": "latest"},
    "earliest as end": lambda t: {"subscribe": t.plain, "endingOffsets": "earliest"},
    "no topic": lambda t: {},
    "two ways to say which": lambda t: {"subscribe": t.plain, "subscribePattern": t.plain},
    "minPartitions 0": lambda t: {"subscribe": t.plain, "minPartitions": 0},
    "a boolean that is none": lambda t: {"subscribe": t.plain, "failOnDataLoss": "perhaps"},
    "trimmed, and that matters": lambda t: {
        "subscribe": t.trimmed,
        "startingOffsets": offsets(t.trimmed, 1, 1),
    },
}


@pytest.mark.parametrize("case", READ_ALIKE)
def test_the_rows_are_the_same(case: str, spark: SparkSession, bootstrap: str, topics: Topics) -> None:
    options = READ_ALIKE[case](topics)
    expected = everything(read(spark, "kafka", bootstrap, **options))
    assert everything(read(spark, "tidelog", bootstrap, **options)) == expected


def test_the_columns_are_the_same(spark: SparkSession, bootstrap: str, topics: Topics) -> None:
    for options in ({}, {"includeHeaders": "true"}, {"includeheaders": "TRUE"}):
        kafka = read(spark, "kafka", bootstrap, subscribe=topics.other, **options)
        assert read(spark, "tidelog", bootstrap, subscribe=topics.other, **options).schema == kafka.schema


@pytest.mark.parametrize("case", CUT_ALIKE)
def test_the_tasks_that_have_rows_are_the_same(
    case: str, spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    """The connector has tasks without any, too: it cuts before it knows where a partition ends."""
    expected, found = (
        tasks(read(spark, form, bootstrap, **CUT_ALIKE[case](topics))) for form in ("kafka", "tidelog")
    )
    assert found == expected


def tasks(frame: DataFrame) -> list[list[tuple[int, int]]]:
    """The partitions and offsets that each task reads."""
    read_by = frame.select("partition", "offset").rdd.glom().collect()
    return sorted(sorted((row.partition, row.offset) for row in task) for task in read_by if task)


@pytest.mark.parametrize("case", REFUSED_ALIKE)
def test_what_one_refuses_the_other_does(
    case: str, spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    options = REFUSED_ALIKE[case](topics)
    for form in ("kafka", "tidelog"):
        with pytest.raises(Exception):  # noqa: B017 - each has its own words; ours are in test_source
            everything(read(spark, form, bootstrap, **options))
