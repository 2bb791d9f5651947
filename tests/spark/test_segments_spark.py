"""`logDirs` in Spark: the same rows as through the broker, without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.client import CODECS, Sent
from tests.compat.confluent.driver import Confluent
from tests.log.making import append, append_marker, make_batch, open_new
from tidelog.protocol.records import Marker
from tidelog.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

COUNT = 300
CHOICES: list[dict[str, str]] = [
    {"subscribe": "clicks,views", "includeHeaders": "true"},
    {"subscribePattern": ".*", "minPartitions": "7"},
    {"assign": '{"views": [0]}', "maxRecordsPerPartition": "40"},
    {
        "subscribe": "clicks",
        "startingOffsets": '{"clicks": {"0": 17}}',
        "endingOffsets": '{"clicks": {"0": 900}}',
    },
    {"subscribe": "clicks", "startingTimestamp": "1700000000100", "kafka.isolation.level": "read_committed"},
]


class Site:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.path = broker.properties["log.dirs"]
        self.client = Confluent(broker.bootstrap_servers)
        self.written = 0

    def write(self, topic: str, count: int = COUNT, codec: str = "none") -> None:
        records = [
            Sent(b"v" * (number % 90), b"k%d" % number, (("h", b"%d" % number),), 1_700_000_000_000 + number)
            for number in range(self.written, self.written + count)
        ]
        self.client.produce(topic, records, codec=codec)
        self.written += count


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with BrokerProcess(tmp_path_factory.mktemp("segments")) as broker:
        site = Site(broker)
        for topic in ("clicks", "views"):
            site.client.create_topic(topic, 1, {"retention.ms": "-1", "segment.bytes": "8000"})
            for codec in CODECS:
                site.write(topic, codec=codec)
        yield site


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("tidelog").options(**options).load()


def collect(frame: DataFrame) -> list[Row]:
    return frame.orderBy("topic", "partition", "offset").collect()


@pytest.mark.parametrize("options", CHOICES, ids="+".join)
def test_a_batch_has_the_rows_that_the_broker_gives(
    spark: SparkSession, site: Site, options: dict[str, str]
) -> None:
    rows = collect(load(spark, {"logDirs": site.path, **options}))
    assert rows
    assert rows == collect(load(spark, {"kafka.bootstrap.servers": site.broker.bootstrap_servers, **options}))


def test_a_stream_reads_on_where_its_checkpoint_ends(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    site.client.create_topic("stream", 1, {"retention.ms": "-1", "segment.bytes": "8000"})
    for total in (COUNT, 2 * COUNT, 2 * COUNT):
        if total > len(seen(spark, tmp_path)):
            site.write("stream")
        stream = spark.readStream.format("tidelog").option("logDirs", site.path)
        stream = stream.option("subscribe", "stream").option("startingOffsets", "earliest")
        query = (
            stream.option("maxOffsetsPerTrigger", "110")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert query.awaitTermination(120)
        assert seen(spark, tmp_path) == list(range(total))


def seen(spark: SparkSession, tmp_path: Path) -> list[int]:
    if not (tmp_path / "rows").exists():
        return []
    return [row.offset for row in spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()]


def test_aborted_and_open_transactions_are_read_only_if_that_is_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, topic in enumerate(("paid", "shipped")):
        folder = tmp_path / f"disk{number}" / f"{topic}-0"
        folder.mkdir(parents=True)
        log = open_new(folder)
        append(log, make_batch(2))
        append(log, make_batch(2, producer_id=1, transactional=True))
        append_marker(log, Marker.ABORT, 1)
        append(log, make_batch(1, producer_id=2, transactional=True))
        append_marker(log, Marker.COMMIT, 2)
        append(log, make_batch(1, producer_id=3, transactional=True))
        append(log, make_batch(1))
    options = {"logDirs": f"{tmp_path}/disk0,{tmp_path}/disk1", "subscribe": "paid,shipped"}
    for level, offsets in (("read_committed", [0, 1, 5]), ("read_uncommitted", [0, 1, 2, 3, 5, 7, 8])):
        rows = collect(load(spark, options | {"kafka.isolation.level": level}))
        assert [(row.topic, row.offset) for row in rows] == [
            (topic, offset) for topic in ("paid", "shipped") for offset in offsets
        ]


def test_a_directory_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    with pytest.raises(Exception, match=f"logDirs: {missing} cannot be listed"):
        load(spark, {"logDirs": str(missing), "subscribe": "clicks"}).collect()
