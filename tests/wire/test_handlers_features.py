"""UpdateFeatures in every version, and the features that ApiVersions tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import API_VERSIONS, UPDATE_FEATURES, Harness, parts, seconds
from tidelog.broker.broker import StoreFailed
from tidelog.cluster import features as table
from tidelog.cluster.changes import FeaturesChanged
from tidelog.cluster.features import Feature
from tidelog.cluster.store import Delete, Multi, Write
from tidelog.handlers import features as handler

VERSIONS = pytest.mark.parametrize("version", range(3))
NEWEST = table.SUPPORTED[0].newest_level
LEVELS = {feature.name: feature.newest_level for feature in table.SUPPORTED}
WIDE = (
    Feature("tidelog.version", 1, NEWEST + 2),
    Feature("transaction.version", 0, 2),
    Feature("zero.version", 0, 1),
)
FAILED = "The update failed for all features since the following feature had an error: "


@pytest.fixture
def wide(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A broker that knows more levels than its cluster uses."""
    for function in (table.update_problem, table.unknown_level):
        monkeypatch.setattr(function, "__defaults__", (WIDE,))
    monkeypatch.setattr(handler, "SUPPORTED", WIDE)
    known = {each.name: (each.oldest_level, each.newest_level) for each in WIDE}
    harness.broker.image.brokers[harness.broker.node_id].features = known
    return harness


def values(version: int, *updates: tuple[str, int, int], validate_only: bool = False) -> dict[str, Any]:
    part = parts(UPDATE_FEATURES, version)
    keys = tuple(
        part.FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind > 1
        )
        for name, level, kind in updates
    )
    return {"timeout": seconds(1), "feature_updates": keys, "validate_only": validate_only}


def update(
    harness: Harness, version: int, *updates: tuple[str, int, int], validate_only: bool = False
) -> Any:
    return harness.ask(UPDATE_FEATURES, version, **values(version, *updates, validate_only=validate_only))


def told(harness: Harness, version: int) -> Any:
    return harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")


@VERSIONS
def test_a_level_is_raised_and_told_under_a_new_epoch(wide: Harness, version: int) -> None:
    answer = update(wide, version, ("tidelog.version", NEWEST + 1, 1), ("zero.version", 1, 1))
    assert (answer.error_code, answer.error_message) == (0, None)
    if version < 2:
        assert [(r.feature, r.error_code, r.error_message) for r in answer.results] == [
            ("tidelog.version", 0, "NONE"),
            ("zero.version", 0, "NONE"),
        ]
    features = told(wide, 4)
    assert features.finalized_features_epoch == 1
    assert {f.name: (f.min_version_level, f.max_version_level) for f in features.finalized_features} == {
        "tidelog.version": (NEWEST + 1, NEWEST + 1),
        "transaction.version": (2, 2),
        "zero.version": (1, 1),
    }


@VERSIONS
def test_one_bad_update_fails_them_all(wide: Harness, version: int) -> None:
    answer = update(wide, version, ("tidelog.version", NEWEST + 1, 1), ("unheard.version", 1, 1))
    assert answer.error_code == ErrorCode.invalid_update_version
    assert answer.error_message == (
        f"{FAILED}Invalid update version 1 for feature unheard.version. "
        "Local controller 1 does not support this feature."
    )
    assert version == 2 or answer.results == ()
    assert wide.broker.image.feature_levels == LEVELS


@VERSIONS
def test_the_last_update_of_a_feature_counts(wide: Harness, version: int) -> None:
    assert (
        update(wide, version, ("tidelog.version", 9, 1), ("tidelog.version", NEWEST + 2, 1)).error_code == 0
    )
    assert wide.broker.image.feature_levels == LEVELS | {"tidelog.version": NEWEST + 2}


