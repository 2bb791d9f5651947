"""Website activity as events: one row for each record of the four topics, whichever it came from.

`kind` is view, click, search or order; fields that a kind does not have are null. `topic`, `partition` and
`offset` stay with the row, so that a table can be held against the log.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.activity.topics import CLICKS, ORDERS, PAGE_VIEWS, SEARCHES, TOPICS_IN
from tidelog.spark.pipelines.records import Fault, Tolerance, decoded, judged, missing

SCHEMA = (
    "user STRING, time BIGINT, page STRING, item STRING, element STRING, query STRING, results BIGINT, "
    "`order` STRING, items ARRAY<STRUCT<item: STRING, quantity: INT, price: BIGINT>>, total BIGINT"
)
COLUMNS = ("topic", "partition", "offset", "timestamp", "kind", "user", "time")
FIELDS = ("page", "item", "element", "query", "results", "order", "items", "total")
KINDS = {PAGE_VIEWS: "view", CLICKS: "click", SEARCHES: "search", ORDERS: "order"}
CENTS_MAX = 10**12
"""Ten thousand million: beyond it, a typing error; and sums of such could overflow."""


def judged_events(raw: DataFrame, tolerance: Tolerance) -> DataFrame:
    """Every record, parsed, with `kind`, `fault` and `late`."""
    kind = F.coalesce(*(F.when(F.col("topic") == topic, F.lit(name)) for topic, name in KINDS.items()))
    parsed = decoded(raw, SCHEMA).withColumn("kind", kind).withColumn("user", F.col("parsed.user"))
    return judged(parsed, faults(), tolerance)


def faults() -> list[Fault]:
    empty_basket = F.coalesce(F.size("parsed.items") < 1, F.lit(True))
    return [
        (f"the topic is none of {', '.join(TOPICS_IN)}", F.col("kind").isNull()),
        ("user is missing", missing("user")),
        ("page is missing", F.col("kind").isin("view", "click") & missing("page")),
        ("query is missing", (F.col("kind") == "search") & missing("query")),
        ("order or total is missing", (F.col("kind") == "order") & missing("order", "total")),
        ("items are missing", (F.col("kind") == "order") & (empty_basket | nameless_item())),
        ("total is out of range", ~F.col("parsed.total").between(0, CENTS_MAX)),
    ]


def nameless_item() -> Column:
    return F.exists("parsed.items", lambda line: line["item"].isNull())


def fields(judged_frame: DataFrame) -> DataFrame:
    """The columns of an event, without the bytes it came in."""
    return judged_frame.select(*COLUMNS, *(F.col(f"parsed.{name}").alias(name) for name in FIELDS))
