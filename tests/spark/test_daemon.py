"""Workers are forked from a process that has loaded what they need."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession


def test_workers_have_the_compiled_loops_before_they_read(spark: SparkSession) -> None:
    def look(_rows: Iterable[int]) -> Iterable[bool]:
        yield "tidelog.spark.columns" in sys.modules and "tidelog.spark.rows" in sys.modules

    assert spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect() == [True, True]
