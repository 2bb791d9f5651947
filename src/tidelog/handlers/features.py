"""UpdateFeatures, and the features that ApiVersions tells (KIP-584).

**Invariant:** all updates of a request are made, under one new epoch, or none is.
"""

from __future__ import annotations

from typing import Any

from tidelog.base.limits import MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.features import SUPPORTED, FeatureUpdate, UpgradeType, decide_levels, update_problem
from tidelog.cluster.store import Operation, Outcome, Refused
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE, change_store, problem_of
from tidelog.protocol.errors import ErrorCode, Problem

_NOBODY_FAILED = "NONE"  # Kafka puts its word for no error where a message would be
_OUTDATED = Problem(ErrorCode.feature_update_failed, "The features were updated by somebody else meanwhile.")


def handle_update_features(broker: Broker, request: Request) -> Result:
    """*Behaviour*: checks all updates, the last one of each feature, then writes them together; the first
    that cannot be made fails them all.

    *Versions*: 0 has a flag for downgrades; 1 upgrade types and validate-only; 2 has no answer of its own
    for each feature.
    """
    asked = request.decode()
    updates = [*{update.name: update for update in map(_update, asked.feature_updates)}.values()]
    change = _LevelsChange(broker, updates, getattr(asked, "validate_only", False))

    def answer(problems: list[Problem]) -> bytes:
        return _answer(request, updates, problems[0])

    return change_store(broker, deadline_of(broker, asked.timeout), [change], LATE, answer)


class _LevelsChange(StoreChange[list[Operation], Problem]):
    attempts_max = 1  # who updates features means the levels that there were

    def __init__(self, broker: Broker, updates: list[FeatureUpdate], validate_only: bool) -> None:
        self._broker = broker
        self._updates = updates
        self._validate_only = validate_only

    def decide(self) -> list[Operation] | Settled[Problem]:
        broker, image = self._broker, self._broker.image
        problem = update_problem(image.feature_levels, self._updates, broker.node_id, image.brokers)
        if problem is not None:
            message = (
                f"The update failed for all features since the following feature had an error: {problem}"
            )
            return Settled(Problem(ErrorCode.invalid_update_version, message))
        operations = decide_levels(image, self._updates)
        return operations if operations and not self._validate_only else Settled(FINE)

    def write(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        self._broker.control.write(operations, on_outcome)

    def row_of(self, operations: list[Operation], outcome: Outcome) -> Problem:
        return _OUTDATED if isinstance(outcome, Refused) else problem_of(outcome)


def _update(asked: Any) -> FeatureUpdate:
    if hasattr(asked, "upgrade_type"):
        return FeatureUpdate(asked.feature, asked.max_version_level, asked.upgrade_type)
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def _answer(request: Request, updates: list[FeatureUpdate], problem: Problem) -> bytes:
    results: tuple[Any, ...] = ()
    if request.version < 2 and not problem.error:
        results = tuple(
            request.make(
                "UpdatableFeatureResult",
                feature=update.name,
                error_code=ErrorCode.none,
                error_message=_NOBODY_FAILED,
            )
            for update in sorted(updates)
        )
    return request.respond(
        error_code=problem.error,
        error_message=problem.message[:MESSAGE_LENGTH_MAX] or None,
        results=results,
    )


def features_told(broker: Broker, request: Request) -> dict[str, Any]:
    """The fields about features of an ApiVersions answer; versions below 3 have none.

    In version 3 a range that begins with 0 is left out: clients of that time fail on it (KAFKA-17011).
    """
    if request.version < 3:
        return {}
    told = [feature for feature in SUPPORTED if request.version > 3 or feature.oldest_level > 0]
    return {
        "supported_features": tuple(
            request.make(
                "SupportedFeatureKey",
                name=feature.name,
                min_version=feature.oldest_level,
                max_version=feature.newest_level,
            )
            for feature in told
        ),
        "finalized_features_epoch": broker.image.features_epoch,
        "finalized_features": tuple(
            request.make("FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level)
            for name, level in broker.image.feature_levels.items()
        ),
    }
