"""CreateTopics and DeleteTopics.

**Invariant:** a topic is in the store before a client hears that it exists, and out of it before one
hears that it is gone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tidelog.base.config import Source, check_topic_settings
from tidelog.base.limits import MESSAGE_LENGTH_MAX, PARTITIONS_CREATED_MAX, PARTITIONS_SHARED_MAX
from tidelog.base.resource_rows import TOPIC_FALLBACKS
from tidelog.base.setting import InvalidSetting
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.facts import TopicFacts
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import NOWHERE, Done, Outcome, Refused
from tidelog.handlers.configs_resources import Entry, topic_entries
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.names import is_internal, name_problem
from tidelog.handlers.partitions import TOO_MANY, TOO_MANY_AT_ONCE
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import LATE, OVER_QUOTA, change_store, problem_of
from tidelog.handlers.uuids import to_bytes, to_uuid
from tidelog.protocol.errors import ErrorCode, Problem
from tidelog.protocol.messages import encode_array, encode_frame, encode_part
from tidelog.protocol.wire import INT32

CONFIGS_VERSION = 5  # from here on answers tell the settings of what was made, and are flexible
_CREATION_QUOTA_VERSION, _DELETION_QUOTA_VERSION = 6, 5  # from here on clients know the error (KIP-599)

_LATE: bytes | Problem = LATE


class Plan(NamedTuple):
    config: dict[str, str]
    assignment: list[list[int]]


def handle_create_topics(broker: Broker, request: Request) -> Result:
    """*Behaviour*: each topic is checked in full, then created in the store; the answer waits for that.

    *Versions*: 4 takes -1 for the broker's defaults; 5 is flexible and tells the settings; 6 knows of
    quotas; 7 adds the id.
    """
    asked = request.decode()
    quota = broker.quotas.mutations(request.client, request.version >= _CREATION_QUOTA_VERSION)
    counts = Counter(topic.name for topic in asked.topics)
    encoder = CreationEncoder(broker, request)
    creations: list[_Creation] = []
    known: dict[str, bytes] = {}  # results by name, of topics that the store is not asked for
    partitions_left = PARTITIONS_CREATED_MAX
    for topic in asked.topics:
        plan = (
            Problem(ErrorCode.invalid_request, "Duplicate topic name.")
            if counts[topic.name] > 1
            else _plan(broker, topic, request.version)
        )
        if isinstance(plan, Plan):
            partitions_left -= len(plan.assignment)
            plan = plan if partitions_left >= 0 else TOO_MANY
        if isinstance(plan, Plan) and not asked.validate_only and not quota.take(len(plan.assignment)):
            plan = OVER_QUOTA
        if isinstance(plan, Problem):
            known[topic.name] = encoder.refused(topic.name, plan)
        elif asked.validate_only:
            known[topic.name] = encoder.created(topic.name, plan, broker.kernel.entropy(16))
        else:
            creations.append(_Creation(broker, topic.name, plan, encoder))

    def answer(rows: list[bytes | Problem]) -> bytes:
        decided = (
            encoder.refused(creation.name, row) if isinstance(row, Problem) else row
            for creation, row in zip(creations, rows, strict=True)
        )
        return encoder.answer([*known.values(), *decided])

    return change_store(broker, deadline_of(broker, asked.timeout), creations, _LATE, answer)


class _Creation(StoreChange[Plan, bytes | Problem]):
    """Its result is encoded as it becomes known, not all of them at the end."""

    attempts_max = 1  # what the store refuses is the topic's name, which somebody has

    def __init__(self, broker: Broker, name: str, plan: Plan, encoder: CreationEncoder) -> None:
        self._broker = broker
        self.name = name
        self._plan = plan
        self._encoder = encoder

    def decide(self) -> Plan:
        """It was decided with the other topics, which share a bound."""
        return self._plan

    def write(self, plan: Plan, on_outcome: OnOutcome) -> None:
        self._broker.topics.create(self.name, plan.config, plan.assignment, on_outcome)

    def row_of(self, plan: Plan, outcome: Outcome) -> bytes | Problem:
        if isinstance(outcome, Done):
            return self._encoder.created(self.name, plan, self._broker.image.topics[self.name].topic_id)
        if not isinstance(outcome, Refused):
            return problem_of(outcome)
        if outcome.place == NOWHERE:
            return Problem(ErrorCode.policy_violation, outcome.reason)
        return Problem(ErrorCode.topic_already_exists, f"Topic '{self.name}' already exists.")


def _plan(broker: Broker, topic: Any, version: int) -> Plan | Problem:
    wrong = name_problem(topic.name)
    if wrong is not None:
        return Problem(ErrorCode.invalid_topic_exception, wrong)
    clash = broker.image.clash_of(topic.name)
    if clash is not None:
        return Problem(
            ErrorCode.invalid_topic_exception,
            f"Topic '{topic.name}' collides with existing topic: {clash}",
        )
    if topic.name in broker.image.topics:
        return Problem(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
    unset = next((entry.name for entry in topic.configs if entry.value is None), None)
    if unset is not None:
        return Problem(ErrorCode.invalid_config, f"No value is given for {unset}.")
    config = {entry.name: entry.value for entry in topic.configs}
    try:
        check_topic_settings(config)
    except InvalidSetting as error:
        return Problem(ErrorCode.invalid_config, str(error))
    assignment = _assigned(broker, topic) if topic.assignments else _placed(broker, topic)
    if isinstance(assignment, list) and broker.is_sharing and len(assignment) > PARTITIONS_SHARED_MAX:
        return TOO_MANY_AT_ONCE
    return assignment if isinstance(assignment, Problem) else Plan(config, assignment)


def _placed(broker: Broker, topic: Any) -> list[list[int]] | Problem:
    count, replicas = topic.num_partitions, topic.replication_factor
    count = broker.settings.number("num.partitions") if count == -1 else count
    replicas = broker.settings.number("default.replication.factor") if replicas == -1 else replicas
    alive = len(racks_of(broker.image.brokers))
    if replicas <= 0:
        return Problem(ErrorCode.invalid_replication_factor, f"Replication factor is {replicas}.")
    if count <= 0:
        return Problem(ErrorCode.invalid_partitions, f"Number of partitions is {count}; 1 is the least.")
    if count > PARTITIONS_CREATED_MAX:
        return TOO_MANY
    if replicas > alive:
        return Problem(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {replicas} cannot be had: {alive} broker(s) are there.",
        )
    return place(count, replicas, racks_of(broker.image.brokers), len(broker.image.topics))


def _assigned(broker: Broker, topic: Any) -> list[list[int]] | Problem:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        return Problem(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but numPartitions or replicationFactor was not -1.",
        )
    by_index = {entry.partition_index: list(entry.broker_ids) for entry in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        return Problem(
            ErrorCode.invalid_replica_assignment, "Partitions must be numbered from 0, without gaps."
        )
    for index, replicas in by_index.items():
        known = all(node_id in broker.image.brokers for node_id in replicas)
        if not replicas or not known or len({*replicas}) != len(replicas):
            return Problem(
                ErrorCode.invalid_replica_assignment,
                f"Partition {index} is assigned to {replicas}; there are {sorted(broker.image.brokers)}.",
            )
    return [by_index[index] for index in range(len(by_index))]


class CreationEncoder:
    """What became of each topic, as clients get it. Most topics have the same settings, and those
    are most of the answer: they are encoded once for all that have them."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self._broker = broker
        self._request = request
        self._is_flexible = request.version >= CONFIGS_VERSION
        self._configs: dict[tuple[tuple[str, str], ...], bytes] = {}

    def refused(self, name: str, problem: Problem) -> bytes:
        refused = self._request.make(
            "CreatableTopicResult",
            name=name,
            topic_id=None,
            error_code=problem.error,
            error_message=problem.message[:MESSAGE_LENGTH_MAX],
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
        return encode_part(refused)

    def created(self, name: str, plan: Plan, topic_id: bytes) -> bytes:
        created = self._request.make(
            "CreatableTopicResult",
            name=name,
            topic_id=to_uuid(topic_id),
            error_code=ErrorCode.none,
            error_message=None,
            num_partitions=len(plan.assignment),
            replication_factor=len(plan.assignment[0]),
            configs=(),
        )
        encoded = encode_part(created)
        if self._is_flexible:  # the settings are the last field; they were written empty
            encoded = encoded[:-2] + self._configs_of(plan) + encoded[-1:]
        return encoded

    def _configs_of(self, plan: Plan) -> bytes:
        key = tuple(sorted(plan.config.items()))
        if key not in self._configs:
            parts = [encode_part(config) for config in _configs(self._broker, self._request, plan)]
            self._configs[key] = encode_array(parts, is_flexible=True)
        return self._configs[key]

    def answer(self, results: list[bytes]) -> bytes:
        topics = encode_array(results, self._is_flexible)
        tags = b"\x00" if self._is_flexible else b""
        throttle_time = INT32.pack(self._request.client.throttle_time_ms)
        return encode_frame(self._request.correlation_id, self._is_flexible, throttle_time, topics, tags)


def _configs(broker: Broker, request: Request, plan: Plan) -> tuple[Any, ...]:
    return tuple(
        request.make(
            "CreatableTopicConfigs",
            name=entry.name,
            value=plan.config.get(entry.name, entry.text),
            read_only=entry.is_read_only,
            config_source=_source(broker, entry).value,
            is_sensitive=entry.is_secret,
        )
        for entry in topic_entries(broker, plan.config)
    )


def _source(broker: Broker, entry: Entry) -> Source:
    """Where the value comes from; unlike in DescribeConfigs, a coarser setting of the broker's counts."""
    if entry.source is Source.DEFAULT:
        for name, _ in TOPIC_FALLBACKS.get(entry.name, ()):
            if broker.settings.is_set(name):
                return broker.settings.synonyms(name)[0].source
    return entry.source


_TWICE = Problem(ErrorCode.invalid_request, "Duplicate topic.")
_DELETED_MEANWHILE = Problem(ErrorCode.unknown_topic_or_partition, "The topic was deleted meanwhile.")
_BOTH_WAYS = Problem(ErrorCode.invalid_request, "The topic is given by its name and by its id.")


def handle_delete_topics(broker: Broker, request: Request) -> Result:
    """*Behaviour*: out of the store first; then the folders are renamed, and removed in the background.

    *Versions*: 5 adds messages and knows of quotas; 6 deletes by id.
    """
    asked = request.decode()
    if request.version >= 6:
        wanted = [(topic.name, to_bytes(topic.topic_id)) for topic in asked.topics]
    else:
        wanted = [(name, None) for name in asked.topic_names]
    quota = broker.quotas.mutations(request.client, request.version >= _DELETION_QUOTA_VERSION)
    results: list[Any] = []
    doomed: dict[bytes, TopicFacts] = {}
    counts = Counter(wanted)
    for (name, topic_id), count in counts.items():
        if (name is None) == (topic_id is None):
            results += [_deleted(request, name, topic_id, _NAME_OR_ID)] * count
            continue
        topic = _find_topic(broker, name, topic_id)
        problem = _TWICE if count > 1 else _deletion_problem(broker, topic, topic_id)
        is_named_once = topic is None or topic_id is None or not counts[(topic.name, None)]
        if problem is None and topic is not None and is_named_once and not quota.take(len(topic.partitions)):
            problem = OVER_QUOTA
        if problem is not None:
            results.append(_deleted(request, name, topic_id, problem))
        elif topic is not None and counts[(topic.name, None)] and counts[(None, topic.topic_id)]:
            if topic_id is None:
                results.append(_deleted(request, name, topic.topic_id, _BOTH_WAYS))
        elif topic is not None:
            doomed[topic.topic_id] = topic
    deletions = [_Deletion(broker, topic_id) for topic_id in doomed]

    def answer(problems: list[Problem]) -> bytes:
        rows = [
            _deleted(request, topic.name, topic.topic_id, problem)
            for topic, problem in zip(doomed.values(), problems, strict=True)
        ]
        return request.respond(responses=(*results, *rows))

    return change_store(broker, deadline_of(broker, asked.timeout), deletions, LATE, answer)


def _find_topic(broker: Broker, name: str | None, topic_id: bytes | None) -> TopicFacts | None:
    if topic_id is not None:
        return broker.image.topics_by_id.get(topic_id)
    return broker.image.topics.get(name or "")


_NAME_OR_ID = Problem(ErrorCode.invalid_request, "Give the topic's name or its id: one of them.")


def _deletion_problem(broker: Broker, topic: TopicFacts | None, topic_id: bytes | None) -> Problem | None:
    if topic is None:
        if topic_id is not None:
            return Problem(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        return Problem(
            ErrorCode.unknown_topic_or_partition, "This server does not host this topic-partition."
        )
    if not broker.settings.flag("delete.topic.enable"):
        return Problem(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
    if is_internal(topic.name):
        return Problem(ErrorCode.invalid_topic_exception, f"Topic '{topic.name}' is internal.")
    return None


class _Deletion(StoreChange[TopicFacts, Problem]):
    """Decided again if the topic has grown meanwhile."""

    def __init__(self, broker: Broker, topic_id: bytes) -> None:
        self._broker = broker
        self._topic_id = topic_id

    def decide(self) -> TopicFacts | Settled[Problem]:
        topic = self._broker.image.topics_by_id.get(self._topic_id)
        return topic if topic is not None else Settled(_DELETED_MEANWHILE)

    def write(self, topic: TopicFacts, on_outcome: OnOutcome) -> None:
        self._broker.topics.delete(topic, on_outcome)

    def row_of(self, topic: TopicFacts, outcome: Outcome) -> Problem:
        if isinstance(outcome, Refused) and outcome.place == NOWHERE:
            return Problem(ErrorCode.policy_violation, outcome.reason)
        return problem_of(outcome)


def _deleted(request: Request, name: str | None, topic_id: bytes | None, problem: Problem) -> Any:
    return request.make(
        "DeletableTopicResult",
        name=name,
        topic_id=to_uuid(topic_id),
        error_code=problem.error,
        error_message=problem.message or None,
    )
