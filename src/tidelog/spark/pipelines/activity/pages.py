"""The most viewed pages of each window."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

WINDOW = "1 hour"
PAGES = 20


def top_pages(events: DataFrame, window: str = WINDOW, count: int = PAGES) -> DataFrame:
    """start, end and pages [{page, views}], the most viewed first, equals by name.

    Two aggregations, one upon the other: views of each page, then the best of them in a state of bounded
    size.
    """
    views = events.where(F.col("kind") == "view")
    by_page = views.groupBy(F.window("time", window), "page").agg(F.count(F.lit(1)).alias("views"))
    rank = F.struct((-F.col("views")).alias("rank"), "page")
    best = by_page.groupBy("window").agg(F.min_by(F.struct("page", "views"), rank, count).alias("pages"))
    return best.select("window.start", "window.end", "pages")
