"""A driver that can be stopped at each step of a micro-batch, to be killed there.

    Driver(bootstrap, source, target, folder).killed_at("write")     # starts it, kills it when it is there
    Driver(bootstrap, source, target, folder).finished()             # starts it, lets it finish and tell

The program copies one topic to another and to a Parquet table, as two queries of all that is available, and
tells what both have in the end. It registers the source with a stop at each step: at the one that
`TIDELOG_STOP_AT` names, the first process that comes there says so by a file and does not go on. The copy to
the topic has the worst plan there is: other keys and headers in each attempt, another number of tasks in each
life.

| step         | where it stops                                                                     |
|--------------|------------------------------------------------------------------------------------|
| latestOffset | the batch before is in the commit log, the end of the next is known to nobody       |
| partitions   | the end is in the offset log, no task runs                                         |
| read         | a task has handed out its first rows                                               |
| write        | a task of the sink has taken rows and sent what fills a batch                       |
| written      | a task of the sink has all acknowledged, and has told nobody                        |
| commit       | all tasks are done, the driver has asked the brokers nothing                       |
| own          | the driver has a new identity of the sink                                          |
| marker       | the marker is in the driver's transaction, which is open                           |
| decided      | that is committed, and no transaction of a task                                    |
| ended        | the transaction of one task is committed                                           |
| committed    | those of all tasks are, and the batch is not in the commit log                     |
| next         | the batch is in the commit log and the next one has begun                          |

**Invariant:** killed means all of it at once: the driver, its JVM, its Python workers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.process import process_tree
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tests.spark.programs import PROGRAM_SECONDS_MAX, awaited
from tests.spark.queries import numbers, read, run_to_end
from tidelog.client.transaction_messages import Opened
from tidelog.client.transactions import Transactions
from tidelog.spark.options import ReadOptions, WriteOptions
from tidelog.spark.reading import cluster_of
from tidelog.spark.session import register_source
from tidelog.spark.source import LogStreamReader, TidelogSource
from tidelog.spark.writing import InTransaction, StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
IN_COMMIT = ("own", "marker", "decided", "ended", "committed")
STEPS = ("latestOffset", "partitions", "read", "write", "written", "commit", *IN_COMMIT, "next")
STOP_AT, STOP_FILE = "TIDELOG_STOP_AT", "TIDELOG_STOP_FILE"
OFFSETS_PER_TRIGGER = 60
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
}


def stop_at(step: str) -> None:
    """Do not come back, if this is the step to stop at."""
    if os.environ.get(STOP_AT) == step:
        Path(os.environ[STOP_FILE]).touch()
        threading.Event().wait()


class StoppingSource(TidelogSource):
    """`format("tidelog")` with the steps."""

    def streamReader(self, schema: StructType) -> StoppingReader:  # noqa: N802
        return StoppingReader(ReadOptions.parse(self.options, streaming=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoppingWriter:  # noqa: N802
        return StoppingWriter(WriteOptions.parse(self.options, streaming=True), schema)


class StoppingReader(LogStreamReader):
    _batches = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        found = super().latestOffset(start, limit)
        if found != start:
            stop_at("latestOffset")
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        found = super().partitions(start, end)
        if found:
            stop_at("partitions")
        self._batches += bool(found)
        if self._batches > 1:
            stop_at("next")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield rows
            stop_at("read")


class StoppingWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(_stopping(iterator))
        stop_at("written")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reports = [message.report for message in messages if isinstance(message, InTransaction)]
        if not any(report.opened for report in reports):
            super().commit(messages, batchId)
            return
        stop_at("commit")
        cluster = cluster_of(self._options.properties)
        if not isinstance(cluster.transactions, StoppingTransactions):
            stopping: Any = StoppingTransactions(cluster.transactions)
            cluster.transactions = stopping
        super().commit(messages, batchId)
        stop_at("committed")


class StoppingTransactions:
    """The requests of the driver, with the steps between them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transactions, name)

    def begin(self, transactional_id: str, timeout_ms: int) -> Opened:
        opened = self._transactions.begin(transactional_id, timeout_ms)
        stop_at("own")
        return opened

    def commit_offsets(self, *arguments: Any) -> None:
        self._transactions.commit_offsets(*arguments)
        stop_at("marker")

    def end(self, opened: Collection[Opened], *, commits: bool, timeout_ms: int) -> dict[Opened, int]:
        codes: dict[Opened, int] = {}
        for each in opened:
            codes |= self._transactions.end([each], commits=commits, timeout_ms=timeout_ms)
            if commits:
                stop_at("decided" if each.transactional_id.count("/") == 1 else "ended")
        return codes


