"""Output mode update, which Spark refuses for sinks written in Python.

    counts.writeStream.outputMode("update").foreachBatch(tidelog.spark.to_topic(options)).start()

**Invariant:** importing this module imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.spark.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_topic(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes like `format("tidelog")` with these options."""
    WriteOptions.parse(options, streaming=True)  # so that errors are raised here and not in a batch
    chosen = dict(options)

    def write(rows: DataFrame, _batch_id: int) -> None:
        rows.write.format("tidelog").mode("append").options(**chosen).save()

    return write
