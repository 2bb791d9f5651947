"""Where replicas go: different brokers, different racks, evenly, the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from hypothesis import given, strategies

from tidelog.cluster.facts import BrokerFacts
from tidelog.cluster.placement import place, racks_of

THREE = {3: "", 1: "", 2: ""}
brokers_with_racks = strategies.dictionaries(
    strategies.integers(0, 50), strategies.sampled_from("abcd"), min_size=1, max_size=12
)
brokers_without = strategies.sets(strategies.integers(0, 50), min_size=1, max_size=12).map(
    lambda ids: dict.fromkeys(ids, "")
)
counts = strategies.integers(1, 60)
starts = strategies.integers(0, 100)


@strategies.composite
def equal_racks(draw: strategies.DrawFn) -> dict[int, str]:
    rack_count, size = draw(strategies.integers(1, 4)), draw(strategies.integers(1, 4))
    ids = draw(strategies.permutations(range(rack_count * size)))
    return {node_id: "abcd"[place % rack_count] for place, node_id in enumerate(ids)}


def spread(values: Mapping[int, int], brokers: Mapping[int, str]) -> int:
    """Between the broker that has the most and the one that has the least."""
    shares = [values.get(node_id, 0) for node_id in brokers]
    return max(shares) - min(shares)


def test_the_start_picks_the_first_leader() -> None:
    assert [place(1, 1, {7: "", 8: "", 9: ""}, start)[0] for start in range(4)] == [[7], [8], [9], [7]]


def test_partitions_go_round_and_followers_move_on_with_each_turn() -> None:
    assert place(6, 2, THREE, 0) == [[1, 2], [2, 3], [3, 1], [1, 3], [2, 1], [3, 2]]


def test_racks_take_turns() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    assert place(6, 3, racks, 0) == [[1, 3, 5], [3, 5, 2], [5, 2, 4], [2, 4, 6], [4, 6, 1], [6, 1, 3]]


def test_a_rack_with_one_broker_has_a_replica_of_everything_that_needs_three_racks() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}
    assert all(6 in replicas for replicas in place(12, 3, racks, 0))


def test_racks_do_not_count_unless_every_broker_has_one() -> None:
    assert place(9, 2, {1: "a", 2: "a", 3: ""}, 4) == place(9, 2, THREE, 4)


def test_racks_are_taken_from_what_is_known_of_brokers() -> None:
    assert racks_of({3: BrokerFacts(3, "host", 9092, "a", 0)}) == {3: "a"}


@given(brokers_with_racks | brokers_without, counts, starts, strategies.data())
def test_replicas_of_a_partition_sit_on_different_brokers(
    brokers: dict[int, str], count: int, start: int, data: strategies.DataObject
) -> None:
    replica_count = data.draw(strategies.integers(1, len(brokers)))
    placed = place(count, replica_count, brokers, start)
    assert len(placed) == count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == replica_count
        assert set(replicas) <= brokers.keys()


@given(brokers_with_racks, counts, starts, strategies.data())
def test_no_rack_has_two_replicas_more_than_another_that_has_brokers_left(
    brokers: dict[int, str], count: int, start: int, data: strategies.DataObject
) -> None:
    """Hence never two in one rack while another has none."""
    replica_count = data.draw(strategies.integers(1, len(brokers)))
    sizes = Counter(brokers.values())
    for replicas in place(count, replica_count, brokers, start):
        held = Counter(brokers[node_id] for node_id in replicas)
        least = min(
            (held[rack] for rack, size in sizes.items() if held[rack] < size), default=max(sizes.values())
        )
        assert max(held.values()) <= least + 1


@given(brokers_with_racks | brokers_without, counts, starts)
def test_leaders_are_spread_evenly(brokers: dict[int, str], count: int, start: int) -> None:
    leaders = Counter(replicas[0] for replicas in place(count, 1, brokers, start))
    assert spread(leaders, brokers) <= 1


@given(equal_racks() | brokers_without, strategies.integers(1, 20), starts, strategies.data())
def test_replicas_are_spread_evenly_if_racks_are_equal(
    brokers: dict[int, str], turns: int, start: int, data: strategies.DataObject
) -> None:
    replica_count = data.draw(strategies.integers(1, len(brokers)))
    start *= len(brokers)
    placed = place(turns * len(brokers), replica_count, brokers, start)
    for position in range(replica_count):
        assert spread(Counter(replicas[position] for replicas in placed), brokers) == 0


@given(brokers_without.filter(lambda brokers: len(brokers) > 1))
def test_what_a_dead_broker_led_falls_to_all_the_others_evenly(brokers: dict[int, str]) -> None:
    placed = place(len(brokers) * (len(brokers) - 1), 2, brokers, 0)
    assert set(Counter((replicas[0], replicas[1]) for replicas in placed).values()) == {1}


@given(equal_racks().filter(lambda brokers: len(set(brokers.values())) > 1))
def test_what_a_dead_broker_led_falls_to_all_brokers_of_other_racks(brokers: dict[int, str]) -> None:
    placed = place(len(brokers) * (len(brokers) - 1), 2, brokers, 0)
    for leader, rack in brokers.items():
        heirs = {replicas[1] for replicas in placed if replicas[0] == leader}
        assert heirs == {node_id for node_id, other in brokers.items() if other != rack}


@given(brokers_with_racks, counts, starts, strategies.randoms())
def test_the_order_in_which_brokers_are_known_does_not_matter(
    brokers: dict[int, str], count: int, start: int, random: Random
) -> None:
    rows = list(brokers.items())
    random.shuffle(rows)
    assert place(count, 1, dict(rows), start) == place(count, 1, brokers, start)
