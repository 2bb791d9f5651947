"""The most viewed pages against plain Python."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import frame_of
from tidelog.spark.pipelines.activity.events import fields, judged_events
from tidelog.spark.pipelines.activity.pages import top_pages
from tidelog.spark.pipelines.records import Tolerance, sound


@pytest.mark.parametrize("seed", [1, 2])
def test_top_pages_are_ranked_by_views_then_by_name(spark: SparkSession, seed: int) -> None:
    rows = oracle.some_rows(seed)
    events = fields(sound(judged_events(frame_of(spark, rows), Tolerance())))
    found = top_pages(events, count=5).select(F.unix_millis("start").alias("hour"), "pages").collect()
    expected = oracle.top_pages(oracle.read(rows)[0], 5)
    assert len(expected) > 5
    assert {row.hour: [(page.page, page.views) for page in row.pages] for row in found} == expected
