"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import build, parts, request
from tests.differential.world import COMPACTED, ORDERS, ZIPPED

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_TYPES = (0, 1, 3, 5, 99, -1)
DESCRIBE_CONFIGS, DESCRIBE_VERSION = 32, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe_configs(case: Case) -> None:
    def ask(scenario: str, *asked: tuple[int, str, tuple[str, ...] | None], **values: Any) -> None:
        resources = tuple(
            case.make(
                "DescribeConfigsResource", resource_type=kind, resource_name=name, configuration_keys=keys
            )
            for kind, name, keys in asked
        )
        case.ask(scenario, resources=resources, **values)

    for name in (ORDERS, COMPACTED, ZIPPED):
        ask(f"topic {name}", (TOPIC, name, None))
        ask(f"topic {name} with synonyms", (TOPIC, name, None), include_synonyms=True)
    ask("documentation", (TOPIC, ORDERS, ("retention.ms",)), include_documentation=True)
    ask("no keys of a topic", (TOPIC, ORDERS, ()))
    ask("an unknown key", (TOPIC, ORDERS, ("no.such.setting", "retention.ms")))
    ask("an empty key", (TOPIC, ORDERS, ("",)))
    ask("the same key twice", (TOPIC, ORDERS, ("retention.ms", "retention.ms")))
    for name in ("absent", "a b", "", "__consumer_offsets_"):
        ask(f"topic {name!r}", (TOPIC, name, None))
    for name in ("1", "", "2", "-1", "one", "01", " 1"):
        ask(f"broker {name!r}", (BROKER, name, None))
        ask(f"broker {name!r} with synonyms", (BROKER, name, None), include_synonyms=True)
    for kind, what in ((METRICS, "metrics"), (GROUP, "group"), (LOGGER, "logger")):
        for name in ("absent", "", "1", "2", "a b"):
            ask(f"{what} {name!r}", (kind, name, None))
    for kind in UNKNOWN_TYPES:
        ask(f"type {kind}", (kind, "x", None))
        ask(f"type {kind} beside a topic", (TOPIC, ORDERS, ("retention.ms",)), (kind, "x", None))
    ask("a topic twice", (TOPIC, ORDERS, ("retention.ms",)), (TOPIC, ORDERS, ("segment.ms",)))
    ask("two topics", (TOPIC, ORDERS, ("retention.ms",)), (TOPIC, "absent", None))
    ask("nothing")


TOPIC_CHANGES: tuple[tuple[str, str | None], ...] = (
    ("retention.ms", "1000"),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", None),
    ("no.such.setting", "1"),
    ("no.such.setting", None),
    ("", "1"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "burn"),
    ("cleanup.policy", ""),
    ("num.partitions", "2"),
    ("remote.storage.enable", "true"),
)
BROKER_CHANGES: tuple[tuple[str, str | None], ...] = (
    ("log.retention.ms", "7000000"),
    ("log.retention.ms", "soon"),
    ("node.id", "7"),
    ("log.dirs", "/x"),
    ("no.such.setting", "1"),
    ("num.io.threads", "4"),
    ("num.io.threads", "0"),
    ("message.max.bytes", "1000000"),
    ("min.insync.replicas", "2"),
    ("log.cleaner.threads", "1"),
)
GROUP_CHANGES = {
    "consumer.session.timeout.ms": ("45000", "44999", "60000", "60001", "0", "x"),
    "consumer.heartbeat.interval.ms": ("5000", "4999", "15000", "15001", "0", ""),
    "consumer.assignment.interval.ms": ("0", "-1", "15000", "15001"),
}
RESOURCES: tuple[tuple[int, str], ...] = (
    (TOPIC, "absent"),
    (TOPIC, "a b"),
    (TOPIC, ""),
    (BROKER, "2"),
    (BROKER, "-1"),
    (BROKER, "one"),
    (METRICS, ""),
    (GROUP, ""),
    (LOGGER, "2"),
    *((kind, "x") for kind in UNKNOWN_TYPES),
)


class Alteration:
    """What is said of one resource, in either of the two calls."""

    def __init__(self, case: Case, operation: int | None) -> None:
        self._case = case
        self.operation = operation

    def resource(self, kind: int, name: str, *changes: tuple[str, str | None], operation: int = SET) -> Any:
        configs = tuple(
            self._case.make("AlterableConfig", name=key, value=value, config_operation=operation)
            for key, value in changes
        )
        return self._case.make(
            "AlterConfigsResource", resource_type=kind, resource_name=name, configs=configs
        )

    def ask(self, scenario: str, *resources: Any, validate_only: bool = True) -> None:
        self._case.ask(scenario, resources=resources, validate_only=validate_only)

    def described(self, scenario: str, kind: int, name: str) -> None:
        """What the change led to."""
        part = parts(DESCRIBE_CONFIGS, DESCRIBE_VERSION).DescribeConfigsResource
        resource = build(part, resource_type=kind, resource_name=name, configuration_keys=None)
        entity = request(DESCRIBE_CONFIGS, DESCRIBE_VERSION, resources=(resource,), include_synonyms=True)
        self._case.pair.ask_until_same(scenario, DESCRIBE_CONFIGS, DESCRIBE_VERSION, entity)


