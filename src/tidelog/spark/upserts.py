"""Writing from `foreachBatch`: for output mode update, which Spark refuses for sinks written in Python.

    counts.writeStream.outputMode("update").foreachBatch(tidelog.spark.to_topic(options)).start()

A batch that Spark repeats is written once: each write is a version of the sink that the query and the name
make up, and the batch is its number.

**Invariant:** importing this module imports no pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidelog.spark import once_options as once
from tidelog.spark.options import OptionError, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS_KEPT = 1_000  # of queries of this process; a run is a start of a query
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_written: dict[tuple[str, str], int] = {}  # by run and name: the last batch


def to_topic(options: Mapping[str, str], name: str = "topic") -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes like `format("tidelog")` with these options.

    Several of them in one `foreachBatch` need a `name` each.
    """
    parsed = WriteOptions.parse(options, streaming=True)  # so that errors are raised here and not in a batch
    if not _NAME.fullmatch(name):
        raise OptionError(f"name={name}: expected letters, digits, points, dashes or underscores")
    chosen = dict(options)

    def write(rows: DataFrame, batch_id: int) -> None:
        if not parsed.is_exactly_once:
            rows.write.format("tidelog").mode("append").options(**chosen).save()
            return
        query_id, run, checkpoint = _query_of(rows)
        if _written.get((run, name)) == batch_id:
            raise OptionError(
                f"to_topic: name={name} is used twice in batch {batch_id}; give each to_topic of a "
                "foreachBatch a name of its own"
            )
        versioned = {
            once.TXN_APP_ID.name: name,
            once.TXN_VERSION.name: str(batch_id),
            once.QUERY_ID: query_id,
            once.RUN: run if (run, name) not in _failed else uuid4().hex,
            once.CHECKPOINT: checkpoint,
        }
        try:
            rows.write.format("tidelog").mode("append").options(**chosen, **versioned).save()
        except BaseException:
            _failed[run, name] = None
            raise
        _written.pop((run, name), None)
        _written[run, name] = batch_id
        while len(_written) > RUNS_KEPT:
            del _written[next(iter(_written))]

    return write


# Runs with a failure: a batch may be decided, so workers must not use the slots of that run again.
_failed: dict[tuple[str, str], None] = {}


def _query_of(rows: DataFrame) -> tuple[str, str, str]:
    """The id of the query whose batch the rows are, its run, and its checkpoint or an empty text."""
    session: Any = rows.sparkSession
    try:
        context = session.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.jobGroup.id")
    except Exception:  # Spark Connect has none of it
        query_id = run = None
    if not query_id or not run:
        raise OptionError(
            "to_topic: the query of this batch is not known; call it in foreachBatch of a classic session, "
            "or set deliveryGuarantee=at-least-once"
        )
    return query_id, run, _checkpoint_of(session, query_id)


def _checkpoint_of(session: Any, query_id: str) -> str:
    try:
        uuid = session._jvm.java.util.UUID.fromString(query_id)
        execution = session._jsparkSession.sharedState().activeStreamingQueries().get(uuid)
        return str(execution.resolvedCheckpointRoot())
    except Exception:  # not part of Spark's public interface
        return ""