@VERSIONS
def test_a_downgrade_must_be_asked_for(wide: Harness, version: int) -> None:
    update(wide, version, ("tidelog.version", NEWEST + 2, 1))
    assert (
        update(wide, version, ("tidelog.version", NEWEST + 1, 1)).error_code
        == ErrorCode.invalid_update_version
    )
    assert wide.broker.image.feature_levels == LEVELS | {"tidelog.version": NEWEST + 2}
    assert update(wide, version, ("tidelog.version", NEWEST + 1, 2)).error_code == 0
    assert wide.broker.image.feature_levels == LEVELS | {"tidelog.version": NEWEST + 1}


@pytest.mark.parametrize("version", [1, 2])
def test_validating_changes_nothing(wide: Harness, version: int) -> None:
    assert update(wide, version, ("tidelog.version", NEWEST + 1, 1), validate_only=True).error_code == 0
    assert wide.broker.image.feature_levels == LEVELS
    assert update(wide, version, ("tidelog.version", 9, 1), validate_only=True).error_code == (
        ErrorCode.invalid_update_version
    )


@VERSIONS
def test_no_updates_and_the_level_there_is_are_fine(harness: Harness, version: int) -> None:
    assert update(harness, version).error_code == 0
    assert update(harness, version, ("tidelog.version", NEWEST, 1)).error_code == 0
    assert harness.broker.image.features_epoch == 0


def test_a_long_name_does_not_make_a_long_message(harness: Harness) -> None:
    answer = update(harness, 1, ("n" * 30_000, 1, 1))
    assert answer.error_code == ErrorCode.invalid_update_version and len(answer.error_message) == 1_000


def test_a_store_that_is_slow_lost_or_ahead_is_told(wide: Harness) -> None:
    wide.holds_store = True
    wide.send(UPDATE_FEATURES, 2, **values(2, ("tidelog.version", NEWEST + 1, 1)))
    wide.advance(1_001)
    assert wide.answer(UPDATE_FEATURES, 2).error_code == ErrorCode.request_timed_out
    wide.release_store()
    assert wide.broker.image.feature_levels == LEVELS | {"tidelog.version": NEWEST + 1}
    wide.store.perform(Multi((Write("/features", b'{"epoch":5,"levels":{}}'),)))
    answer = update(wide, 2, ("tidelog.version", NEWEST + 2, 1))
    assert answer.error_code == ErrorCode.feature_update_failed


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_features_from_version_3_on(wide: Harness, version: int) -> None:
    answer = told(wide, version)
    if version < 3:
        assert not hasattr(answer, "supported_features")
        return
    ranges = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    below_4 = {"tidelog.version": (1, NEWEST + 2)}
    from_0 = {"transaction.version": (0, 2), "zero.version": (0, 1)}
    assert ranges == (below_4 if version == 3 else below_4 | from_0)
    assert answer.finalized_features_epoch == 0
    assert {f.name: f.max_version_level for f in answer.finalized_features} == LEVELS


def test_a_store_from_before_there_were_features_is_opened(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.store.perform(Multi((Delete("/features"),)))
    harness.broker.stop()
    harness.start()
    assert harness.broker.image.feature_levels == LEVELS
    assert told(harness, 4).finalized_features_epoch == 0


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.store.perform(Multi((Write("/features", b'{"epoch":1,"levels":{"tidelog.version":99}}'),)))
    harness.broker.stop()
    with pytest.raises(StoreFailed, match=r"level 99 of tidelog\.version"):
        harness.start()


def test_a_broker_ends_when_the_others_use_a_level_that_it_does_not_know(harness: Harness) -> None:
    broker = harness.broker
    assert broker.image.brokers[broker.node_id].features == {
        feature.name: (feature.oldest_level, feature.newest_level) for feature in table.SUPPORTED
    }
    broker.image.feature_levels = {"tidelog.version": 99}
    with pytest.raises(StoreFailed, match=r"level 99 of tidelog\.version"):
        broker.desk.changed.emit([FeaturesChanged()])