def _stopping(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in rows:
        yield each
        stop_at("write")


@dataclass(frozen=True)
class Copies:
    """What the program has read in the end."""

    topic: list[tuple[int, int]]
    """Partition and number of each record in the target topic, sorted."""
    table: list[tuple[int, int]]
    """Partition and number of each row in the table, sorted."""
    places: list[tuple[int, int]]
    """Partition and offset of each row in the table, sorted."""

    @classmethod
    def load(cls, file: Path) -> Copies:
        return cls(*([tuple(pair) for pair in pairs] for pairs in json.loads(file.read_text()).values()))


@dataclass(frozen=True)
class Driver:
    bootstrap: str
    source: str
    target: str
    folder: str

    @property
    def table(self) -> str:
        return f"{self.folder}/table"

    def finished(self) -> Copies:
        """Let it run to its end; what it tells."""
        with self._running(None) as program:
            status = program.wait(PROGRAM_SECONDS_MAX)
        assert status == 0, f"the driver ended with {status}: {self._said()}"
        return Copies.load(self._copies)

    def killed_at(self, step: str) -> None:
        """Let it run to that step and kill it there."""
        stopped = Path(self.folder) / "stopped"
        stopped.unlink(missing_ok=True)
        with self._running(step) as program:
            awaited(
                lambda: stopped.exists() or program.poll() is not None,
                f"no {step} is reached",
                PROGRAM_SECONDS_MAX,
            )
            assert program.poll() is None, f"the driver ended before {step}: {self._said()}"

    def run(self) -> None:
        """What the program does."""
        from tidelog.spark import session

        spark = session("driver", master="local[2]", config=SETTINGS)
        register_source(spark, StoppingSource)
        frame = self._read(spark)
        tasks = random.randint(1, 4)
        worst = frame.repartition(tasks).selectExpr(
            "concat(cast(key as string), uuid()) key",
            "value",
            "array(named_struct('key', 'computed', 'value', cast(cast(now() as string) as binary))) headers",
        )
        topic = worst.writeStream.format("tidelog").option("topic", self.target)
        # A small batch is full and under way before the task has all its rows.
        topic = topic.option("kafka.bootstrap.servers", self.bootstrap).option("kafka.batch.size", 200)
        table = frame.select("partition", "offset", "value").writeStream.format("parquet")
        table = table.option("path", self.table)
        run_to_end(
            topic.option("checkpointLocation", f"{self.folder}/to-topic"),
            table.option("checkpointLocation", f"{self.folder}/to-table"),
        )
        self._copies.write_text(json.dumps(asdict(self._read_back(spark))))
        spark.stop()

    @property
    def _copies(self) -> Path:
        return Path(self.folder, "copies.json")

    def _read_back(self, spark: SparkSession) -> Copies:
        table = spark.read.parquet(self.table)
        places = sorted((row.partition, row.offset) for row in table.collect())
        return Copies(
            numbers(
                read(
                    spark,
                    "tidelog",
                    self.bootstrap,
                    subscribe=self.target,
                    kafka_isolation_level="read_committed",
                )
            ),
            numbers(table),
            places,
        )

    def _read(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", self.source).option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER).load()

    @contextmanager
    def _running(self, step: str | None) -> Iterator[subprocess.Popen[bytes]]:
        """The program while it runs; nothing of it is left behind the block."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        if step is not None:
            environment |= {STOP_AT: step, STOP_FILE: f"{self.folder}/stopped"}
        with open(f"{self.folder}/driver.log", "wb") as log:
            program = subprocess.Popen(
                [sys.executable, "-c", "import tests.spark.drivers as d; d.main()", json.dumps(asdict(self))],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield program
        finally:
            kill_all(program.pid)
            program.wait()

    def _said(self) -> str:
        return Path(self.folder, "driver.log").read_text(errors="replace")[-4000:]


def kill_all(root: int) -> None:
    """SIGKILL the process and all that it started; parents first, so that none is started anew."""
    for pid in process_tree(root):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> None:
    Driver(**json.loads(sys.argv[1])).run()
