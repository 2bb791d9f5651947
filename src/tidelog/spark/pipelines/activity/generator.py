"""A believable web shop: sessions of people who view, click, search and sometimes order.

Pages and items are popular by Zipf's law; a session has an item it is about, think times, and an order at
its end with the chance of a real shop. What is viewed together and bought together is laid down in the
`Catalogue`, so that "also viewed" and "also bought" have a truth to be held against. A few records are cut
off in the middle, some arrive late.

**Invariant:** exactly `events` records, the same for the same arguments, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from tidelog.spark.pipelines.activity.topics import CLICKS, ORDERS, PAGE_VIEWS, SEARCHES
from tidelog.spark.pipelines.generated import (
    Arrivals,
    Batch,
    DayCurve,
    Integers,
    Objects,
    Record,
    blocks_of,
    drawn,
    in_order_of_arrival,
    millis,
    objects,
    zipf_shares,
)

ITEMS = 400
CATEGORIES = 12
EVENTS_A_SESSION = 6
SESSION_EVENTS_MAX = 60  # of one visit
THINK_SECONDS = 25.0
THINK_SECONDS_MAX = 1_200.0  # so that a visit is one session
SHARE_ORDERING = 0.14
SHARE_BROKEN = 0.0005
VIEW, CLICK, SEARCH, ORDER = range(4)
TOPICS = objects([PAGE_VIEWS, CLICKS, SEARCHES, ORDERS])
ELEMENTS = [b"add-to-basket", b"image", b"reviews", b"size", b"share"]
ADJECTIVES = [b"red", b"small", b"light", b"warm", b"waterproof", b"cheap", b"new", b"organic"]
NOUNS = [b"kettle", b"lamp", b"tent", b"jacket", b"shoes", b"mug", b"desk", b"bike", b"rope", b"chair"]
HOME = -1


@dataclass(frozen=True)
class Catalogue:
    """The items of the shop and what goes with each: the truth behind "also viewed" and "also bought"."""

    popularity: np.typing.NDArray[np.float64]
    viewed_with: Integers
    bought_with: Integers
    prices: Integers

    @classmethod
    def of(cls, seed: int, items: int = ITEMS) -> Catalogue:
        random = np.random.default_rng([seed, 1])
        prices = (np.round(np.exp(random.normal(3.2, 0.9, items))) * 100 + 99).astype(np.int64)
        return cls(zipf_shares(items, 1.05), pairing(random, items), pairing(random, items), prices)


def pairing(random: np.random.Generator, count: int) -> Integers:
    """A partner for each of an even number of things."""
    order = random.permutation(count)
    partners = np.empty(count, np.int64)
    partners[order[0::2]], partners[order[1::2]] = order[1::2], order[0::2]
    return partners


def item_name(item: int) -> str:
    return f"item-{item}"


def generate(
    seed: int,
    users: int,
    events: int,
    start: datetime,
    duration: timedelta,
    arrivals: Arrivals = Arrivals(),  # noqa: B008  (frozen)
) -> Iterator[Record]:
    """Records of all four topics. Sessions begin within `duration`; the last may run on for some minutes."""
    catalogue = Catalogue.of(seed)
    curve = DayCurve(millis(start), int(duration / timedelta(milliseconds=1)))

    def blocks() -> Iterator[tuple[int, Batch]]:
        for number, count, begin, end in blocks_of(events):
            random = np.random.default_rng([seed, 2, number])
            sessions = Sessions.draw(random, catalogue, users, count, curve, (begin, end))
            yield (
                int(curve.times_ms(np.array([end]))[0]),
                written(random, catalogue, sessions, arrivals, number),
            )

    return in_order_of_arrival(blocks())


@dataclass(frozen=True)
class Sessions:
    """The events of one block, session after session: columns of equal length."""

    user: Integers
    time_ms: Integers
    kind: Integers
    anchor: Integers
    """The item that the session is about."""
    page: Integers
    """`HOME`, an item, or a category counted from `ITEMS` on: the page viewed last."""

    @classmethod
    def draw(
        cls,
        random: np.random.Generator,
        catalogue: Catalogue,
        users: int,
        events: int,
        curve: DayCurve,
        span: tuple[float, float],
    ) -> Sessions:
        lengths = session_lengths(random, events)
        of_session = np.repeat(np.arange(len(lengths)), lengths)
        first = (np.cumsum(lengths) - lengths)[of_session]
        begun = curve.times_ms(np.sort(random.uniform(*span, len(lengths))))[of_session]
        user = (users * random.random(len(lengths)) ** 2).astype(np.int64)[of_session]
        anchor = drawn(random, catalogue.popularity, len(lengths))[of_session]
        kind = kinds(random, lengths, of_session, first)
        page = viewed_pages(random, catalogue, anchor, np.arange(events) == first)
        last_view = np.maximum.accumulate(np.where(kind == VIEW, np.arange(events), 0))
        return cls(user, begun + since_begin_ms(random, first), kind, anchor, page[last_view])


def session_lengths(random: np.random.Generator, events: int) -> Integers:
    """Lengths of as many sessions as hold exactly `events`."""
    lengths = np.minimum(random.geometric(1 / EVENTS_A_SESSION, events), SESSION_EVENTS_MAX)
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, events)) + 1
    kept = lengths[:count].astype(np.int64)
    kept[-1] -= int(ends[count - 1]) - events
    return kept


def kinds(random: np.random.Generator, lengths: Integers, of_session: Integers, first: Integers) -> Integers:
    """A view first; then views, clicks and searches; an order last, for some who clicked or searched."""
    count = len(of_session)
    kind = np.searchsorted([0.62, 0.88], random.random(count), side="right")
    kind[np.arange(count) == first] = VIEW
    last = np.cumsum(lengths) - 1
    kind_before = kind.copy()
    kind_before[last] = VIEW
    engaged = np.bincount(of_session, weights=kind_before != VIEW) > 0
    ordering = engaged & (lengths >= 3) & (random.random(len(lengths)) < SHARE_ORDERING)
    kind[last[ordering]] = ORDER
    return kind.astype(np.int64)


def viewed_pages(
    random: np.random.Generator, catalogue: Catalogue, anchor: Integers, landing: np.typing.NDArray[np.bool_]
) -> Integers:
    count = len(anchor)
    which, what = random.random(count), random.random(count)
    wandering = drawn(random, catalogue.popularity, count)
    item = np.where(what < 0.45, anchor, np.where(what < 0.75, catalogue.viewed_with[anchor], wandering))
    category = ITEMS + anchor % CATEGORIES
    home_below = np.where(landing, 0.35, 0.05)
    return np.where(which < home_below, HOME, np.where(which < home_below + 0.2, category, item))


def since_begin_ms(random: np.random.Generator, first: Integers) -> Integers:
    """Think times, summed up from the first event of each session."""
    think = np.clip(random.lognormal(np.log(THINK_SECONDS), 1.0, len(first)), 1.0, THINK_SECONDS_MAX)
    passed = np.cumsum((think * 1_000).astype(np.int64))
    return passed - passed[first]


def written(
    random: np.random.Generator, catalogue: Catalogue, sessions: Sessions, arrivals: Arrivals, block: int
) -> Batch:
    count = len(sessions.kind)
    values = np.empty(count, np.object_)
    for kind, write in ((VIEW, views), (CLICK, clicks), (SEARCH, searches)):
        rows = np.flatnonzero(sessions.kind == kind)
        values[rows] = write(random, sessions, rows)
    rows = np.flatnonzero(sessions.kind == ORDER)
    values[rows] = orders(random, catalogue, sessions, rows, block)
    for broken in np.flatnonzero(random.random(count) < SHARE_BROKEN).tolist():
        values[broken] = values[broken][: len(values[broken]) // 2]
    keys = objects([b"user-%d" % user for user in sessions.user.tolist()])
    return Batch(sessions.time_ms + arrivals.lags_ms(random, count), TOPICS[sessions.kind], keys, values)


def page_names() -> list[tuple[bytes, bytes]]:
    """Path and item (as JSON) of every page; `HOME` is the last, where -1 finds it."""
    names = [(b"/items/item-%d" % item, b'"item-%d"' % item) for item in range(ITEMS)]
    return [*names, *((b"/categories/%d" % number, b"null") for number in range(CATEGORIES)), (b"/", b"null")]


PAGES = page_names()


def columns(sessions: Sessions, rows: Integers) -> zip[tuple[int, int, int]]:
    picked = (sessions.user[rows], sessions.time_ms[rows], sessions.page[rows])
    return zip(*(column.tolist() for column in picked), strict=True)


def views(random: np.random.Generator, sessions: Sessions, rows: Integers) -> Objects:
    form = b'{"user":"user-%d","time":%d,"page":"%b","item":%b}'
    return objects([form % (user, time, *PAGES[page]) for user, time, page in columns(sessions, rows)])


def clicks(random: np.random.Generator, sessions: Sessions, rows: Integers) -> Objects:
    elements = random.integers(len(ELEMENTS), size=len(rows)).tolist()
    form = b'{"user":"user-%d","time":%d,"page":"%b","item":%b,"element":"%b"}'
    told = zip(columns(sessions, rows), elements, strict=True)
    return objects([form % (user, time, *PAGES[page], ELEMENTS[which]) for (user, time, page), which in told])


def searches(random: np.random.Generator, sessions: Sessions, rows: Integers) -> Objects:
    adjectives = random.integers(len(ADJECTIVES), size=len(rows)).tolist()
    nouns = (sessions.anchor[rows] % len(NOUNS)).tolist()
    results = random.geometric(0.04, len(rows)).tolist()
    form = b'{"user":"user-%d","time":%d,"query":"%b %b","results":%d}'
    told = zip(columns(sessions, rows), adjectives, nouns, results, strict=True)
    return objects(
        [form % (user, time, ADJECTIVES[a], NOUNS[n], found) for (user, time, _), a, n, found in told]
    )


def orders(
    random: np.random.Generator, catalogue: Catalogue, sessions: Sessions, rows: Integers, block: int
) -> Objects:
    """The item of the session, often what goes with it, sometimes another one."""
    anchors = sessions.anchor[rows]
    with_partner = (random.random(len(rows)) < 0.55).tolist()
    with_other = (random.random(len(rows)) < 0.25).tolist()
    others = drawn(random, catalogue.popularity, len(rows)).tolist()
    quantities = random.choice([1, 1, 1, 2, 3], len(rows)).tolist()
    partners = catalogue.bought_with[anchors].tolist()
    prices = catalogue.prices.tolist()
    values = []
    for index, (user, time, _) in enumerate(columns(sessions, rows)):
        basket = {int(anchors[index]): quantities[index]}
        if with_partner[index]:
            basket[partners[index]] = 1
        if with_other[index]:
            basket.setdefault(others[index], 1)
        lines = b",".join(
            b'{"item":"item-%d","quantity":%d,"price":%d}' % (item, quantity, prices[item])
            for item, quantity in basket.items()
        )
        total = sum(prices[item] * quantity for item, quantity in basket.items())
        form = b'{"user":"user-%d","time":%d,"order":"order-%d-%d","items":[%b],"total":%d}'
        values.append(form % (user, time, block, index, lines, total))
    return objects(values)
