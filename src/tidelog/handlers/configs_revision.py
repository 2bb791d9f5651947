"""What a resource's settings would be after a change, and whether they may stand: no store and no answers.

**Invariant:** what is to be kept was parsed, key by key and as a whole; a change is looked at once, whatever
its size.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tidelog.base.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    broker_setting,
    check_group_settings,
    check_topic_settings,
    check_within_bounds,
    is_of_listener,
)
from tidelog.base.setting import (
    Change,
    InvalidSetting,
    Kind,
    OutOfBounds,
    Setting,
    UnknownSetting,
    nearest_name,
)
from tidelog.broker.subscriptions import parse_match
from tidelog.handlers.configs_resources import Resource
from tidelog.protocol.errors import ErrorCode, Problem

Config = dict[str, str]
ROWS: dict[int, dict[str, Setting]] = {
    Resource.TOPIC: TOPIC_SETTINGS,
    Resource.BROKER: BROKER_SETTINGS,
    Resource.GROUP: GROUP_SETTINGS,
    Resource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


class Operator(IntEnum):
    """What is done to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def apply_operations(resource: Any, present: Config) -> Config | Problem:
    """The present settings with the operations done to them."""
    rows = ROWS[resource.resource_type]
    for entry in resource.configs:
        operator, name = entry.config_operation, entry.name
        if operator == Operator.SET:
            present[name] = entry.value
        elif operator == Operator.DELETE:
            present.pop(name, None)
        elif operator not in (Operator.APPEND, Operator.SUBTRACT):
            return Problem(ErrorCode.invalid_request, f"Unknown operations type {operator}")
        else:
            row = rows.get(name)
            if row is None or row.kind is not Kind.LIST or resource.resource_type == Resource.CLIENT_METRICS:
                verb = Operator(operator).name
                reason = f"Can't {verb} to key {name} because its type is not LIST."
                return Problem(ErrorCode.invalid_config, reason)
            before = present.get(name, row.format(row.default) or "")
            present[name] = _edit_list(before, operator, entry.value)
    return present


def _edit_list(text: str, operator: int, operand: str) -> str:
    words = [word for word in text.split(",") if word]
    operands = dict.fromkeys(word for word in operand.split(",") if word)
    if operator == Operator.SUBTRACT:
        return ",".join(word for word in words if word not in operands)
    known = {*words}
    return ",".join([*words, *(word for word in operands if word not in known)])


def to_be_kept(config: Config) -> Config:
    """A broker's settings but those of single listeners and passwords, which are taken and do nothing: a
    secret that nobody needs is stored nowhere."""
    return {key: text for key, text in config.items() if not (is_of_listener(key) or _is_secret(key))}


def _is_secret(key: str) -> bool:
    row = BROKER_SETTINGS.get(key)
    return row is not None and row.is_secret and not row.has_effect


def values_problem(
    settings: BrokerSettings, kind: int, is_one_broker: bool, config: Config
) -> Problem | None:
    """The error for settings that cannot stand, by the code that Kafka has for each kind of resource."""
    try:
        if kind == Resource.TOPIC:
            check_topic_settings(config)
        elif kind == Resource.BROKER:
            _check_broker(config, is_one_broker)
            check_within_bounds(settings, config, "group.")
        else:
            _check_rows(ROWS[kind], config)
            if kind == Resource.CLIENT_METRICS:
                parse_match([word for word in config.get("match", "").split(",") if word])
            elif kind == Resource.GROUP:
                check_group_settings(settings, config)
    except (UnknownSetting, OutOfBounds) as problem:
        is_strict = kind in (Resource.BROKER, Resource.CLIENT_METRICS)
        return Problem(ErrorCode.invalid_request if is_strict else ErrorCode.invalid_config, str(problem))
    except InvalidSetting as problem:
        return Problem(
            ErrorCode.invalid_request if kind == Resource.BROKER else ErrorCode.invalid_config, str(problem)
        )
    return None


def _check_broker(config: Config, is_one_broker: bool) -> None:
    for key, text in config.items():
        row = broker_setting(key)
        if (row is None or row.change is Change.PER_BROKER) and not is_one_broker:
            raise InvalidSetting(f"{key}: a setting of each broker; name a broker id")
        if row is not None and not row.is_dynamic:
            raise InvalidSetting(
                f"{key}: read only at the start; change it in the broker's own settings and restart it"
            )
        if row is not None:
            row.parse(text)


def _check_rows(rows: dict[str, Setting], config: Config) -> None:
    for key, text in config.items():
        row = rows.get(key)
        if row is None:
            raise UnknownSetting(f"{key}: no such setting{nearest_name(key, rows)}")
        row.parse(text)
