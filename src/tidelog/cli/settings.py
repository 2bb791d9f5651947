"""Settings of topics, brokers, groups and client-metrics, read from a broker and changed there.

A resource is written `kind/name`: `topic/orders`, `broker/1`, `broker/default` (every broker of the
cluster that has no value of its own), `group/billing`, `client-metrics/all-producers`.

**Invariant:** a broker's own settings are asked of that broker; it alone knows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.nodes import address_of
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

DEFAULT_BROKER = "default"
KINDS = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
_CHANGE = re.compile(r"([^=+\s][^=\s]*?)([+-]?)=(.*)", re.DOTALL)
_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
# By Kafka's number: the name in JSON, and the text for people.
_SOURCES = {
    1: ("dynamic_topic_config", "topic"),
    2: ("dynamic_broker_config", "broker"),
    3: ("dynamic_default_broker_config", "broker/default"),
    4: ("static_broker_config", "start-up"),
    5: ("default_config", "default"),
    6: ("dynamic_broker_logger_config", "logger"),
    7: ("dynamic_client_metrics_config", "client-metrics"),
    8: ("dynamic_group_config", "group"),
}
_DEFAULT_SOURCE = 5
_NO_EFFECT = "Has no effect"  # the documentation of a setting that a Tidelog broker accepts without effect


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that has settings."""

    kind: str
    name: str

    @property
    def type(self) -> int:
        return KINDS[self.kind]

    @property
    def wire_name(self) -> str:
        return "" if self.is_default_broker else self.name

    @property
    def is_default_broker(self) -> bool:
        return self.kind == "broker" and self.name == DEFAULT_BROKER

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the places a value may come from."""

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as the broker reports it; `default` is None if the broker does not report it."""

    key: str
    value: str | None
    source: str
    source_words: str
    default: str | None
    type: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    has_effect: bool
    synonyms: tuple[Synonym, ...]
    documentation: str


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    operation: Operation
    value: str | None = None


def parse_resource(word: str) -> Resource:
    """`kind/name`; for brokers the name is a number or `default`."""
    kind, separator, name = word.partition("/")
    if not separator or not name or kind not in KINDS:
        raise BadWord(
            f"{word}: not a resource; write topic/NAME, broker/ID, broker/{DEFAULT_BROKER}, "
            "group/NAME or client-metrics/NAME"
        )
    if kind == "broker" and name != DEFAULT_BROKER and not (name.isascii() and name.isdigit()):
        raise BadWord(f"{word}: not a broker; write broker/ID with a number, or broker/{DEFAULT_BROKER}")
    return Resource(kind, name)


def parse_change(word: str, option: str = "") -> Change:
    """`key=value`; for a list, `key+=value` adds and `key-=value` removes."""
    matched = _CHANGE.fullmatch(word)
    if matched is None:
        raise BadWord(f"{option}{word}: not a setting; write {option}key=value")
    operation = {"": Operation.SET, "+": Operation.APPEND, "-": Operation.SUBTRACT}[matched[2]]
    return Change(matched[1], operation, matched[3])


def parse_changes(words: Iterable[str], unset: Iterable[str], option: str = "") -> list[Change]:
    """All changes on a command line; each key once."""
    changes = [parse_change(word, option) for word in words]
    changes += [Change(key, Operation.DELETE) for key in unset]
    seen: set[str] = set()
    for change in changes:
        if change.operation is Operation.DELETE and "=" in change.key:
            raise BadWord(f"--unset {change.key}: name the key only, without a value")
        if change.key in seen:
            raise BadWord(f"{change.key}: named twice; one change for each key")
        seen.add(change.key)
    return changes


def read_settings(bootstrap_server: str, resource: Resource, keys: list[str] | None = None) -> list[Setting]:
    """The settings of a resource, all of them or those named, in the order of their keys."""
    with _open_for(bootstrap_server, resource) as broker:
        types = broker.types(apis.DESCRIBE_CONFIGS)
        wanted = make(
            types.DescribeConfigsResource,
            resource_type=resource.type,
            resource_name=resource.wire_name,
            configuration_keys=None if keys is None else tuple(keys),
        )
        answer = broker.ask(
            apis.DESCRIBE_CONFIGS,
            resources=(wanted,),
            include_synonyms=True,
            include_documentation=True,
        )
    (result,) = answer.results
    _check(resource, result.error_code, result.error_message)
    return sorted((_setting(found) for found in result.configs), key=lambda setting: setting.key)


def change_settings(bootstrap_server: str, resource: Resource, changes: list[Change], dry_run: bool) -> None:
    """Make all of the changes, or none; with `dry_run` the broker only checks them."""
    with _open_for(bootstrap_server, resource) as broker:
        types = broker.types(apis.INCREMENTAL_ALTER_CONFIGS)
        configs = tuple(
            make(
                types.AlterableConfig,
                name=change.key,
                config_operation=int(change.operation),
                value=change.value,
            )
            for change in changes
        )
        altered = make(
            types.AlterConfigsResource,
            resource_type=resource.type,
            resource_name=resource.wire_name,
            configs=configs,
        )
        answer = broker.ask(apis.INCREMENTAL_ALTER_CONFIGS, resources=(altered,), validate_only=dry_run)
    (result,) = answer.responses
    _check(resource, result.error_code, result.error_message)


def list_resources(bootstrap_server: str) -> list[Resource]:
    """Every resource of the cluster that can have settings."""
    kinds = {number: kind for kind, number in KINDS.items()}
    with open_any(bootstrap_server) as broker:
        answer = broker.ask(apis.LIST_CONFIG_RESOURCES, resource_types=tuple(sorted(kinds)))
    check("the list of resources", answer.error_code, None)
    found = [
        Resource(kinds[listed.resource_type], listed.resource_name or DEFAULT_BROKER)
        for listed in answer.config_resources
        if listed.resource_type in kinds
    ]
    return sorted(found, key=str)


def _check(resource: Resource, error_code: ErrorCode, message: str | None) -> None:
    if resource.kind == "topic" and error_code is ErrorCode.unknown_topic_or_partition:
        raise Failure(f"topic {resource.name!r} does not exist; see 'tidelog topic list'")
    check(str(resource), error_code, message)


def _open_for(bootstrap_server: str, resource: Resource) -> RemoteBroker:
    if resource.kind == "broker" and not resource.is_default_broker:
        return RemoteBroker(address_of(bootstrap_server, int(resource.name)))
    return open_any(bootstrap_server)


def _setting(found: Any) -> Setting:
    synonyms = tuple(
        Synonym(synonym.name, synonym.value, _source(synonym.source)[0]) for synonym in found.synonyms
    )
    source, source_words = _source(found.config_source)
    is_default = found.config_source == _DEFAULT_SOURCE
    defaults = [synonym.value for synonym in synonyms if synonym.source == _SOURCES[_DEFAULT_SOURCE][0]]
    documentation = getattr(found, "documentation", None) or ""
    type_index = getattr(found, "config_type", 0)
    return Setting(
        key=found.name,
        value=found.value,
        source=source,
        source_words=source_words,
        default=found.value if is_default else defaults[-1] if defaults else None,
        type=_TYPES[type_index] if type_index < len(_TYPES) else "unknown",
        is_default=is_default,
        is_read_only=found.read_only,
        is_sensitive=found.is_sensitive,
        has_effect=_NO_EFFECT not in documentation,
        synonyms=synonyms,
        documentation=documentation,
    )


def _source(number: int) -> tuple[str, str]:
    return _SOURCES.get(number, (f"source_{number}", f"source {number}"))
