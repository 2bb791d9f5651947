"""AlterConfigs and IncrementalAlterConfigs: settings changed while the broker runs.

A resource's new settings are worked out from its present ones, checked as a whole, written to the store
if nobody was faster, and in force before the client hears of it.

**Invariant:** of one resource, all that was asked for is changed or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.base.limits import (
    ALTER_WAIT_MS,
    CONFIG_RESOURCES_CHANGED_MAX,
    CONFIG_RESOURCES_MAX,
    MESSAGE_LENGTH_MAX,
    RESOURCE_NAME_LENGTH_MAX,
    SETTINGS_CHANGED_MAX,
)
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.controller import decide_config, decide_topic_config
from tidelog.cluster.paths import BROKER_CONFIG, CLIENT_METRICS_CONFIG, DEFAULT_BROKER, GROUP_CONFIG
from tidelog.cluster.store import Operation, Outcome
from tidelog.handlers.configs_resources import ROOT_LOGGER, Resource, node_problem
from tidelog.handlers.configs_revision import (
    ROWS,
    Config,
    Operator,
    apply_operations,
    to_be_kept,
    values_problem,
)
from tidelog.handlers.names import name_problem
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE, change_store, problem_of
from tidelog.protocol.apis import INCREMENTAL_ALTER_CONFIGS
from tidelog.protocol.errors import ErrorCode, Problem

LOGGER_LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
_REPEATED = Problem(ErrorCode.invalid_request, "Each resource must appear at most once.")
_CROWDED = Problem(
    ErrorCode.policy_violation,
    f"{CONFIG_RESOURCES_MAX} names of up to {RESOURCE_NAME_LENGTH_MAX} characters are kept, "
    f"and {CONFIG_RESOURCES_CHANGED_MAX} changed by one request.",
)
_KINDS = {
    Resource.BROKER: BROKER_CONFIG,
    Resource.CLIENT_METRICS: CLIENT_METRICS_CONFIG,
    Resource.GROUP: GROUP_CONFIG,
}

# From the present settings of a resource to those asked for.
Revision = Callable[[Config], Config | Problem]


def handle_incremental_alter_configs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: keys are set, deleted, appended to or subtracted from; the others stay.

    *Versions*: 1 is flexible.
    """

    def revision_of(resource: Any) -> Revision:
        return lambda present: apply_operations(resource, present)

    return _alter(broker, request, request.decode(), revision_of)


def handle_alter_configs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the keys given are all that the resource has set from now on.

    *Versions*: 2 is flexible.
    """

    def revision_of(resource: Any) -> Revision:
        return lambda present: {entry.name: entry.value for entry in resource.configs}

    return _alter(broker, request, request.decode(), revision_of)


def is_of_loggers(request: Request) -> bool:
    """Whether a request is about the levels of a broker's own log, which nobody else can set."""
    return any(each.resource_type == Resource.BROKER_LOGGER for each in request.decode().resources)


def _alter(broker: Broker, request: Request, asked: Any, revision_of: Callable[[Any], Revision]) -> Result:
    resources = asked.resources
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)

    def answer(problems: list[Problem]) -> bytes:
        parts = tuple(
            _part(request, resource, problem) for resource, problem in zip(resources, problems, strict=True)
        )
        return request.respond(responses=parts)

    crowded = {*_crowded_places(broker, resources)}
    changes: list[_Alteration | Problem] = []
    for place, resource in enumerate(resources):
        if counts[resource.resource_type, resource.resource_name] > 1:
            problem: Problem | None = _REPEATED
        else:
            problem = _CROWDED if place in crowded else _shape_problem(broker, request, resource)
        if problem is not None:
            changes.append(problem)
        elif resource.resource_type == Resource.BROKER_LOGGER:
            changes.append(_alter_logger(broker, resource, asked.validate_only))
        else:
            changes.append(_Alteration(broker, resource, revision_of(resource), asked.validate_only))
    return change_store(broker, broker.clock.uptime_ms + ALTER_WAIT_MS, changes, LATE, answer)


