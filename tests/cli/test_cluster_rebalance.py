"""Plans of `tidelog cluster reassign`: even, spread over racks, with the fewest copies, always the same."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog.cli.cluster_layout import Place
from tidelog.cli.cluster_rebalance import Plan, copies, plan_departure, plan_rebalance

Before = dict[Place, tuple[int, ...]]


@st.composite
def _clusters(draw: st.DrawFn, rack_sizes: st.SearchStrategy[list[int]]) -> tuple[Before, dict[int, str]]:
    """Partitions anywhere on brokers, some of which may hold nothing any more; racks of those that may."""
    sizes = draw(rack_sizes)
    racks: dict[int, str] = {}
    for number, size in enumerate(sizes):
        racks |= dict.fromkeys(range(len(racks) + 1, len(racks) + 1 + size), f"rack-{number}")
    everybody = sorted(racks) + [100 + leaving for leaving in range(draw(st.integers(0, 2)))]
    before: Before = {}
    for topic in range(draw(st.integers(1, 3))):
        replicas = draw(st.integers(1, min(len(racks), 4)))
        for number in range(draw(st.integers(1, 7))):
            order = draw(st.permutations(everybody))
            before[f"topic-{topic}", number] = tuple(order[:replicas])
    return before, racks


_EQUAL_RACKS = st.builds(lambda racks, size: [size] * racks, st.integers(1, 4), st.integers(1, 3))
_ANY_RACKS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def _after(before: Before, plan: Plan) -> Before:
    return before | plan


def _differ(counts: Counter[int], racks: dict[int, str]) -> int:
    return max(counts[broker] for broker in racks) - min(counts[broker] for broker in racks)


def _replicas(assignment: Before) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def _leaders(assignment: Before) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def _assert_lawful(before: Before, after: Before, racks: dict[int, str]) -> None:
    assert after.keys() == before.keys()
    for place, replicas in after.items():
        assert len(replicas) == len(set(replicas)) == len(before[place])
        assert set(replicas) <= racks.keys()


def _assert_spread(after: Before, racks: dict[int, str]) -> None:
    """No rack has two more replicas of a partition than another that has a broker left for one."""
    sizes = Counter(racks.values())
    for place, replicas in after.items():
        held = Counter(racks[broker] for broker in replicas)
        room = [held[rack] for rack in sizes if held[rack] < sizes[rack]]
        assert not room or max(held.values()) - min(room) <= 1, (place, replicas)


@settings(max_examples=150, deadline=None)
@given(_clusters(_EQUAL_RACKS))
@example(
    (
        {("a", 0): (1,), ("a", 1): (1,), ("a", 2): (1,)}
        | {("b", 0): (2, 3), ("b", 1): (3, 2), ("b", 2): (2, 3)},
        dict.fromkeys((1, 2, 3), ""),
    )
)
def test_replicas_and_leaders_are_even_and_racks_spread(made: tuple[Before, dict[int, str]]) -> None:
    before, racks = made
    after = _after(before, plan_rebalance(before, racks))
    _assert_lawful(before, after, racks)
    _assert_spread(after, racks)
    assert _differ(_replicas(after), racks) <= 1
    assert _differ(_leaders(after), racks) <= 1


@settings(max_examples=150, deadline=None)
@given(_clusters(_ANY_RACKS))
def test_racks_of_any_size_are_spread_and_nothing_is_worse_than_before(
    made: tuple[Before, dict[int, str]],
) -> None:
    before, racks = made
    after = _after(before, plan_rebalance(before, racks))
    _assert_lawful(before, after, racks)
    _assert_spread(after, racks)
    if all(set(replicas) <= racks.keys() for replicas in before.values()) and len(set(racks.values())) == 1:
        assert _differ(_replicas(after), racks) <= _differ(_replicas(before), racks)


@settings(max_examples=100, deadline=None)
@given(_clusters(_ANY_RACKS))
def test_what_is_even_stays_and_plans_are_the_same_every_time(made: tuple[Before, dict[int, str]]) -> None:
    before, racks = made
    plan = plan_rebalance(before, racks)
    assert plan == plan_rebalance(dict(reversed(before.items())), dict(reversed(racks.items())))
    again = plan_rebalance(_after(before, plan), racks)
    assert copies(_after(before, plan), again) == 0, again


@settings(max_examples=100, deadline=None)
@given(_clusters(st.lists(st.just(1), min_size=1, max_size=6)))
def test_no_more_is_copied_than_counts_force(made: tuple[Before, dict[int, str]]) -> None:
    """Every broker is a rack of its own: nothing binds but the counts, and leaders take no copies."""
    before, racks = made
    plan = plan_rebalance(before, racks)
    counts, total = _replicas(before), sum(_replicas(before).values())
    low, high = total // len(racks), -(-total // len(racks))
    above = sum(max(counts[broker] - (high if broker in racks else 0), 0) for broker in counts)
    below = sum(max(low - counts[broker], 0) for broker in racks)
    least = max(above, below)
    if all(len(replicas) > 1 for replicas in before.values()):
        assert least <= copies(before, plan) <= least + len(racks), (least, plan)
    assert copies(before, plan) >= least


@settings(max_examples=100, deadline=None)
@given(_clusters(_ANY_RACKS))
def test_a_departure_moves_what_was_there_and_nothing_else(made: tuple[Before, dict[int, str]]) -> None:
    before, racks = made
    plan = plan_departure(before, racks)
    after = _after(before, plan)
    _assert_lawful(before, after, racks)
    for place, replicas in before.items():
        assert set(replicas) & racks.keys() <= set(after[place])
        if set(replicas) <= racks.keys():
            assert place not in plan
        elif replicas[0] in racks:
            assert after[place][0] == replicas[0]


def _even(brokers: int, partitions: int, replicas: int) -> Before:
    return {
        ("orders", number): tuple((number + step) % brokers + 1 for step in range(replicas))
        for number in range(partitions)
    }


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = _even(3, 30, 3)
    plan = plan_rebalance(before, dict.fromkeys((1, 2, 3, 4), ""))
    after = _after(before, plan)
    assert copies(before, plan) == 90 // 4
    assert sorted(_replicas(after).values()) == [22, 22, 23, 23]
    assert sorted(_leaders(after).values()) == [7, 7, 8, 8]
    for place, replicas in plan.items():
        assert set(replicas) - set(before[place]) <= {4}


def test_an_even_cluster_is_left_alone() -> None:
    assert plan_rebalance(_even(4, 40, 2), {1: "a", 2: "b", 3: "a", 4: "b"}) == {}


def test_leaders_are_made_even_without_a_copy() -> None:
    before: Before = {("orders", number): (1, 2, 3) for number in range(9)}
    plan = plan_rebalance(before, dict.fromkeys((1, 2, 3), ""))
    assert copies(before, plan) == 0
    assert _leaders(_after(before, plan)) == {1: 3, 2: 3, 3: 3}


def test_a_rack_that_has_two_replicas_gives_one_away() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before: Before = {("orders", 0): (1, 2), ("orders", 1): (3, 4)}
    plan = plan_rebalance(before, racks)
    _assert_spread(_after(before, plan), racks)
    assert copies(before, plan) == 2


def test_the_replicas_of_a_broker_that_leaves_go_to_its_rack() -> None:
    racks = {1: "a", 2: "a", 3: "b", 5: "c"}  # 4, of rack b, leaves
    before: Before = {("orders", 0): (1, 4, 5), ("orders", 1): (4, 2, 5)}
    plan = plan_departure(before, racks)
    assert plan == {("orders", 0): (1, 5, 3), ("orders", 1): (2, 5, 3)}


def test_thousands_of_partitions_are_planned() -> None:
    before = {
        (f"topic-{topic}", number): tuple((topic + number + step) % 9 + 1 for step in range(3))
        for topic in range(50)
        for number in range(40)
    }
    plan = plan_rebalance(before, dict.fromkeys(range(1, 11), ""))
    assert copies(before, plan) == 600
    taken = Counter(topic for (topic, number), replicas in plan.items() if 10 in replicas)
    assert len(taken) == 50 and max(taken.values()) - min(taken.values()) <= 2  # of every topic alike
