"""The pipelines that are ready to run, by name."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark.pipelines.activity import flow as activity
from tidelog.spark.pipelines.activity import generator as activity_generator
from tidelog.spark.pipelines.activity import topics as activity_topics
from tidelog.spark.pipelines.metrics import flow as metrics
from tidelog.spark.pipelines.metrics import generator as metrics_generator
from tidelog.spark.pipelines.metrics import topics as metrics_topics
from tidelog.spark.pipelines.pipeline import Pipeline


def report_activity(spark: SparkSession, lake: str, folder: Path) -> Path:
    from tidelog.spark.pipelines.activity.report import report  # loads matplotlib: only for drawing

    return report(spark, lake, folder)


def report_metrics(spark: SparkSession, lake: str, folder: Path) -> Path:
    from tidelog.spark.pipelines.metrics.report import report

    return report(spark, lake, folder)


PIPELINES = {
    pipeline.name: pipeline
    for pipeline in (
        Pipeline(
            name="activity",
            summary="website activity to sessions, top pages, funnels, also viewed and also bought",
            topics_in=activity_topics.TOPICS_IN,
            topics_out=activity_topics.TOPICS_OUT,
            streams=activity.streams,
            batch=activity.load_day,
            report=report_activity,
            generate=activity_generator.generate,
            tables=activity.TABLES,
        ),
        Pipeline(
            name="metrics",
            summary="measurements to windowed count, sum, min, max and percentiles of every series",
            topics_in=metrics_topics.TOPICS_IN,
            topics_out=metrics_topics.TOPICS_OUT,
            streams=metrics.streams,
            batch=metrics.load_day,
            report=report_metrics,
            generate=metrics_generator.generate,
            tables=metrics.TABLES,
        ),
    )
}
