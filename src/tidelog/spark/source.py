"""PySpark's interfaces to a log: `format("tidelog")`, batch and streaming, reading and writing.

A thin layer: `options` parses the options, `survey` decides where to read, `reading` and `writing` are the
tasks' work. Spark creates these objects in worker processes of the driver's machine and sends copies
to its tasks. Two processes of the driver take part in each micro-batch of a sink and neither read nor write,
so modules that connect to a broker are imported only where they are used.

**Invariant:** a stream's offsets are `Positions` in their unique text; `partitions` is a function of its
arguments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.client.errors import TopicPartition
from tidelog.spark.filters import Filter, Op, is_applied
from tidelog.spark.options import OptionError, ReadOptions, WriteOptions
from tidelog.spark.positions import UNSPLIT, Positions
from tidelog.spark.ranges import RangeOf, between
from tidelog.spark.replanning import MARK
from tidelog.spark.workers import make_this_process_quiet, without_hypothesis

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.advance import Pace
    from tidelog.spark.lag import ProgressReport
    from tidelog.spark.survey import Survey
    from tidelog.spark.writing import BatchWriter, StreamWriter

COLUMNS = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
HEADER = StructType().add("key", StringType()).add("value", BinaryType())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

make_this_process_quiet()


class TidelogSource(spark.DataSource):
    """Topics of Tidelog, or of any Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        has_headers = self.options.get("includeHeaders", "false").lower() == "true"
        columns = StructType(list(COLUMNS.fields))  # a copy, because `add` changes the list
        return columns.add("headers", ArrayType(HEADER)) if has_headers else columns

    def reader(self, schema: StructType) -> LogReader:
        options = ReadOptions.parse(self.options, streaming=False)
        self._check_schema(schema)
        has_own_plan = MARK in os.environ  # otherwise one query would read the rows of another
        return FilteringReader(options) if options.push_filters and has_own_plan else LogReader(options)

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802
        options = ReadOptions.parse(self.options, streaming=True)
        self._check_schema(schema)
        return LogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from tidelog.spark.writing import BatchWriter

        options = WriteOptions.parse(self.options, streaming=False)
        if overwrite:
            raise OptionError("mode overwrite: a log can only be appended to; write with mode append")
        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from tidelog.spark.writing import StreamWriter

        return StreamWriter(WriteOptions.parse(self.options, streaming=True), schema)

    def _check_schema(self, schema: StructType) -> None:
        fixed = self.schema()
        if schema != fixed:
            raise OptionError(
                f"schema {schema.simpleString()}: the columns are always {fixed.simpleString()}; leave out "
                "schema(…) and select what you need"
            )


class RangePartition(spark.InputPartition):
    """The range of one task; `is_late` if earliest and latest are those of the time when it is read."""

    def __init__(self, wanted: RangeOf, *, is_late: bool = False) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.is_late = is_late


def _tasks(ranges: Iterable[RangeOf], *, is_late: bool = False) -> list[spark.InputPartition]:
    return [RangePartition(each, is_late=is_late) for each in ranges]


def _new_survey(options: ReadOptions) -> Survey:
    with without_hypothesis():
        from tidelog.spark.reading import place_of
        from tidelog.spark.survey import Survey

    return Survey(place_of(options), options)


def _read(options: ReadOptions, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
    from tidelog.spark.reading import read_range

    assert isinstance(partition, RangePartition)
    return read_range(options, partition.wanted, is_late=partition.is_late)


class LogReader(spark.DataSourceReader):
    """One batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._filters: list[Filter] = []

    def partitions(self) -> Sequence[spark.InputPartition]:
        planned = _new_survey(self._options).plan(self._filters)
        if not planned:
            return _tasks([RangeOf("", None, 0, 0, 0)])  # Spark requires at least one partition
        # The edges of a filter, and those between the parts of a partition, stay where they are.
        return _tasks(planned, is_late=not self._filters and self._options.split == UNSPLIT)

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class FilteringReader(LogReader):
    """A batch with filters. A separate class, because Spark refuses a reader with filters unless
    configured."""

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802
        for given in filters:
            taken = _filter_of(given)
            if taken is not None:
                self._filters.append(taken)
            if taken is None or not is_applied(taken):
                yield given


_OPS: dict[type[spark.Filter], Op] = {
    spark.EqualTo: Op.EQUAL,
    spark.LessThan: Op.LESS,
    spark.LessThanOrEqual: Op.AT_MOST,
    spark.GreaterThan: Op.GREATER,
    spark.GreaterThanOrEqual: Op.AT_LEAST,
    spark.In: Op.AMONG,
    spark.IsNotNull: Op.NOT_NULL,
}


def _filter_of(given: spark.Filter) -> Filter | None:
    op = _OPS.get(type(given))
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if op is None or len(path) != 1:
        return None
    value = getattr(given, "value", ())
    values = value if isinstance(value, tuple) else (value,)
    return Filter(path[0], op, tuple(_comparable(each) for each in values))


def _comparable(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    since = (value if value.tzinfo is not None else value.astimezone()) - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


class LogStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark keeps one of these in a process of its own while the query runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._initial: Positions | None = None  # the start of a new query
        self._is_available_now = False
        # The ends at the start of an availableNow query
        self._planned: dict[TopicPartition, int] | None = None
        self._last_trigger_ms: int | None = None
        self._asked: Survey | None = None
        self._report: ProgressReport | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is None:
            self._initial = self._survey().begin(self._new_group())
        return self._initial.to_json_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next end. All records before `start` are processed: commit that to the group."""
        begin = Positions.from_json_dict(start)
        self._tell(begin)
        if self._is_available_now and self._planned is None:
            self._planned = self._survey().ends(begin)  # called after the start is known
        now_ms = time.monotonic_ns() // 1_000_000
        taken = self._survey().advance(
            begin, self._pace(limit), self._planned, now_ms=now_ms, last_trigger_ms=self._last_trigger_ms
        )
        if not taken.waits:
            self._last_trigger_ms = now_ms
        # Spark does not store the start of a query: it stands in the end of the first batch, which Spark
        # stores before it runs the batch, also if there is nothing to read.
        is_first = begin == self._initial
        return (taken.positions.begun_at(begin) if is_first else taken.positions).to_json_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(most) if most is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return Positions(self._survey().last_ends).to_json_dict()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now, self._planned = True, None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[spark.InputPartition]:
        return _tasks(between(Positions.from_json_dict(start), Positions.from_json_dict(end)))

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._tell(Positions.from_json_dict(end))

    def _survey(self) -> Survey:
        if self._asked is None:
            self._asked = _new_survey(self._options)
        return self._asked

    def _pace(self, limit: ReadLimit) -> Pace:
        from tidelog.spark.advance import Pace

        options = self._options
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = options.min_offsets_per_trigger if not self._is_available_now else None
        return Pace(most, least, options.max_trigger_delay_ms)

    def _new_group(self) -> str | None:
        options = self._options
        if not options.commits or options.commit_group is not None:
            return None
        return f"{options.group_id_prefix}-{uuid4()}"

    def _tell(self, done: Positions) -> None:
        group_id = self._options.commit_group or done.group
        if not self._options.commits or group_id is None or self._options.log_dirs:
            return
        if self._report is None:
            from tidelog.spark.lag import ProgressReport

            self._report = ProgressReport(self._options.properties)
        self._report.tell(group_id, done.offsets)
