"""CreateTopics and DeleteTopics.

**Invariant:** a topic is in the store before a client hears that it exists, and out of it before one
hears that it is gone.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

from tidelog.base.config import Source, check_topic_settings
from tidelog.base.limits import PARTITIONS_CREATED_MAX, PARTITIONS_SHARED_MAX
from tidelog.base.resource_rows import TOPIC_FALLBACKS
from tidelog.base.setting import InvalidSetting
from tidelog.broker.broker import Broker
from tidelog.cluster.image import TopicFacts
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import NOWHERE, Done, Outcome, Refused
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.growth import TOO_MANY, TOO_MANY_AT_ONCE
from tidelog.handlers.names import is_internal, name_problem
from tidelog.handlers.request import Outstanding, Request, Result
from tidelog.handlers.resources import Entry, Problem, topic_entries
from tidelog.handlers.uuids import to_bytes, to_uuid
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import encode_array, encode_frame, encode_part

_ZERO = timedelta(0)
_NOT_THROTTLED = bytes(4)
CONFIGS_VERSION = 5  # from here on answers tell the settings of what was made, and are flexible
_MESSAGE_LENGTH_MAX = 1_000  # messages quote what the client sent, and that may be 32 KB long


class Plan(NamedTuple):
    config: dict[str, str]
    assignment: list[list[int]]


def handle_create_topics(broker: Broker, request: Request) -> Result:
    """*Behaviour*: each topic is checked in full, then created in the store; the answer waits for that.

    *Versions*: 4 takes -1 for the broker's defaults; 5 is flexible and tells the settings; 7 adds the id.
    """
    asked = request.decode()
    counts = Counter(topic.name for topic in asked.topics)
    results = CreationResults(broker, request)
    plans: dict[str, Plan] = {}
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
        if isinstance(plan, Problem):
            results.refuse(topic.name, plan)
        elif asked.validate_only:
            results.create(topic.name, plan, broker.entropy(16))
        else:
            plans[topic.name] = plan
    return _carry_out_creation(broker, results, plans, asked.timeout)


def _carry_out_creation(
    broker: Broker, results: CreationResults, plans: dict[str, Plan], timeout: timedelta
) -> Result:
    def answer() -> bytes:
        late = Problem(ErrorCode.request_timed_out, "The store has not answered in time.")
        for name in plans:
            if name not in results:
                results.refuse(name, late)
        return results.answer()

    if not plans:
        return answer()
    parked = Outstanding(deadline_of(broker, timeout), answer)

    def on_outcome(name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            topic_id = broker.image.topics[name].topic_id
            results.create(name, plans[name], topic_id)
        else:
            results.refuse(name, _store_problem(outcome, name))
        if all(planned in results for planned in plans):
            broker.waiting.finish(parked, answer())

    for name, plan in plans.items():

        def then(outcome: Outcome, name: str = name) -> None:
            on_outcome(name, outcome)

        broker.create_topic(name, plan.config, plan.assignment, then)
    return parked


def _store_problem(outcome: Outcome, name: str) -> Problem:
    if isinstance(outcome, Refused) and outcome.place == NOWHERE:
        return Problem(ErrorCode.policy_violation, outcome.reason)
    if isinstance(outcome, Refused):
        return Problem(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    return Problem(ErrorCode.request_timed_out, f"The store's answer was lost: {outcome}")


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


class CreationResults:
    """What became of each topic, encoded as it becomes known. Most topics have the same settings, and those
    are most of the answer: they are encoded once for all that have them."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self._broker = broker
        self._request = request
        self._is_flexible = request.version >= CONFIGS_VERSION
        self._encoded: dict[str, bytes] = {}
        self._configs: dict[tuple[tuple[str, str], ...], bytes] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._encoded

    def refuse(self, name: str, problem: Problem) -> None:
        refused = self._request.make(
            "CreatableTopicResult",
            name=name,
            topic_id=None,
            error_code=problem.error,
            error_message=problem.message[:_MESSAGE_LENGTH_MAX],
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
        self._encoded[name] = encode_part(refused)

    def create(self, name: str, plan: Plan, topic_id: bytes) -> None:
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
        self._encoded[name] = encoded

    def _configs_of(self, plan: Plan) -> bytes:
        key = tuple(sorted(plan.config.items()))
        if key not in self._configs:
            parts = [encode_part(config) for config in _configs(self._broker, self._request, plan)]
            self._configs[key] = encode_array(parts, is_flexible=True)
        return self._configs[key]

    def answer(self) -> bytes:
        topics = encode_array(list(self._encoded.values()), self._is_flexible)
        tags = b"\x00" if self._is_flexible else b""
        return encode_frame(self._request.correlation_id, self._is_flexible, _NOT_THROTTLED, topics, tags)


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
_BOTH_WAYS = Problem(ErrorCode.invalid_request, "The topic is given by its name and by its id.")


def handle_delete_topics(broker: Broker, request: Request) -> Result:
    """*Behaviour*: out of the store first; then the folders are renamed, and removed in the background.

    *Versions*: 5 adds messages; 6 deletes by id.
    """
    asked = request.decode()
    if request.version >= 6:
        wanted = [(topic.name, to_bytes(topic.topic_id)) for topic in asked.topics]
    else:
        wanted = [(name, None) for name in asked.topic_names]
    results: list[Any] = []
    doomed: dict[bytes, TopicFacts] = {}
    counts = Counter(wanted)
    for (name, topic_id), count in counts.items():
        if (name is None) == (topic_id is None):
            results += [_deleted(request, name, topic_id, _NAME_OR_ID)] * count
            continue
        topic = _find_topic(broker, name, topic_id)
        problem = _TWICE if count > 1 else _deletion_problem(broker, topic, topic_id)
        if problem is not None:
            results.append(_deleted(request, name, topic_id, problem))
        elif topic is not None and counts[(topic.name, None)] and counts[(None, topic.topic_id)]:
            if topic_id is None:
                results.append(_deleted(request, name, topic.topic_id, _BOTH_WAYS))
        elif topic is not None:
            doomed[topic.topic_id] = topic
    return _carry_out_deletion(broker, request, results, doomed, asked.timeout)


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


def _carry_out_deletion(
    broker: Broker, request: Request, results: list[Any], doomed: dict[bytes, TopicFacts], timeout: timedelta
) -> Result:
    def answer() -> bytes:
        late = Problem(ErrorCode.request_timed_out, "The store has not answered in time.")
        undecided = [_deleted(request, topic.name, topic.topic_id, late) for topic in doomed.values()]
        return request.respond(throttle_time=_ZERO, responses=(*results, *undecided))

    if not doomed:
        return answer()
    parked = Outstanding(deadline_of(broker, timeout), answer)

    def on_outcome(topic: TopicFacts, outcome: Outcome) -> None:
        problem = None if isinstance(outcome, Done) else _deletion_outcome(outcome)
        results.append(_deleted(request, topic.name, topic.topic_id, problem))
        doomed.pop(topic.topic_id)
        if not doomed:
            broker.waiting.finish(parked, answer())

    for topic in list(doomed.values()):

        def then(outcome: Outcome, topic: TopicFacts = topic) -> None:
            on_outcome(topic, outcome)

        broker.delete_topic(topic, then)
    return parked


def _deletion_outcome(outcome: Outcome) -> Problem:
    if isinstance(outcome, Refused) and outcome.place == NOWHERE:
        return Problem(ErrorCode.policy_violation, outcome.reason)
    if isinstance(outcome, Refused):
        return Problem(ErrorCode.unknown_topic_or_partition, "The topic was deleted meanwhile.")
    return Problem(ErrorCode.request_timed_out, f"The store's answer was lost: {outcome}")


def _deleted(request: Request, name: str | None, topic_id: bytes | None, problem: Problem | None) -> Any:
    return request.make(
        "DeletableTopicResult",
        name=name,
        topic_id=to_uuid(topic_id),
        error_code=problem.error if problem else ErrorCode.none,
        error_message=problem.message if problem else None,
    )
