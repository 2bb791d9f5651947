"""The features of a cluster: levels that all its brokers have agreed to use (KIP-584).

| feature               | levels | what a level switches on                                              |
|-----------------------|--------|-----------------------------------------------------------------------|
| `tidelog.version`     | 1      | the tree of the store and the requests between brokers, as of 0.1     |
|                       | 2      | groups in the partitions in which Kafka keeps them                    |
| `transaction.version` | 1, 2   | producers whose epoch rises with each transaction (KIP-890)           |

`tidelog.version` corresponds to Kafka's `metadata.version`: newer software uses its abilities only after an
operator has raised the level, so that brokers of two versions can share a cluster during an upgrade. The
name differs because clients and tools derive from `metadata.version` what Kafka's metadata log can hold, and
Tidelog has no such log. A store without levels is at the oldest one. A broker that has its store to itself
raises the level when it starts: there is no older broker to wait for.

A broker's registration has the levels that it supports. A broker that does not support a finalized level
exits.

**Invariant:** a finalized level is supported by all brokers; no level is supported before it is built.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster.facts import BrokerFacts, encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import FEATURES
from tidelog.cluster.store import Create, Operation, Write


class Feature(NamedTuple):
    name: str
    oldest_level: int
    newest_level: int


NAME = "tidelog.version"
GROUPS_LEVEL = 2  # the first level with groups where Kafka keeps them
GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS = "transaction.version"  # by Kafka's name: clients go by it
TRANSACTIONS_TOPIC = "__transaction_state"
SUPPORTED: tuple[Feature, ...] = (Feature(NAME, 1, 2), Feature(TRANSACTIONS, 0, 2))


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int


def decide_first_levels(image: Image, is_new: bool, is_alone: bool = False) -> list[Operation]:
    """The newest levels for a new cluster, the oldest for an existing store without levels. A broker that has
    its store to itself raises them to the newest."""
    newest = {feature.name: feature.newest_level for feature in SUPPORTED}
    if FEATURES in image.versions:
        updates = [FeatureUpdate(name, level, UpgradeType.UPGRADE) for name, level in newest.items()]
        if not is_alone or unknown_level(image) is not None:
            return []
        return decide_levels(image, updates, is_alone)
    oldest = {feature.name: feature.oldest_level for feature in SUPPORTED if feature.oldest_level}
    moved = _moved_after(image, {}, newest, is_alone) if is_alone and not is_new else None
    return [Create(FEATURES, _encode(0, newest if is_new or is_alone else oldest, moved))]


def uses_kafka_places(image: Image) -> bool:
    """Whether groups are in the partitions in which Kafka keeps them, or are being moved there."""
    return image.feature_levels.get(NAME, 0) >= GROUPS_LEVEL


def may_raise_epochs(image: Image) -> bool:
    """Whether transactional producers may use the protocol in which each transaction has its own epoch."""
    return image.feature_levels.get(TRANSACTIONS, 0) >= 1


def decide_moved(image: Image, index: int, awaited: Collection[int]) -> list[Operation]:
    """Record that a partition has received all its groups; after the last one the record of the moves is
    removed."""
    moved = {*(image.groups_moved or ()), index}
    left = sorted(moved) if any(each not in moved for each in awaited) else None
    return [
        Write(FEATURES, _encode(image.features_epoch, image.feature_levels, left), image.versions[FEATURES])
    ]


def _encode(epoch: int, levels: Mapping[str, int], moved: Collection[int] | None) -> bytes:
    if moved is None:
        return encode_fields(epoch=epoch, levels=levels)
    return encode_fields(epoch=epoch, levels=levels, groups_moved=sorted(moved))


def _moved_after(
    image: Image, before: Mapping[str, int], after: Mapping[str, int], is_alone: bool
) -> Collection[int] | None:
    """The partitions whose groups have moved: none at the moment the level is raised. Also while the groups
    topic is unknown, because another broker may just be creating it."""
    is_due = before.get(NAME, 0) < GROUPS_LEVEL <= after.get(NAME, 0)
    has_groups = GROUPS_TOPIC in image.topics or not is_alone
    return () if is_due and has_groups else image.groups_moved


def unknown_level(image: Image, supported: Sequence[Feature] = SUPPORTED) -> str | None:
    """A finalized level that this software does not support, so that it must not use the store; or None."""
    ranges = {feature.name: feature for feature in supported}
    for name, level in image.feature_levels.items():
        feature = ranges.get(name)
        if feature is None or not feature.oldest_level <= level <= feature.newest_level:
            return f"the cluster uses level {level} of {name}, which this version does not know"
    return None


def update_problem(
    levels: Mapping[str, int],
    updates: Sequence[FeatureUpdate],
    node_id: int,
    brokers: Mapping[int, BrokerFacts],
    supported: Sequence[Feature] = SUPPORTED,
) -> str | None:
    """Why the updates cannot be made, in Kafka's words, by the first that cannot; or None."""
    for update in sorted(updates):
        problem = _problem(levels.get(update.name, 0), update, node_id, supported)
        problem = problem or _problem_of_others(update, brokers, supported)
        if problem is not None:
            return f"Invalid update version {update.level} for feature {update.name}. {problem}"
    return None


def _problem(current: int, update: FeatureUpdate, node_id: int, supported: Sequence[Feature]) -> str | None:
    if update.upgrade_type not in (*UpgradeType,):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    feature = next((feature for feature in supported if feature.name == update.name), None)
    if feature is None:
        if update.level == 0:
            return f"Feature {update.name} not found."
        return f"Local controller {node_id} does not support this feature."
    if not feature.oldest_level <= update.level <= feature.newest_level:
        span = f"{feature.oldest_level}-{feature.newest_level}"
        return f"Local controller {node_id} only supports versions {span}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either "
            "safe or unsafe downgrade."
        )
    if update.name == NAME and update.level < GROUPS_LEVEL <= current:
        return "Refusing to perform the requested downgrade: groups have moved to other partitions."
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _problem_of_others(
    update: FeatureUpdate, brokers: Mapping[int, BrokerFacts], supported: Sequence[Feature]
) -> str | None:
    for node_id, facts in sorted(brokers.items()):
        # A broker without a list of levels is from before there was a second level, or another feature.
        known = facts.features or {NAME: (1, 1)}
        oldest, newest = known.get(update.name, (0, 0))
        if not oldest <= update.level <= newest:
            limit = f"only supports versions {oldest}-{newest}" if newest else "does not support this feature"
            return f"Broker {node_id} {limit}."
    return None


def decide_levels(image: Image, updates: Sequence[FeatureUpdate], is_alone: bool = False) -> list[Operation]:
    """Write the new levels under the next epoch; nothing if they are as they were. Level 0 is none."""
    levels = image.feature_levels | {update.name: update.level for update in updates}
    levels = {name: level for name, level in levels.items() if level > 0}
    if levels == image.feature_levels:
        return []
    moved = _moved_after(image, image.feature_levels, levels, is_alone)
    fields = _encode(image.features_epoch + 1, levels, moved)
    return [Write(FEATURES, fields, image.versions[FEATURES])]