def alter_configs(case: Case) -> None:
    own = case.pair.create_topic(case.fresh("altered"), flush_ms="1000")
    say = Alteration(case, None)
    _either_way(say, own)
    say.ask("set", say.resource(TOPIC, own, ("retention.ms", "1000")), validate_only=False)
    say.described("after a set, which unsets the rest", TOPIC, own)
    say.ask("unset all", say.resource(TOPIC, own), validate_only=False)
    say.described("after all was unset", TOPIC, own)


def incremental_alter_configs(case: Case) -> None:
    own = case.pair.create_topic(case.fresh("changed"), flush_ms="1000")
    say = Alteration(case, SET)
    _either_way(say, own)
    for operation in (DELETE, APPEND, SUBTRACT):
        for key, value in (
            ("retention.ms", "1000"),
            ("retention.ms", None),
            ("flush.ms", None),
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "delete"),
            ("cleanup.policy", "burn"),
            ("cleanup.policy", None),
            ("no.such.setting", "1"),
            ("follower.replication.throttled.replicas", "0:1"),
        ):
            changed = say.resource(TOPIC, own, (key, value), operation=operation)
            say.ask(f"operation {operation} of {key} by {value}", changed)
    if case.version >= 1:  # Kafka's controller falls over such a request, and is gone for seconds
        say.ask("operation 4", say.resource(TOPIC, own, ("retention.ms", "1"), operation=4))
    for operation, key, value in (
        (SET, "retention.ms", "1000"),
        (APPEND, "cleanup.policy", "compact"),
        (APPEND, "cleanup.policy", "compact"),
        (SUBTRACT, "cleanup.policy", "delete"),
        (DELETE, "flush.ms", None),
        (DELETE, "flush.ms", None),
        (SUBTRACT, "cleanup.policy", "compact"),
    ):
        changed = say.resource(TOPIC, own, (key, value), operation=operation)
        say.ask(f"operation {operation} of {key}, for good", changed, validate_only=False)
        say.described(f"after operation {operation} of {key}", TOPIC, own)
    for kind, name, key in (
        (METRICS, case.fresh(), "interval.ms"),
        (GROUP, case.fresh(), "share.heartbeat.interval.ms"),
    ):
        for value in ("6000", "-5", "x"):
            say.ask(f"{key}={value}", say.resource(kind, name, (key, value)))
        say.ask(f"{key}=1", say.resource(kind, name, ("no.such.setting", "1")))
    _groups(say, case.fresh())
    _brokers(say)


def _either_way(say: Alteration, own: str) -> None:
    for key, value in TOPIC_CHANGES:
        say.ask(f"topic {key}={value}", say.resource(TOPIC, own, (key, value)))
    for key, value in BROKER_CHANGES:
        for name in ("1", ""):
            say.ask(f"broker {name!r} {key}={value}", say.resource(BROKER, name, (key, value)))
    for kind, name in RESOURCES:
        say.ask(f"type {kind} {name!r}", say.resource(kind, name, ("retention.ms", "1")))
        say.ask(f"type {kind} {name!r}, nothing", say.resource(kind, name))
    twice = say.resource(TOPIC, own, ("retention.ms", "1"))
    if say.operation is not None:  # Kafka never answers the other call
        say.ask("a resource twice", twice, twice)
    say.ask("a setting twice", say.resource(TOPIC, own, ("retention.ms", "1"), ("retention.ms", "2")))
    say.ask("good and bad", twice, say.resource(TOPIC, "absent", ("retention.ms", "1")))
    say.ask("nothing")


def _groups(say: Alteration, group: str) -> None:
    """What a group and what a broker may say of consumer groups, and what is beyond the broker's bounds."""
    for key, values in GROUP_CHANGES.items():
        for value in values:
            say.ask(f"group {key}={value}", say.resource(GROUP, group, (key, value)))
            say.ask(f"broker group.{key}={value}", say.resource(BROKER, "1", (f"group.{key}", value)))
    both = (("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "15000"))
    say.ask("group, for good", say.resource(GROUP, group, *both), validate_only=False)
    say.described("group after a change", GROUP, group)


def _brokers(say: Alteration) -> None:
    """Changes for good, and back."""
    for name in ("1", ""):
        changed = say.resource(BROKER, name, ("log.retention.ms", "7000000"))
        say.ask(f"broker {name!r}, for good", changed, validate_only=False)
        say.described(f"broker {name!r} after a change", BROKER, "1")
        say.described(f"broker {name!r} after a change, the default", BROKER, "")
        back = say.resource(BROKER, name, ("log.retention.ms", None), operation=DELETE)
        say.ask(f"broker {name!r}, back", back, validate_only=False)
        say.described(f"broker {name!r} after it is back", BROKER, "1")


def list_config_resources(case: Case) -> None:
    case.ask("all", resource_types=())
    if case.version >= 1:
        for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP, *UNKNOWN_TYPES):
            case.ask(f"of type {kind}", resource_types=(kind,))
        case.ask("of two types", resource_types=(METRICS, GROUP))
        case.ask("of a type twice", resource_types=(METRICS, METRICS))
