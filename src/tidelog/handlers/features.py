"""UpdateFeatures, and the features that ApiVersions tells (KIP-584).

**Invariant:** all updates of a request are made, under one new epoch, or none is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.features import SUPPORTED, FeatureUpdate, UpgradeType, decide_levels, update_problem
from tidelog.cluster.store import Done, Outcome, Refused
from tidelog.handlers.request import Outstanding, Request, Result
from tidelog.protocol.errors import ErrorCode

_ZERO = timedelta(0)
_MESSAGE_LENGTH_MAX = 1_000  # a message quotes the feature's name, and that may be 32 KB long
_NOBODY_FAILED = "NONE"  # Kafka puts its word for no error where a message would be


def handle_update_features(broker: Broker, request: Request) -> Result:
    """*Behaviour*: checks all updates, the last one of each feature, then writes them together; the first
    that cannot be made fails them all.

    *Versions*: 0 has a flag for downgrades; 1 upgrade types and validate-only; 2 has no answer of its own
    for each feature.
    """
    asked = request.decode()
    updates = [*{update.name: update for update in map(_update, asked.feature_updates)}.values()]
    problem = update_problem(broker.image.feature_levels, updates, broker.node_id, broker.image.brokers)
    if problem is not None:
        message = f"The update failed for all features since the following feature had an error: {problem}"
        return _answer(request, [], ErrorCode.invalid_update_version, message)
    operations = decide_levels(broker.image, updates)
    if not operations or getattr(asked, "validate_only", False):
        return _answer(request, updates)

    def late() -> bytes:
        return _answer(request, [], ErrorCode.request_timed_out, "The store has not answered in time.")

    wait_ms = max(int(asked.timeout.total_seconds() * 1_000), 0)
    parked = Outstanding(broker.uptime_ms + wait_ms, late)

    def on_outcome(outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            answer = _answer(request, updates)
        elif isinstance(outcome, Refused):
            message = "The features were updated by somebody else meanwhile."
            answer = _answer(request, [], ErrorCode.feature_update_failed, message)
        else:
            lost = f"The store's answer was lost: {outcome}"
            answer = _answer(request, [], ErrorCode.request_timed_out, lost)
        broker.waiting.finish(parked, answer)

    broker.control.write(operations, on_outcome)
    return parked


def _update(asked: Any) -> FeatureUpdate:
    if hasattr(asked, "upgrade_type"):
        return FeatureUpdate(asked.feature, asked.max_version_level, asked.upgrade_type)
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def _answer(
    request: Request,
    updates: list[FeatureUpdate],
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> bytes:
    results: tuple[Any, ...] = ()
    if request.version < 2:
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
        throttle_time=_ZERO,
        error_code=error,
        error_message=message and message[:_MESSAGE_LENGTH_MAX],
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
