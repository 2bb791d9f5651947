"""Spark in a process of its own: a session that knows both connectors, and runs the queries it is asked for.

`python -m bench.load.spark_queries` reads one question in each line of its input, `{"do": …}`, and answers
each with one line, `{"seconds": …}` or `{"error": …}`, until its input ends. What Spark prints goes to the
standard error.

**Invariant:** both connectors are given the same options, and what is timed is the same call of Spark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from bench.peers import spark_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

MASTER = "local[2]"
HEAP = "1g"
STREAM_SECONDS_MAX = 300
SETTINGS = {
    "spark.driver.memory": HEAP,
    "spark.sql.shuffle.partitions": "2",
    # So that every micro-batch of a query is remembered.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
Question = Mapping[str, Any]


class Queries:
    """What can be asked: each public method takes the question, and says what it took."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._rows: DataFrame | None = None
        self._copying: StreamingQuery | None = None

    def read(self, question: Question) -> dict[str, Any]:
        """A batch read into nothing."""
        rows = self._read(question)
        started = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - started}

    def count(self, question: Question) -> dict[str, Any]:
        """How many rows a batch read has, how many offsets of each partition, and bytes of values."""
        from pyspark.sql import functions as f

        started = time.perf_counter()
        found = self._read(question).agg(
            f.count(f.lit(1)).alias("rows"),
            f.sum("offset").alias("offsets"),
            f.sum(f.length("value")).alias("bytes"),
        )
        return found.first().asDict() | {"seconds": time.perf_counter() - started}  # type: ignore[union-attr]

    def stream(self, question: Question) -> dict[str, Any]:
        """All micro-batches that have rows, as rows and seconds of each."""
        rows = self._with_source(self._spark.readStream, question).load()
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", question["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        try:
            if not query.awaitTermination(STREAM_SECONDS_MAX):
                raise TimeoutError(f"the stream did not end within {STREAM_SECONDS_MAX} s")
        finally:
            query.stop()
        progress = [each for each in query.recentProgress if each["numInputRows"] > 0]
        batches = [(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1e3) for each in progress]
        return {"batches": batches}

    def prepare(self, question: Question) -> dict[str, Any]:
        """Rows to write, computed once and kept in memory."""
        from pyspark.sql import functions as f

        if self._rows is not None:
            self._rows.unpersist(blocking=True)
        numbers = self._spark.range(0, question["rows"], 1, question["tasks"])
        text = f.concat(f.lit('{"user":'), f.col("id").cast("string"), f.lit(',"page":"/item/'))
        value = f.rpad(text, question["size"], "0123456789abcdef").cast("binary").alias("value")
        self._rows = numbers.select(value).cache()
        return {"rows": self._rows.count()}

    def write(self, question: Question) -> dict[str, Any]:
        assert self._rows is not None
        writer = (
            self._rows.write.format(question["format"])
            .option("kafka.bootstrap.servers", question["bootstrap"])
            .option("topic", question["topic"])
            .options(**question.get("options", {}))
        )
        started = time.perf_counter()
        writer.mode("append").save()
        return {"seconds": time.perf_counter() - started}

    def copy(self, question: Question) -> dict[str, Any]:
        """Begin a stream that copies the values of a topic to another, micro-batch after micro-batch."""
        rows = self._with_source(self._spark.readStream, question).load().select("value")
        self._copying = (
            rows.writeStream.format(question["format"])
            .option("kafka.bootstrap.servers", question["bootstrap"])
            .option("topic", question["to"])
            .option("checkpointLocation", question["checkpoint"])
            .options(**question.get("written", {}))
            .start()
        )
        return {}

    def stop_copying(self, question: Question) -> dict[str, Any]:
        assert self._copying is not None
        batches = [each for each in self._copying.recentProgress if each["numInputRows"] > 0]
        self._copying.stop()
        if problem := self._copying.exception():
            raise problem
        return {"batches": len(batches)}

    def _read(self, question: Question) -> DataFrame:
        rows: DataFrame = self._with_source(self._spark.read, question).load()
        return rows

    def _with_source(self, reader: Any, question: Question) -> Any:
        source: DataFrameReader | DataStreamReader = (
            reader.format(question["format"])
            .option("kafka.bootstrap.servers", question["bootstrap"])
            .option("subscribe", question["topic"])
            .option("startingOffsets", "earliest")
        )
        for name, value in question.get("options", {}).items():
            source = source.option(name, value)
        return source


def offsets_text(topic: str, offsets: Sequence[int]) -> str:
    """Offsets of partitions 0, 1, … as the options of both connectors take them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})


def main() -> int:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the JVM's output is not an answer
    from tidelog.spark.session import session

    spark = session("bench", master=MASTER, config=SETTINGS | spark_kafka.session_settings())
    try:
        _answer_all(Queries(spark), answers)
    finally:
        spark.stop()
    return 0


def _answer_all(queries: Queries, answers: TextIO) -> None:
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(queries, question["do"])(question)
        except Exception as problem:  # whatever it is, whoever asked must hear of it
            answer = {"error": f"{question['do']} of {question.get('format')}: {problem}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    sys.exit(main())
