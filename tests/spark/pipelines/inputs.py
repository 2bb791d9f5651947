"""Generated records as Spark's Kafka source would give them: at once, or in files that arrive one by one."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.generated import Record
from tidelog.spark.pipelines.pipeline import Destination, ParquetSink, Stream, start
from tidelog.spark.pipelines.records import KAFKA_COLUMNS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITIONS = 2


@dataclass(frozen=True)
class Row:
    """One record where a broker would have put it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int

    @property
    def position(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


def placed(records: Iterable[Record]) -> list[Row]:
    ends: Counter[tuple[str, int]] = Counter()
    rows = []
    for topic, key, value, timestamp_ms in records:
        partition = zlib.crc32(key) % PARTITIONS
        rows.append(Row(topic, partition, ends[topic, partition], key, value, timestamp_ms))
        ends[topic, partition] += 1
    return rows


def frame_of(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    told = [
        (row.key, row.value, row.topic, row.partition, row.offset, moment(row.timestamp_ms)) for row in rows
    ]
    return spark.createDataFrame(told, KAFKA_COLUMNS)


class Topics:
    """Reads some rows as a batch: what a pipeline is given instead of a broker."""

    def __init__(self, spark: SparkSession, rows: Sequence[Row]) -> None:
        self._spark = spark
        self._rows = rows

    def __call__(self, topics: Sequence[str], since: datetime | None = None) -> DataFrame:
        wanted = [row for row in self._rows if row.topic in topics]
        if since is not None:
            wanted = [row for row in wanted if moment(row.timestamp_ms) >= since]
        return frame_of(self._spark, wanted)


class Arriving:
    """Reads rows as a stream, a file in each micro-batch."""

    def __init__(self, spark: SparkSession, rows: Sequence[Row], folder: Path, files: int) -> None:
        self._spark = spark
        self._folder = folder
        folder.mkdir()
        size = -(-len(rows) // files)
        for number in range(files):
            write_rows(folder / f"{number}.json", rows[number * size : (number + 1) * size], number)

    def __call__(self, topics: Sequence[str], since: datetime | None = None) -> DataFrame:
        stream = self._spark.readStream.schema(KAFKA_COLUMNS).option("maxFilesPerTrigger", 1)
        return stream.json(str(self._folder)).where(F.col("topic").isin(list(topics)))


def write_rows(path: Path, rows: Sequence[Row], number: int) -> None:
    lines = [
        json.dumps(
            {
                "key": encoded(row.key),
                "value": encoded(row.value),
                "topic": row.topic,
                "partition": row.partition,
                "offset": row.offset,
                "timestamp": moment(row.timestamp_ms).isoformat(timespec="milliseconds"),
            }
        )
        for row in rows
    ]
    path.write_text("\n".join(lines))
    os.utime(path, (number + 1, number + 1))  # Spark takes the oldest file first


def encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)


def at_the_end(rows: Sequence[Row], key: bytes, value: bytes, days: int = 2) -> list[Row]:
    """One record for each topic, long after all others: it closes every window before it."""
    late_ms = max(row.timestamp_ms for row in rows) + days * 86_400_000
    last = {row.topic: row for row in rows}
    return [
        replace(
            row, key=key, value=value.replace(b"TIME", str(late_ms).encode()), offset=row.offset + 1_000_000
        )
        for row in (replace(row, timestamp_ms=late_ms) for row in last.values())
    ]


def run_to_end(stream: Stream, folder: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Runs a query over what is there. Its rows, with Parquet standing in for topics, and its progress."""
    out = folder / f"out-{stream.name}"
    path = stream.sink.path if isinstance(stream.sink, ParquetSink) else str(out)
    to = Destination("parquet", {"path": str(out)}, str(folder / "checkpoints"))
    query = start(stream, to, once=True)
    query.awaitTermination()
    spark = stream.frame.sparkSession
    rows = [row.asDict(recursive=True) for row in spark.read.parquet(path).collect()]
    return rows, [json.loads(progress.json) for progress in query.recentProgress]
