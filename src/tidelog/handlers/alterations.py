"""AlterConfigs and IncrementalAlterConfigs: settings changed while the broker runs.

A resource's new settings are worked out from its present ones, checked as a whole, written to the store
if nobody was faster, and in force before the client hears of it.

**Invariant:** of one resource, all that was asked for is changed or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from tidelog.base.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    broker_setting,
    check_topic_settings,
)
from tidelog.base.limits import CONFIG_RESOURCES_MAX
from tidelog.base.setting import (
    Change,
    InvalidSetting,
    Kind,
    OutOfBounds,
    Setting,
    UnknownSetting,
    nearest_name,
)
from tidelog.broker.broker import Broker
from tidelog.broker.subscriptions import parse_match
from tidelog.cluster.controller import decide_config, decide_topic_config
from tidelog.cluster.image import BROKER_CONFIG, CLIENT_METRICS_CONFIG, DEFAULT_BROKER, GROUP_CONFIG
from tidelog.cluster.store import Done, Operation, Outcome, Refused
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.names import name_problem
from tidelog.handlers.request import MESSAGE_LENGTH_MAX, NO_THROTTLE, Request, Result
from tidelog.handlers.resources import ROOT_LOGGER, Problem, Resource, node_problem
from tidelog.protocol.errors import ErrorCode

INCREMENTAL_ALTER_CONFIGS = 44
ALTER_WAIT_MS = 30_000
ATTEMPTS_MAX = 8
RESOURCE_NAME_LENGTH_MAX = 1_000
LOGGER_LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
_LATE = Problem(ErrorCode.request_timed_out, "The store has not answered in time.")
_FINE = Problem(ErrorCode.none, "")
_ROWS: dict[int, dict[str, Setting]] = {
    Resource.TOPIC: TOPIC_SETTINGS,
    Resource.BROKER: BROKER_SETTINGS,
    Resource.GROUP: GROUP_SETTINGS,
    Resource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
_KINDS = {
    Resource.BROKER: BROKER_CONFIG,
    Resource.CLIENT_METRICS: CLIENT_METRICS_CONFIG,
    Resource.GROUP: GROUP_CONFIG,
}


class Operator(IntEnum):
    """What is done to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Config = dict[str, str]
# From the present settings of a resource to those asked for.
Revision = Callable[[Config], Config | Problem]


def handle_incremental_alter_configs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: keys are set, deleted, appended to or subtracted from; the others stay.

    *Versions*: 1 is flexible.
    """

    def revision_of(resource: Any) -> Revision:
        return lambda present: _apply(resource, present)

    return _alter(broker, request, request.decode(), revision_of)


def handle_alter_configs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the keys given are all that the resource has set from now on.

    *Versions*: 2 is flexible.
    """

    def revision_of(resource: Any) -> Revision:
        return lambda present: {entry.name: entry.value for entry in resource.configs}

    return _alter(broker, request, request.decode(), revision_of)


def _alter(broker: Broker, request: Request, asked: Any, revision_of: Callable[[Any], Revision]) -> Result:
    resources = asked.resources
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)

    def answer(problems: list[Problem]) -> bytes:
        parts = tuple(
            _part(request, resource, problem) for resource, problem in zip(resources, problems, strict=True)
        )
        return request.respond(throttle_time=NO_THROTTLE, responses=parts)

    gathering = Gathering(broker, broker.uptime_ms + ALTER_WAIT_MS, len(resources), _LATE, answer)
    for place, resource in enumerate(resources):
        is_twice = counts[resource.resource_type, resource.resource_name] > 1
        problem = _repeated() if is_twice else _shape_problem(broker, request, resource)
        if problem is not None:
            gathering.put(place, problem)
        elif resource.resource_type == Resource.BROKER_LOGGER:
            gathering.put(place, _alter_logger(broker, resource, asked.validate_only))
        else:
            alteration = _Alteration(broker, resource, revision_of(resource), gathering, place)
            alteration.attempt(asked.validate_only)
    return gathering.result()


def _repeated() -> Problem:
    return Problem(ErrorCode.invalid_request, "Each resource must appear at most once.")


