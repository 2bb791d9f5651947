"""What every pipeline in the registry keeps to, whatever it does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.inputs import Arriving, placed
from tidelog.spark.pipelines.pipeline import Pipeline, TopicSink
from tidelog.spark.pipelines.registry import PIPELINES

every_pipeline = pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES.keys())
START = datetime(2026, 3, 2, tzinfo=UTC)


@every_pipeline
def test_a_pipeline_says_what_it_is(pipeline: Pipeline) -> None:
    assert PIPELINES[pipeline.name] is pipeline
    assert pipeline.summary and pipeline.tables
    assert all(topic.startswith(f"{pipeline.name}.") for topic in pipeline.topics_in + pipeline.topics_out)


@every_pipeline
def test_a_pipeline_s_generator_fills_its_topics(pipeline: Pipeline) -> None:
    records = list(pipeline.generate(1, 50, 3_000, START, timedelta(days=1)))
    assert {record[0] for record in records} == set(pipeline.topics_in)


@every_pipeline
def test_a_pipeline_s_queries_are_fit_for_python_sinks(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    rows = placed(pipeline.generate(1, 5, 10, START, timedelta(hours=1)))
    streams = pipeline.streams(Arriving(spark, rows, tmp_path / "in", files=1), str(tmp_path / "lake"))
    assert len({stream.name for stream in streams}) == len(streams)
    topics: list[str] = []
    for stream in streams:
        assert stream.frame.isStreaming and stream.output_mode in ("append", "complete")
        if isinstance(stream.sink, TopicSink):
            columns = set(stream.frame.columns)
            assert {"key", "value"} <= columns <= {"key", "value", "headers", "topic", "partition"}
            assert ("topic" in columns) == (len(stream.sink.topics) > 1)
            topics += stream.sink.topics
    assert sorted(topics) == sorted(pipeline.topics_out)
