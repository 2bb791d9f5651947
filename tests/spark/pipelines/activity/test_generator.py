"""The web shop that the generator makes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import numpy as np
import pytest

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import placed
from tidelog.spark.pipelines.activity.generator import ITEMS, Catalogue, generate, item_name
from tidelog.spark.pipelines.activity.topics import ORDERS, PAGE_VIEWS, TOPICS_IN
from tidelog.spark.pipelines.generated import BLOCK_EVENTS, Arrivals, Record

START = datetime(2026, 3, 2, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
DAY_MS = 86_400_000


def some(events: int, seed: int = 1, days: int = 2) -> list[Record]:
    return list(generate(seed, 2_000, events, START, timedelta(days=days)))


@pytest.mark.parametrize("events", [1, 7, BLOCK_EVENTS, 2 * BLOCK_EVENTS + 11])
def test_as_many_records_are_made_as_asked_in_the_order_of_arrival(events: int) -> None:
    records = some(events)
    assert len(records) == events
    assert all(one[3] <= other[3] for one, other in pairwise(records))


def test_a_seed_gives_the_same_records_again_and_another_seed_others() -> None:
    assert some(3_000) == some(3_000)
    assert some(3_000) != some(3_000, seed=2)


def test_records_come_before_all_of_them_are_made() -> None:
    endless = generate(1, 1_000, 10**12, START, timedelta(days=3_650))
    assert len(list(islice(endless, 1_000))) == 1_000


def test_a_record_is_keyed_by_its_user_and_happened_before_it_arrived() -> None:
    events, broken = oracle.read(placed(some(20_000)))
    assert 0 < len(broken) < 40
    assert all(
        event.row.key == event.user.encode() and event.time < event.row.timestamp_ms for event in events
    )
    assert {event.row.topic for event in events} == set(TOPICS_IN)
    assert all(START_MS <= event.time < START_MS + 2 * DAY_MS + DAY_MS / 4 for event in events)


def test_some_arrive_too_late_and_none_if_so_asked() -> None:
    late = sum(event.late for event in oracle.read(placed(some(20_000)))[0])
    assert 5 < late < 100
    prompt = Arrivals(delayed=0, very_late=0)
    records = placed(generate(1, 2_000, 20_000, START, timedelta(days=2), prompt))
    assert not any(event.late for event in oracle.read(records)[0])


def test_few_pages_have_most_views_and_nights_are_quiet() -> None:
    events, _ = oracle.read(placed(some(40_000)))
    items = Counter(event.value["item"] for event in events if event.kind == "view" and event.value["item"])
    assert sum(count for _, count in items.most_common(ITEMS // 10)) > sum(items.values()) / 2
    hours = Counter(event.time % DAY_MS // 3_600_000 for event in events)
    assert hours[20] > 4 * hours[4] and hours[12] > 3 * hours[4]


def test_one_session_in_twenty_or_so_ends_with_an_order() -> None:
    sessions = oracle.sessions(oracle.read(placed(some(40_000)))[0])
    reached = Counter(session.step for session in sessions)
    assert reached[0] < 0.05 * len(sessions)
    assert 0.03 * len(sessions) < reached[3] < 0.12 * len(sessions)
    assert reached[2] + reached[3] > 0.4 * len(sessions)


def test_an_order_adds_up_and_often_has_what_goes_with_its_item() -> None:
    catalogue = Catalogue.of(1)
    orders = [event.value for event in oracle.read(placed(some(40_000)))[0] if event.kind == "order"]
    together = 0
    for order in orders:
        assert order["total"] == sum(line["price"] * line["quantity"] for line in order["items"])
        first = int(order["items"][0]["item"].removeprefix("item-"))
        bought = [line["item"] for line in order["items"]]
        assert len(set(bought)) == len(bought)
        together += item_name(int(catalogue.bought_with[first])) in bought
    assert 0.45 * len(orders) < together < 0.65 * len(orders)
    assert len({order["order"] for order in orders}) == len(orders) > 100


def test_partners_are_each_other_s() -> None:
    catalogue = Catalogue.of(3)
    for partners in (catalogue.viewed_with, catalogue.bought_with):
        assert (partners[partners] == np.arange(ITEMS)).all() and (partners != np.arange(ITEMS)).all()


def test_the_first_record_of_a_topic_reads_as_its_layout_says() -> None:
    events, _ = oracle.read(placed(some(2_000)))
    first = {event.row.topic: event.value for event in reversed(events)}
    assert set(first[PAGE_VIEWS]) == {"user", "time", "page", "item"}
    assert set(first[ORDERS]) == {"user", "time", "order", "items", "total"}
