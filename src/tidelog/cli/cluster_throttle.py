"""A throttle on the copying of moving replicas, by Kafka's four settings (KIP-73).

Topics list the throttled replicas: on the leaders' and on the followers' side. Brokers have the rates.

**Invariant:** the throttle is set before anything moves. It is removed only if a topic still has it, so that
rates set for other reasons stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.cli.cluster_moves import Move
from tidelog.cli.cluster_partitions import Picture
from tidelog.cli.failure import Failure
from tidelog.cli.remote import open_any
from tidelog.cli.settings import KINDS, Change, Operation, Resource, change_settings
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"
_ALL = "*"


def set_throttle(bootstrap_server: str, picture: Picture, moves: Collection[Move], rate: int) -> None:
    """Throttle the moves to that many bytes per second and broker, in addition to replicas already
    throttled."""
    involved = {broker for move in moves for broker in (*move.before, *move.after)}
    rates = [Change(key, Operation.SET, str(rate)) for key in _RATES]
    for broker in sorted(involved & picture.live):
        change_settings(bootstrap_server, Resource("broker", str(broker)), rates, dry_run=False)
    topics = sorted({move.topic for move in moves})
    present = _throttled(bootstrap_server, topics)
    for topic in topics:
        mine = [move for move in moves if move.topic == topic]
        replicas = {
            _LEADERS: _words((move.number, move.before) for move in mine),
            _FOLLOWERS: _words((move.number, move.adding) for move in mine),
        }
        changes = [
            Change(key, Operation.APPEND, words)
            for key, words in replicas.items()
            if present.get(topic, {}).get(key) != _ALL
        ]
        if changes:
            change_settings(bootstrap_server, Resource("topic", topic), changes, dry_run=False)


def clear_throttle(bootstrap_server: str, picture: Picture, topics: Collection[str]) -> bool:
    """Remove the throttle from these topics and from all brokers; False if there was none."""
    throttled = _throttled(bootstrap_server, sorted(topics))
    if not throttled:
        return False
    keys = [Change(key, Operation.DELETE) for key in (_LEADERS, _FOLLOWERS)]
    for topic in throttled:
        change_settings(bootstrap_server, Resource("topic", topic), keys, dry_run=False)
    rates = [Change(key, Operation.DELETE) for key in _RATES]
    for broker in sorted(picture.live):
        try:
            change_settings(bootstrap_server, Resource("broker", str(broker)), rates, dry_run=False)
        except Failure as failure:
            unset = " ".join(f"--unset {key}" for key in _RATES)
            raise Failure(
                f"{failure}; its throttle remains; remove it with: tidelog config set broker/{broker} {unset}"
            ) from None
    return True


def _words(replicas: Iterable[tuple[int, Iterable[int]]]) -> str:
    return ",".join(f"{number}:{broker}" for number, brokers in replicas for broker in brokers)


def _throttled(bootstrap_server: str, topics: list[str]) -> dict[str, dict[str, str]]:
    """The throttled replicas of those topics that have any."""
    if not topics:
        return {}
    with open_any(bootstrap_server) as broker:
        kind = broker.types(apis.DESCRIBE_CONFIGS).DescribeConfigsResource
        keys = (_LEADERS, _FOLLOWERS)
        wanted = tuple(
            make(kind, resource_type=KINDS["topic"], resource_name=topic, configuration_keys=keys)
            for topic in topics
        )
        answer = broker.ask(
            apis.DESCRIBE_CONFIGS, resources=wanted, include_synonyms=False, include_documentation=False
        )
    settings = {
        str(result.resource_name): {found.name: found.value for found in result.configs if found.value}
        for result in answer.results
        if result.error_code is ErrorCode.none
    }
    return {topic: found for topic, found in settings.items() if found}
