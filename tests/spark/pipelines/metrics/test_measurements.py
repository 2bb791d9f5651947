"""Measurements as rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.pipelines.inputs import Row, frame_of
from tidelog.spark.pipelines.metrics.aggregates import aggregates
from tidelog.spark.pipelines.metrics.measurements import judged_measurements
from tidelog.spark.pipelines.metrics.topics import MEASUREMENTS
from tidelog.spark.pipelines.records import Tolerance, sound


def test_tags_in_any_order_are_one_series(spark: SparkSession) -> None:
    values = [
        b'{"name":"cpu","tags":{"host":"a","zone":"1"},"value":1,"time":1000}',
        b'{"time":1000,"tags":{"zone":"1","host":"a"},"value":3,"name":"cpu"}',
        b'{"name":"cpu","tags":{"host":"1","zone":"a"},"value":5,"time":1000}',
        b'{"name":"cpu","tags":{},"value":7,"time":1000}',
        b'{"name":"cpu","tags":null,"value":9,"time":1000}',
        b'{"name":"cpu","value":11,"time":1000}',
    ]
    rows = [Row(MEASUREMENTS, 0, offset, None, value, 1000) for offset, value in enumerate(values)]
    found = aggregates(sound(judged_measurements(frame_of(spark, rows), Tolerance()))).collect()
    assert {row.series: (row["count"], row["sum"], row.tags) for row in found} == {
        "cpu{host=a,zone=1}": (2, 4.0, {"host": "a", "zone": "1"}),
        "cpu{host=1,zone=a}": (1, 5.0, {"host": "1", "zone": "a"}),
        "cpu{}": (3, 27.0, {}),
    }