def _part(request: Request, resource: Any, problem: Problem) -> Any:
    name = "AlterConfigsResourceResponse"
    return request.make(
        name,
        error_code=problem.error,
        error_message=problem.message[:MESSAGE_LENGTH_MAX] or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _shape_problem(broker: Broker, request: Request, resource: Any) -> Problem | None:
    """What is wrong with a resource before any of its values is looked at."""
    keys = Counter(entry.name for entry in resource.configs)
    if any(count > 1 for count in keys.values()):
        return Problem(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [
        entry.name
        for entry in resource.configs
        if entry.value is None and getattr(entry, "config_operation", Operator.SET) != Operator.DELETE
    ]
    if nulls:
        return Problem(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    kind, name = resource.resource_type, resource.resource_name
    is_logger = kind == Resource.BROKER_LOGGER
    if kind not in _ROWS and not (is_logger and request.api_key == INCREMENTAL_ALTER_CONFIGS):
        return Problem(ErrorCode.invalid_request, f"Unknown resource type {kind}")
    if kind == Resource.BROKER and name:
        return node_problem(broker, name, "Node")
    return node_problem(broker, name, "Node") if is_logger else None


class _Alteration:
    """One resource on its way to the store, as often as somebody else is faster."""

    def __init__(
        self, broker: Broker, resource: Any, revise: Revision, gathering: Gathering[Problem], place: int
    ) -> None:
        self._broker = broker
        self._kind: int = resource.resource_type
        self._name: str = resource.resource_name
        self._revise = revise
        self._gathering = gathering
        self._place = place
        self._attempts_left = ATTEMPTS_MAX

    def attempt(self, validate_only: bool = False) -> None:
        decided = self._decide()
        if isinstance(decided, Problem):
            self._gathering.put(self._place, decided)
        elif validate_only or not decided:
            self._gathering.put(self._place, _FINE)
        else:
            self._attempts_left -= 1
            self._broker.change(decided, self._on_outcome)

    def _on_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and self._attempts_left:
            self.attempt()
        elif isinstance(outcome, Done):
            self._gathering.put(self._place, _FINE)
        else:
            lost = Problem(ErrorCode.request_timed_out, f"The store's answer was lost: {outcome}")
            self._gathering.put(self._place, lost)

    def _decide(self) -> list[Operation] | Problem:
        image = self._broker.image
        if self._kind == Resource.TOPIC:
            return self._decide_topic()
        name = self._name
        if self._kind == Resource.BROKER:
            name = str(self._broker.node_id) if name else DEFAULT_BROKER
        elif problem := self._name_problem():
            return problem
        kind = _KINDS[Resource(self._kind)]
        present = image.configs[kind].get(name, {})
        config = self._revise(dict(present))
        if isinstance(config, Problem):
            return config
        problem = _values_problem(self._kind, bool(self._name), config)
        return problem or (decide_config(image, kind, name, config) if config != present else [])

    def _name_problem(self) -> Problem | None:
        """Groups and client metrics have names of their own, and anybody can make one up."""
        if not self._name:
            return Problem(ErrorCode.invalid_request, "The name of the resource is empty.")
        known = self._broker.image.configs[_KINDS[Resource(self._kind)]]
        if len(self._name) > RESOURCE_NAME_LENGTH_MAX or (
            self._name not in known and len(known) >= CONFIG_RESOURCES_MAX
        ):
            limit = f"{CONFIG_RESOURCES_MAX} names of up to {RESOURCE_NAME_LENGTH_MAX} characters are kept."
            return Problem(ErrorCode.policy_violation, limit)
        return None

    def _decide_topic(self) -> list[Operation] | Problem:
        if not self._name:
            return Problem(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        wrong = name_problem(self._name)
        if wrong is not None:
            return Problem(ErrorCode.invalid_topic_exception, wrong)
        topic = self._broker.image.topics.get(self._name)
        config = self._revise(dict(topic.config) if topic else {})
        problem = config if isinstance(config, Problem) else _values_problem(self._kind, True, config)
        if problem is not None:
            return problem
        assert not isinstance(config, Problem)
        if topic is None:
            return Problem(ErrorCode.unknown_topic_or_partition, f"The topic '{self._name}' does not exist.")
        return decide_topic_config(topic, config) if config != topic.config else []


def _apply(resource: Any, present: Config) -> Config | Problem:
    """The present settings with the operations done to them."""
    rows = _ROWS[resource.resource_type]
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
            present[name] = _edit_list(
                present.get(name, row.format(row.default) or ""), operator, entry.value
            )
    return present


def _edit_list(text: str, operator: int, operand: str) -> str:
    words = [word for word in text.split(",") if word]
    for word in operand.split(","):
        if operator == Operator.SUBTRACT:
            words = [kept for kept in words if kept != word]
        elif word not in words:
            words.append(word)
    return ",".join(words)


def _values_problem(kind: int, is_one_broker: bool, config: Config) -> Problem | None:
    """The error for settings that cannot stand, by the code that Kafka has for each kind of resource."""
    try:
        if kind == Resource.TOPIC:
            check_topic_settings(config)
        elif kind == Resource.BROKER:
            _check_broker(config, is_one_broker)
        else:
            _check_rows(_ROWS[kind], config)
            if kind == Resource.CLIENT_METRICS:
                parse_match([word for word in config.get("match", "").split(",") if word])
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
        if row is None:
            continue
        if row.change is Change.NEVER:
            raise InvalidSetting(f"{key}: read when the broker starts; change it there and restart")
        if row.change is Change.PER_BROKER and not is_one_broker:
            raise InvalidSetting(f"{key}: each broker has its own; name one")
        row.parse(text)


def _check_rows(rows: dict[str, Setting], config: Config) -> None:
    for key, text in config.items():
        row = rows.get(key)
        if row is None:
            raise UnknownSetting(f"{key}: no such setting{nearest_name(key, rows)}")
        row.parse(text)


def _alter_logger(broker: Broker, resource: Any, validate_only: bool) -> Problem:
    """The level of the one logger there is; it holds until the broker stops."""
    for entry in resource.configs:
        operator, name = entry.config_operation, entry.name
        if operator not in (Operator.SET, Operator.DELETE):
            verb = Operator(operator).name if operator in tuple(Operator) else operator
            reason = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
            return Problem(ErrorCode.invalid_request, reason)
        if name != ROOT_LOGGER:
            return Problem(ErrorCode.invalid_config, f"Logger {name} does not exist!")
        if operator == Operator.DELETE:
            reason = "Removing the log level of the root logger is not allowed"
            return Problem(ErrorCode.invalid_request, reason)
        if entry.value not in LOGGER_LEVELS:
            reason = f"{entry.value} is not a log level; there are {', '.join(LOGGER_LEVELS)}"
            return Problem(ErrorCode.invalid_config, reason)
        if not validate_only:
            broker.logger_override = entry.value
    return _FINE
