"""The assignors: everything to one subscriber, balanced, and no move that balance does not ask for."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.groups.assignors import ASSIGNORS, Subscriber
from tidelog.groups.records import Target

Group = dict[str, Subscriber]
Counts = dict[bytes, int]
Targets = Mapping[str, Target]

uniform, range_ = ASSIGNORS["uniform"], ASSIGNORS["range"]
FOO, BAR, BAZ, QUX = (bytes([number]) * 16 for number in range(1, 5))
TOPICS = (FOO, BAR, BAZ, QUX)


def member(*topics: bytes, target: Target | None = None, instance_id: str | None = None) -> Subscriber:
    return Subscriber(topics, instance_id, target or {})


def settled(group: Group, targets: Targets) -> Group:
    """The group as it is once the targets are its last ones."""
    return {name: each._replace(target=targets.get(name, {})) for name, each in group.items()}


def owners(targets: Targets) -> dict[tuple[bytes, int], str]:
    return {
        (topic_id, index): name
        for name, target in targets.items()
        for topic_id, indexes in target.items()
        for index in indexes
    }


def load(target: Target) -> int:
    return sum(map(len, target.values()))


def moves(before: Targets, after: Targets) -> int:
    """How many partitions have gone from one member to another that is still, or newly, there."""
    old, new = owners(before), owners(after)
    return sum(partition in old and old[partition] != name for partition, name in new.items())


@st.composite
def shared_groups(draw: st.DrawFn) -> tuple[Group, Counts]:
    """Members that subscribe alike."""
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    names = draw(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True))
    return {f"m{name}": member(*topics) for name in names}, {
        each: draw(st.integers(1, 12)) for each in topics
    }


@st.composite
def groups(draw: st.DrawFn) -> tuple[Group, Counts]:
    """Members that subscribe as they like, some static, with last targets that may be out of date."""
    counts = {topic_id: draw(st.integers(1, 9)) for topic_id in TOPICS}
    names = draw(st.lists(st.integers(0, 99), min_size=1, max_size=7, unique=True))
    chance = random.Random(draw(st.integers(0, 10**6)))
    free = [(topic_id, index) for topic_id in TOPICS for index in range(12) if chance.random() < 0.7]
    group: Group = {}
    for name in names:
        topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
        mine = chance.sample(free, min(len(free), chance.randrange(9)))
        free = [partition for partition in free if partition not in mine]
        target = {
            each: tuple(sorted(index for topic_id, index in mine if topic_id == each)) for each in TOPICS
        }
        instance_id = f"i{100 - name}" if draw(st.booleans()) else None
        group[f"m{name}"] = member(*topics, target=target, instance_id=instance_id)
    return group, counts


def leads_downhill(group: Group, targets: Targets) -> bool:
    """Whether partitions could be passed on, from member to member, to one with two fewer than the first."""
    for first in group:
        reached = [first]
        for name in reached:
            reached += [
                other
                for other, each in group.items()
                if other not in reached and any(topic_id in targets[name] for topic_id in each.topics)
            ]
        if any(load(targets[first]) - load(targets[name]) >= 2 for name in reached):
            return True
    return False


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(deadline=None)
@given(case=groups())
def test_each_partition_of_a_subscribed_topic_goes_to_one_subscriber(
    name: str, case: tuple[Group, Counts]
) -> None:
    group, counts = case
    targets = ASSIGNORS[name](group, counts)
    assert targets.keys() == group.keys()
    given_away = [
        (topic_id, index)
        for each, target in targets.items()
        for topic_id, indexes in target.items()
        for index in indexes
        if topic_id in group[each].topics
    ]
    wanted = {topic_id for each in group.values() for topic_id in each.topics}
    assert sorted(given_away) == sorted((each, index) for each in wanted for index in range(counts[each]))
    assert sum(map(load, targets.values())) == len(given_away)
    for target in targets.values():
        assert all(indexes and list(indexes) == sorted(indexes) for indexes in target.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(deadline=None)
@given(case=groups(), seed=st.integers())
def test_the_order_of_members_and_topics_does_not_matter(
    name: str, case: tuple[Group, Counts], seed: int
) -> None:
    group, counts = case
    chance = random.Random(seed)
    shuffled = {
        each: group[each]._replace(topics=tuple(chance.sample(group[each].topics, len(group[each].topics))))
        for each in chance.sample(list(group), len(group))
    }
    assert ASSIGNORS[name](shuffled, dict(reversed(counts.items()))) == ASSIGNORS[name](group, counts)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(deadline=None)
@given(case=groups())
def test_what_is_settled_stays(name: str, case: tuple[Group, Counts]) -> None:
    group, counts = case
    targets = ASSIGNORS[name](group, counts)
    assert ASSIGNORS[name](settled(group, targets), counts) == targets


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(deadline=None)
@given(case=groups())
def test_the_arguments_are_left_alone(name: str, case: tuple[Group, Counts]) -> None:
    group, counts = case
    before = repr(case)
    ASSIGNORS[name](group, counts)
    assert repr((group, counts)) == before


@settings(deadline=None)
@given(case=groups())
def test_uniform_is_as_balanced_as_the_subscriptions_allow(case: tuple[Group, Counts]) -> None:
    group, counts = case
    assert not leads_downhill(group, uniform(group, counts))


@settings(deadline=None)
@given(case=shared_groups())
def test_uniform_differs_by_one_where_all_subscribe_alike(case: tuple[Group, Counts]) -> None:
    loads = [load(target) for target in uniform(*case).values()]
    assert max(loads) - min(loads) <= 1


@settings(deadline=None)
@given(case=shared_groups(), data=st.data())
def test_who_leaves_moves_only_what_it_had(case: tuple[Group, Counts], data: st.DataObject) -> None:
    group, counts = case
    before = uniform(group, counts)
    gone = data.draw(st.sampled_from(sorted(group)))
    left = settled({name: each for name, each in group.items() if name != gone}, before)
    after = uniform(left, counts)
    if left:
        assert moves(before, after) == load(before[gone])


@settings(deadline=None)
@given(case=shared_groups())
def test_who_joins_is_given_its_share_and_nothing_else_moves(case: tuple[Group, Counts]) -> None:
    group, counts = case
    before = uniform(group, counts)
    after = uniform({**settled(group, before), "m": member(*next(iter(group.values())).topics)}, counts)
    assert moves(before, after) == load(after["m"]) == sum(counts.values()) // (len(group) + 1)


@settings(deadline=None)
@given(case=shared_groups(), more=st.integers(1, 20))
def test_a_topic_that_grows_moves_nothing(case: tuple[Group, Counts], more: int) -> None:
    group, counts = case
    before = uniform(group, counts)
    first = next(iter(counts))
    assert moves(before, uniform(settled(group, before), {**counts, first: counts[first] + more})) == 0


@settings(deadline=None)
@given(case=shared_groups())
def test_range_gives_ranges_and_joins_topics_of_one_size(case: tuple[Group, Counts]) -> None:
    group, counts = case
    targets = range_(group, counts)
    for target in targets.values():
        for topic_id, indexes in target.items():
            assert indexes == tuple(range(indexes[0], indexes[-1] + 1))
            alike = [each for each in counts if counts[each] == counts[topic_id]]
            assert all(target[each] == indexes for each in alike)
    for topic_id in counts:
        loads = [len(target.get(topic_id, ())) for target in targets.values()]
        assert max(loads) - min(loads) <= 1


def test_a_group_grows_as_in_kip_848() -> None:
    counts = {FOO: 6}
    one = uniform({"A": member(FOO)}, counts)
    assert one == {"A": {FOO: (0, 1, 2, 3, 4, 5)}}
    two = uniform({"A": member(FOO, target=one["A"]), "B": member(FOO)}, counts)
    assert two == {"A": {FOO: (0, 1, 2)}, "B": {FOO: (3, 4, 5)}}
    three = uniform(settled({"A": member(FOO), "B": member(FOO), "C": member(FOO)}, two), counts)
    assert three == {"A": {FOO: (0, 1)}, "B": {FOO: (3, 4)}, "C": {FOO: (2, 5)}}


def test_more_members_than_partitions_leaves_some_with_nothing() -> None:
    group = {name: member(FOO) for name in "ABC"}
    for assign in ASSIGNORS.values():
        assert assign(group, {FOO: 2}) == {"A": {FOO: (0,)}, "B": {FOO: (1,)}, "C": {}}


def test_nobody_and_nothing_are_no_errors() -> None:
    for assign in ASSIGNORS.values():
        assert assign({}, {}) == {}
        assert assign({"A": member()}, {}) == {"A": {}}
        assert assign({"A": member(target={FOO: (0,)})}, {}) == {"A": {}}


def test_the_extra_partition_stays_with_who_has_it() -> None:
    group = {"A": member(FOO, target={FOO: (0,)}), "B": member(FOO, target={FOO: (1, 2)})}
    assert uniform(group, {FOO: 3}) == {"A": {FOO: (0,)}, "B": {FOO: (1, 2)}}


def test_a_partition_in_two_last_targets_is_given_once() -> None:
    everything = {FOO: (0, 1, 2)}
    group = {"A": member(FOO, target=everything), "B": member(FOO, target=everything), "C": member(FOO)}
    assert uniform(group, {FOO: 3}) == {"A": {FOO: (0,)}, "B": {FOO: (1,)}, "C": {FOO: (2,)}}


def test_a_member_that_no_longer_subscribes_gives_the_topic_up() -> None:
    group = {
        "A": member(FOO, target={FOO: (0, 1), BAR: (0, 1)}),
        "B": member(FOO, BAR, target={FOO: (2,), BAR: (2,)}),
    }
    after = uniform(group, {FOO: 3, BAR: 3})
    assert after == {"A": {FOO: (0, 1, 2)}, "B": {BAR: (0, 1, 2)}}


def test_a_chain_of_overlapping_subscriptions_is_leveled_to_its_end() -> None:
    """The example that Kafka's own assignor leaves at 9, 10 and 11."""
    group = {
        "A": member(FOO, target={FOO: tuple(range(9))}),
        "B": member(FOO, BAR, target={FOO: tuple(range(9, 15)), BAR: tuple(range(4))}),
        "C": member(BAR, target={BAR: tuple(range(4, 15))}),
    }
    after = uniform(group, {FOO: 15, BAR: 15})
    assert [load(target) for target in after.values()] == [10, 10, 10]
    assert moves({name: each.target for name, each in group.items()}, after) == 2


