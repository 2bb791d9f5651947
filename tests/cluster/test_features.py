"""Feature levels: which updates are made, which are refused and in what words, and what an old store has."""

from __future__ import annotations

import pytest

from tests.cluster.tree import ID, Tree, started
from tidelog.cluster.controller import decide_first_start
from tidelog.cluster.facts import BrokerFacts
from tidelog.cluster.features import (
    SUPPORTED,
    Feature,
    FeatureUpdate,
    decide_first_levels,
    decide_levels,
    unknown_level,
    update_problem,
)
from tidelog.cluster.store import Create, Delete

WIDE = (Feature("a.version", 1, 5), Feature("b.version", 0, 1))
LEVELS = {"a.version": 3}
NEWEST = SUPPORTED[0].newest_level
NEWEST_LEVELS = {feature.name: feature.newest_level for feature in SUPPORTED}


def problem(name: str, level: int, upgrade_type: int = 1) -> str | None:
    return update_problem(LEVELS, [FeatureUpdate(name, level, upgrade_type)], 7, {}, WIDE)


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type"),
    [
        ("a.version", 3, 1),
        ("a.version", 5, 1),
        ("a.version", 3, 2),
        ("a.version", 1, 2),
        ("a.version", 1, 3),
        ("b.version", 1, 1),
        ("b.version", 0, 1),
    ],
)
def test_a_level_within_the_range_is_taken(name: str, level: int, upgrade_type: int) -> None:
    assert problem(name, level, upgrade_type) is None


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "reason"),
    [
        ("a.version", 6, 1, "Local controller 7 only supports versions 1-5"),
        ("a.version", 0, 2, "Local controller 7 only supports versions 1-5"),
        ("a.version", -1, 1, "A feature version cannot be less than 0."),
        ("a.version", 4, 0, "The controller does not support the given upgrade type."),
        ("a.version", 4, 4, "The controller does not support the given upgrade type."),
        ("a.version", 4, 2, "Can't downgrade to a newer version."),
        (
            "a.version",
            2,
            1,
            "Can't downgrade the version of this feature without setting the upgrade type to either "
            "safe or unsafe downgrade.",
        ),
        ("c.version", 1, 1, "Local controller 7 does not support this feature."),
        ("c.version", 0, 1, "Feature c.version not found."),
        ("", 1, 1, "Local controller 7 does not support this feature."),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(
    name: str, level: int, upgrade_type: int, reason: str
) -> None:
    assert problem(name, level, upgrade_type) == (
        f"Invalid update version {level} for feature {name}. {reason}"
    )


def test_of_several_bad_updates_the_first_by_name_is_told() -> None:
    updates = [FeatureUpdate("z", 1, 1), FeatureUpdate("a.version", 9, 1), FeatureUpdate("b.version", 1, 1)]
    told = update_problem(LEVELS, updates, 7, {}, WIDE)
    assert told is not None and "feature a.version." in told


def test_new_levels_have_a_new_epoch_and_the_same_levels_are_not_written() -> None:
    tree = started()
    assert tree.image.features_epoch == 0
    tree.apply(decide_levels(tree.image, [FeatureUpdate("a.version", 4, 1)]))
    assert tree.image.feature_levels == {"a.version": 4} | NEWEST_LEVELS
    assert tree.image.features_epoch == tree.loaded().features_epoch == 1
    assert decide_levels(tree.image, [FeatureUpdate("a.version", 4, 1)]) == []
    tree.apply(decide_levels(tree.image, [FeatureUpdate("a.version", 0, 2)]))
    assert (tree.image.features_epoch, tree.image.feature_levels) == (2, NEWEST_LEVELS)


def test_a_new_cluster_begins_with_the_newest_levels() -> None:
    tree = started()
    assert tree.image.feature_levels == NEWEST_LEVELS


def test_a_store_without_levels_goes_on_with_the_oldest() -> None:
    tree = Tree()
    tree.apply(decide_first_start(tree.image, ID))
    tree.apply([Delete("/features")])
    image = tree.loaded()
    (made,) = decide_first_start(image, ID)
    assert isinstance(made, Create) and made.path == "/features"
    image.apply([made])
    assert image.feature_levels == {"tidelog.version": 1}
    assert decide_first_levels(image, is_new=False) == []


def test_a_broker_that_is_alone_goes_up_to_the_newest_level_and_one_that_shares_waits() -> None:
    tree = started()
    tree.apply(decide_levels(tree.image, [FeatureUpdate("tidelog.version", 1, 3)]))
    assert decide_first_start(tree.image, ID) == []
    tree.apply(decide_first_start(tree.image, ID, is_alone=True))
    assert tree.loaded().feature_levels == NEWEST_LEVELS
    assert decide_first_start(tree.image, ID, is_alone=True) == []


def test_a_store_without_levels_of_a_broker_that_is_alone_gets_the_newest() -> None:
    tree = started()
    tree.apply([Delete("/features")])
    tree.apply(decide_first_start(tree.image, ID, is_alone=True))
    assert tree.loaded().feature_levels == NEWEST_LEVELS


def test_a_store_of_a_newer_version_is_not_used() -> None:
    tree = started()
    assert unknown_level(tree.image) is None
    tree.image.feature_levels["tidelog.version"] = NEWEST + 1
    assert unknown_level(tree.image) == (
        f"the cluster uses level {NEWEST + 1} of tidelog.version, which this version does not know"
    )
    tree.image.feature_levels = {"other.version": 1}
    assert unknown_level(tree.image) is not None


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"a.version": (1, 5)}, None),
        ({"a.version": (2, 4)}, "Broker 3 only supports versions 2-4."),
        ({"b.version": (0, 1)}, "Broker 3 does not support this feature."),
        ({}, "Broker 3 does not support this feature."),
    ],
)
def test_a_level_that_some_broker_does_not_know_is_not_taken(
    known: dict[str, tuple[int, int]], reason: str | None
) -> None:
    brokers = {2: BrokerFacts(2, "h", 1, "", 1, features={"a.version": (1, 5)})}
    brokers[3] = BrokerFacts(3, "h", 1, "", 1, features=known)
    told = update_problem(LEVELS, [FeatureUpdate("a.version", 5, 1)], 2, brokers, WIDE)
    assert told == (reason and f"Invalid update version 5 for feature a.version. {reason}")
