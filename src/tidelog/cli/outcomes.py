"""Results of changes to several things: all are awaited, some succeed, some fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tidelog.base.config import TOPIC_SETTINGS
from tidelog.base.setting import similar_name
from tidelog.cli.connection import explain
from tidelog.cli.failure import BadWord, Failure, raise_failures

_Name = TypeVar("_Name")

_UNKNOWN_SETTING = re.compile(r"Unknown topic config name: (\S+)")
_WRONG_WORDS = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.TOPIC_EXCEPTION,
)


def await_all(
    futures: Mapping[_Name, Future[Any]], explain_one: Callable[[_Name, KafkaException], Failure]
) -> tuple[dict[_Name, Any], dict[_Name, Failure]]:
    """The results of the successful changes, and the failures."""
    done: dict[_Name, Any] = {}
    failed: dict[_Name, Failure] = {}
    for name, future in futures.items():
        try:
            done[name] = future.result()
        except KafkaException as error:
            failed[name] = explain_one(name, error)
    return done, failed


def await_topics(futures: Mapping[str, Future[None]], bootstrap_server: str) -> None:
    """Wait for all; raise the failures."""
    _, failed = await_all(futures, lambda name, error: explain_topic(name, error, bootstrap_server))
    raise_failures(list(failed.values()))


def failed_json(noun: str, failed: Mapping[str, Failure]) -> list[dict[str, str]]:
    """The failures for JSON output."""
    return [{noun: name, "error": str(failure)} for name, failure in failed.items()]


def _meant(message: str) -> str:
    """A suggestion for an unknown setting, if the broker's message has none."""
    found = _UNKNOWN_SETTING.search(message)
    return similar_name(found[1], TOPIC_SETTINGS) if found and "did you mean" not in message else ""


def explain_topic(name: str, error: KafkaException, bootstrap_server: str) -> Failure:
    """The failure for a client's exception about one topic."""
    cause: KafkaError = error.args[0]
    code = cause.code()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return Failure(f"topic {name!r} does not exist; see 'tidelog topic list'")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return Failure(f"topic {name!r} already exists")
    if code == KafkaError.POLICY_VIOLATION:
        return Failure(f"topic {name!r}: a policy forbids it ({cause.str()}); see 'tidelog config describe'")
    if code in _WRONG_WORDS:
        return BadWord(f"topic {name!r}: {cause.str().rstrip('.')}{_meant(cause.str())}")
    return Failure(f"topic {name!r}: {explain(error, bootstrap_server)}")
