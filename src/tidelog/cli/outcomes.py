"""What came of changes to topics: all are awaited, and what failed is one line."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException

from tidelog.cli.connection import explain
from tidelog.cli.failure import BadWord, Failure

_WRONG_WORDS = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.TOPIC_EXCEPTION,
)


def await_topics(futures: Mapping[str, Future[None]], bootstrap_server: str) -> None:
    """Wait for all; what failed is named in one line, what succeeded stays done."""
    failures: list[Failure] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            failures.append(explain_topic(name, error, bootstrap_server))
    if failures:
        kind = BadWord if any(isinstance(failure, BadWord) for failure in failures) else Failure
        raise kind("; ".join(str(failure) for failure in failures))


def explain_topic(name: str, error: KafkaException, bootstrap_server: str) -> Failure:
    """The failure that a client's exception about one topic means."""
    cause: KafkaError = error.args[0]
    code = cause.code()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return Failure(f"topic {name!r} does not exist; see 'tidelog topic list'")
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return Failure(f"topic {name!r} already exists")
    if code == KafkaError.POLICY_VIOLATION:
        return Failure(f"topic {name!r}: a policy forbids it ({cause.str()}); see 'tidelog config describe'")
    if code in _WRONG_WORDS:
        return BadWord(f"topic {name!r}: {cause.str().rstrip('.')}")
    return Failure(f"topic {name!r}: {explain(error, bootstrap_server)}")