def test_who_subscribes_to_little_is_left_with_it_and_the_rest_goes_to_others() -> None:
    group = {"A": member(FOO), "B": member(FOO, BAR), "C": member(FOO, BAR, BAZ)}
    after = uniform(group, {FOO: 2, BAR: 2, BAZ: 8})
    assert {name: load(target) for name, target in after.items()} == {"A": 2, "B": 2, "C": 8}


def test_range_orders_static_members_by_instance_and_before_the_others() -> None:
    group = {
        "a": member(FOO),
        "b": member(FOO, instance_id="i2"),
        "c": member(FOO, instance_id="i1"),
    }
    before = range_(group, {FOO: 6})
    assert before == {"c": {FOO: (0, 1)}, "b": {FOO: (2, 3)}, "a": {FOO: (4, 5)}}
    back = {"a": group["a"], "z": group["c"], "b": group["b"]}
    assert range_(back, {FOO: 6}) == {"z": before["c"], "b": before["b"], "a": before["a"]}


def test_range_shares_each_topic_among_its_own_subscribers() -> None:
    group = {"A": member(FOO, BAR), "B": member(BAZ), "C": member(BAR, BAZ)}
    assert range_(group, {FOO: 3, BAR: 3, BAZ: 2}) == {
        "A": {FOO: (0, 1, 2), BAR: (0, 1)},
        "B": {BAZ: (0,)},
        "C": {BAR: (2,), BAZ: (1,)},
    }