def _crowded_places(broker: Broker, resources: Sequence[Any]) -> list[int]:
    """Groups and client metrics that this request is too much for: anybody can make up their names."""
    crowded: list[int] = []
    for kind in (Resource.GROUP, Resource.CLIENT_METRICS):
        known = broker.image.configs[_KINDS[kind]]
        places = [place for place, resource in enumerate(resources) if resource.resource_type == kind]
        new = [place for place in places if resources[place].resource_name not in known]
        room = CONFIG_RESOURCES_MAX - len(known) - broker.desk.pending_count  # each may be of a new name
        crowded += places if len(places) > CONFIG_RESOURCES_CHANGED_MAX else new[max(room, 0) :]
    return crowded


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
    if len(resource.configs) > SETTINGS_CHANGED_MAX:
        return Problem(
            ErrorCode.invalid_request, f"At most {SETTINGS_CHANGED_MAX} keys are changed at a time."
        )
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
    if kind not in ROWS and not (is_logger and request.api_key == INCREMENTAL_ALTER_CONFIGS.key):
        return Problem(ErrorCode.invalid_request, f"Unknown resource type {kind}")
    if is_logger or (kind == Resource.BROKER and name and not _is_of_cluster(broker, name)):
        return node_problem(broker, name, "Node")
    return None


def _is_of_cluster(broker: Broker, name: str) -> bool:
    """Whether a broker is one that the controller changes settings for: requests are handed on to it."""
    is_number = name.isascii() and name.isdigit() and len(name) <= 10
    return broker.is_sharing and is_number and broker.image.is_known(int(name))


class _Alteration(StoreChange[list[Operation], Problem]):
    """The settings of one resource."""

    def __init__(self, broker: Broker, resource: Any, revise: Revision, validate_only: bool) -> None:
        self._broker = broker
        self._kind: int = resource.resource_type
        self._name: str = resource.resource_name
        self._revise = revise
        self._validate_only = validate_only

    def decide(self) -> list[Operation] | Settled[Problem]:
        decided = self._decide()
        if isinstance(decided, Problem):
            return Settled(decided)
        return Settled(FINE) if self._validate_only or not decided else decided

    def write(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        self._broker.control.write(operations, on_outcome)

    def row_of(self, operations: list[Operation], outcome: Outcome) -> Problem:
        return problem_of(outcome)

    def _decide(self) -> list[Operation] | Problem:
        image = self._broker.image
        if self._kind == Resource.TOPIC:
            return self._decide_topic()
        name = self._name
        if self._kind == Resource.BROKER:
            name = str(int(name)) if name else DEFAULT_BROKER
        kind = _KINDS[Resource(self._kind)]
        present = image.configs[kind].get(name, {})
        config = self._revise(to_be_kept(present))
        if isinstance(config, Problem):
            return config
        problem = self._name_problem() or self._values_problem(config)
        config = to_be_kept(config)
        return problem or (decide_config(image, kind, name, config) if config != present else [])

    def _values_problem(self, config: Config) -> Problem | None:
        return values_problem(self._broker.settings, self._kind, bool(self._name), config)

    def _name_problem(self) -> Problem | None:
        """Groups and client metrics have names of their own."""
        if self._kind == Resource.BROKER:
            return None
        if not self._name:
            return Problem(ErrorCode.invalid_request, "The name of the resource is empty.")
        return _CROWDED if len(self._name) > RESOURCE_NAME_LENGTH_MAX else None

    def _decide_topic(self) -> list[Operation] | Problem:
        topic = self._broker.image.topics.get(self._name)
        config = self._revise(dict(topic.config) if topic else {})
        if isinstance(config, Problem):
            return config
        if not self._name:
            return Problem(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        wrong = name_problem(self._name)
        if wrong is not None:
            return Problem(ErrorCode.invalid_topic_exception, wrong)
        problem = self._values_problem(config)
        if problem is not None:
            return problem
        if topic is None:
            return Problem(ErrorCode.unknown_topic_or_partition, f"The topic '{self._name}' does not exist.")
        return decide_topic_config(topic, config) if config != topic.config else []


def _alter_logger(broker: Broker, resource: Any, validate_only: bool) -> Problem:
    """The level of the one logger there is; it holds until the broker stops."""
    for entry in resource.configs:
        problem = _level_problem(entry)
        if problem is not None:
            return problem
    for entry in () if validate_only else resource.configs:
        broker.logger_override = entry.value
    return FINE


def _level_problem(entry: Any) -> Problem | None:
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
    return None
