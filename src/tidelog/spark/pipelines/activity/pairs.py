"""What goes together: items viewed in one session, items bought in one order.

Counts of pairs can be added up: over windows of a stream, over days of the lake. Every item is also paired
with itself, which counts the sessions (or orders) it was in; so `best` can say in which share of them the
other one was too.

**Invariant:** counts of (a, b) and (b, a) are equal; neither exceeds the count of (a, a).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

WINDOW = "1 hour"
ORDER_ITEMS_MAX = 50  # pairs grow with the square; larger orders are not people's
BEST = 5


def viewed_together(session_frame: DataFrame, window: str = WINDOW) -> DataFrame:
    """start, end, item, other, count of the sessions that closed in each window."""
    return pair_counts(session_frame.select(F.col("closed").alias("at"), "items"), window)


def bought_together(events: DataFrame, window: str = WINDOW) -> DataFrame:
    """start, end, item, other, count of the orders of each window."""
    bought = F.slice(F.array_distinct("items.item"), 1, ORDER_ITEMS_MAX).alias("items")
    return pair_counts(
        events.where(F.col("kind") == "order").select(F.col("time").alias("at"), bought), window
    )


def pair_counts(sets: DataFrame, window: str) -> DataFrame:
    first = sets.withColumn("item", F.explode("items"))
    both = first.withColumn("other", F.explode("items"))
    counted = both.groupBy(F.window("at", window), "item", "other").agg(F.count(F.lit(1)).alias("count"))
    return counted.select("window.start", "window.end", "item", "other", "count")


def merged(counts: DataFrame) -> DataFrame:
    """item, other, count over all windows."""
    return counts.groupBy("item", "other").agg(F.sum("count").alias("count"))


def best(counts: DataFrame, per_item: int = BEST) -> DataFrame:
    """item, rank, other, count and share: what most often goes with each item, equals by name."""
    summed = merged(counts)
    alone = summed.where(F.col("item") == F.col("other")).select("item", F.col("count").alias("all"))
    by_count = Window.partitionBy("item").orderBy(F.desc("count"), "other")
    ranked = summed.where(F.col("item") != F.col("other")).withColumn("rank", F.row_number().over(by_count))
    top = ranked.where(F.col("rank") <= per_item).join(alone, "item")
    return top.select("item", "rank", "other", "count", (F.col("count") / F.col("all")).alias("share"))
