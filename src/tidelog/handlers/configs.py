"""DescribeConfigs and ListConfigResources: every setting with its value, where that comes from, and why.

A thousand topics are described by one request, and most of them set the same, so a row of the answer is
encoded once for each value that a resource has set.

**Invariant:** an answer has a bound, however short the request.
"""

from __future__ import annotations

from typing import Any

from tidelog.base.limits import CONFIGS_DESCRIBED_BYTES_MAX, MESSAGE_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.cluster.paths import BROKER_CONFIG, CLIENT_METRICS_CONFIG, DEFAULT_BROKER, GROUP_CONFIG
from tidelog.handlers.configs_resources import (
    Entry,
    Overrides,
    Resource,
    entry_of,
    node_problem,
    setting_names,
)
from tidelog.handlers.names import name_problem
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE
from tidelog.protocol.apis import DESCRIBE_CONFIGS
from tidelog.protocol.errors import ErrorCode, Problem
from tidelog.protocol.messages import encode_frame, encode_part
from tidelog.protocol.wire import INT16, INT32, write_array_length, write_compact_string, write_string

_KINDS = frozenset(Resource)
_MALFORMED = Problem(ErrorCode.invalid_request, "Unknown resource type.")
_TOO_MUCH = Problem(
    ErrorCode.invalid_request, "The response is too large; describe fewer resources at a time."
)


def handle_describe_configs(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the settings of topics, brokers, groups, client metrics and the logger; a broker answers
    for itself and for the defaults of all (an empty name).

    *Versions*: 3 adds types and documentation; 4 is flexible.
    """
    asked = request.decode()
    description = _Description(broker, request, asked)
    known = all(resource.resource_type in _KINDS for resource in asked.resources)
    for resource in asked.resources:
        description.add(resource, None if known else _MALFORMED)
    return description.respond(len(asked.resources))


class _Description:
    """The answer while it grows."""

    def __init__(self, broker: Broker, request: Request, asked: Any) -> None:
        self._broker = broker
        self._request = request
        self._has_synonyms = asked.include_synonyms
        self._has_meaning = getattr(asked, "include_documentation", False)
        self._is_flexible = request.version >= DESCRIBE_CONFIGS.flexible_version
        self._rows: dict[tuple[int, str, str | None], bytes] = {}
        self._body = bytearray()
        self._is_full = False

    def add(self, resource: Any, problem: Problem | None) -> None:
        if problem is None and self._is_full:
            problem = _TOO_MUCH
        found = self._settings_of(resource) if problem is None else problem
        if not isinstance(found, Problem) and len(self._body) + len(found) > CONFIGS_DESCRIBED_BYTES_MAX:
            self._is_full, found = True, _TOO_MUCH
        if isinstance(found, Problem):
            self._put(resource, found, self._encode([]))
        else:
            self._put(resource, FINE, found)

    def _put(self, resource: Any, problem: Problem, settings: bytes) -> None:
        write = write_compact_string if self._is_flexible else write_string
        body = self._body
        body += INT16.pack(problem.error)
        write(body, problem.message[:MESSAGE_LENGTH_MAX])
        body += resource.resource_type.to_bytes(1, "big", signed=True)
        write(body, resource.resource_name)
        body += settings

    def _settings_of(self, resource: Any) -> bytes | Problem:
        kind = resource.resource_type
        overrides = _overrides(self._broker, kind, resource.resource_name)
        if isinstance(overrides, Problem):
            return overrides
        names, wanted = setting_names(kind, resource.resource_name, overrides), resource.configuration_keys
        chosen = [name for name in dict.fromkeys(wanted) if name in names] if wanted else names
        return self._encode([self._row(kind, name, overrides.get(name)) for name in chosen])

    def _encode(self, rows: list[bytes]) -> bytes:
        """All of a result that follows the resource's name."""
        count = bytearray()
        write_array_length(count, len(rows), self._is_flexible)
        return b"".join((count, *rows, b"\x00" if self._is_flexible else b""))

    def _row(self, kind: int, name: str, own: str | None) -> bytes:
        found = self._rows.get((kind, name, own))
        if found is None:
            row = self._result(entry_of(self._broker, kind, name, own))
            found = self._rows[kind, name, own] = encode_part(row)
        return found

    def _result(self, entry: Entry) -> Any:
        request = self._request
        synonyms = tuple(
            request.make(
                "DescribeConfigsSynonym", name=other.name, value=other.text, source=other.source.value
            )
            for other in (entry.synonyms if self._has_synonyms else ())
        )
        return request.make(
            "DescribeConfigsResourceResult",
            name=entry.name,
            value=entry.text,
            read_only=entry.is_read_only,
            config_source=entry.source.value,
            is_sensitive=entry.is_secret,
            synonyms=synonyms,
            config_type=entry.kind.value if entry.kind is not None else 0,
            documentation=entry.meaning if self._has_meaning or entry.kind is None else None,
        )

    def respond(self, count: int) -> bytes:
        head = bytearray(INT32.pack(self._request.client.throttle_time_ms))
        write_array_length(head, count, self._is_flexible)
        tail = b"\x00" if self._is_flexible else b""
        return encode_frame(self._request.correlation_id, self._is_flexible, head, self._body, tail)


def _overrides(broker: Broker, kind: int, name: str) -> Overrides | Problem:
    """What the resource itself has set, or why it cannot be described."""
    if kind == Resource.TOPIC:
        wrong = name_problem(name)
        if wrong is not None:
            return Problem(ErrorCode.invalid_topic_exception, wrong)
        topic = broker.image.topics.get(name)
        return topic.config if topic else Problem(ErrorCode.unknown_topic_or_partition, "")
    if kind == Resource.BROKER and not name:
        return broker.image.configs[BROKER_CONFIG].get(DEFAULT_BROKER, {})
    if kind == Resource.BROKER:
        return node_problem(broker, name, "Broker") or {}
    if not name:
        what = {Resource.BROKER_LOGGER: "Broker id", Resource.GROUP: "Group name"}
        subject = what.get(Resource(kind), "Client metrics subscription name")
        return Problem(ErrorCode.invalid_request, f"{subject} must not be empty")
    if kind == Resource.BROKER_LOGGER:
        return node_problem(broker, name, "Broker") or {}
    configs = broker.image.configs[GROUP_CONFIG if kind == Resource.GROUP else CLIENT_METRICS_CONFIG]
    return configs.get(name, {})


def handle_list_config_resources(broker: Broker, request: Request) -> Result:
    """*Behaviour*: what has settings that can be described. *Versions*: 0 lists client metrics alone."""
    asked = request.decode()
    if request.version == 0:
        kinds: tuple[int, ...] = (Resource.CLIENT_METRICS,)
    else:
        kinds = tuple(asked.resource_types) or tuple(Resource)
    if not _KINDS.issuperset(kinds):
        return request.respond(error_code=ErrorCode.unsupported_version, config_resources=())
    names = {
        Resource.TOPIC: list(broker.image.topics),
        Resource.BROKER: [str(node_id) for node_id in broker.image.brokers],
        Resource.BROKER_LOGGER: [str(node_id) for node_id in broker.image.brokers],
        Resource.CLIENT_METRICS: list(broker.image.configs[CLIENT_METRICS_CONFIG]),
        Resource.GROUP: list(broker.image.configs[GROUP_CONFIG]),
    }
    resources = tuple(
        request.make("ConfigResource", resource_name=name, resource_type=kind.value)
        for kind in Resource
        if kind in kinds
        for name in names[kind]
    )
    return request.respond(error_code=ErrorCode.none, config_resources=resources)
