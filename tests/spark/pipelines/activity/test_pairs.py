"""What goes together, against plain Python and against what the generator laid down."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import frame_of, placed
from tidelog.spark.pipelines.activity.events import fields, judged_events
from tidelog.spark.pipelines.activity.generator import Catalogue, generate, item_name
from tidelog.spark.pipelines.activity.pairs import best, bought_together, viewed_together
from tidelog.spark.pipelines.activity.sessions import sessions
from tidelog.spark.pipelines.records import Tolerance, sound


def counted(frame: DataFrame) -> Counter[tuple[int, str, str]]:
    found = frame.select(F.unix_millis("start"), "item", "other", "count").collect()
    return Counter({(row[0], row[1], row[2]): row[3] for row in found})


def ranked(frame: DataFrame) -> dict[str, list[tuple[str, int, float]]]:
    found: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for row in frame.orderBy("item", "rank").collect():
        found[row.item].append((row.other, row["count"], row.share))
    return dict(found)


@pytest.mark.parametrize("seed", [1, 2])
def test_pairs_are_counted_as_plain_python_counts_them(spark: SparkSession, seed: int) -> None:
    rows = oracle.some_rows(seed)
    by_hand = oracle.read(rows)[0]
    events = fields(sound(judged_events(frame_of(spark, rows), Tolerance()))).cache()
    viewed, bought = viewed_together(sessions(events)), bought_together(events)
    viewed_by_hand, bought_by_hand = oracle.viewed(oracle.sessions(by_hand)), oracle.bought(by_hand)
    assert counted(viewed) == viewed_by_hand and len(viewed_by_hand) > 500
    assert counted(bought) == bought_by_hand and len(bought_by_hand) > 20
    assert ranked(best(viewed, 3)) == oracle.best(viewed_by_hand, 3)
    events.unpersist()


def test_what_is_bought_together_is_what_the_shop_was_made_with(spark: SparkSession) -> None:
    """The ten most popular items find their partners among thousands of events."""
    catalogue = Catalogue.of(5)
    rows = placed(generate(5, 4_000, 30_000, oracle.START, timedelta(days=3)))
    events = fields(sound(judged_events(frame_of(spark, rows), Tolerance()))).cache()
    bought, viewed = ranked(best(bought_together(events))), ranked(best(viewed_together(sessions(events))))
    for item in range(10):
        assert bought[item_name(item)][0][0] == item_name(int(catalogue.bought_with[item]))
        assert item_name(int(catalogue.viewed_with[item])) in [
            other for other, _, _ in viewed[item_name(item)]
        ]
        assert all(0 < share <= 1 for _, _, share in viewed[item_name(item)])
    events.unpersist()
