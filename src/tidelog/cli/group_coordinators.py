"""Consumer groups from their coordinators: members, committed offsets.

librdkafka asks for one group at a time and omits epochs and protocol types; here each coordinator is
asked once for all of its groups.

**Invariant:** a coordinator that has moved or is loading is asked again, and named if the problem lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group_members import CONSUMER, Group, Partition, classic_group, consumer_group
from tidelog.cli.nodes import Node, describe_cluster
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

RETRY_S = 0.2
RETRIES_MAX = 75  # 15 seconds: the first use of groups may take as long to create their topic
_GROUP = 0  # the type of coordinator key
_PASSING = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
_DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    type: str
    state: str
    protocol_type: str


class _Answer(NamedTuple):
    """A coordinator's answer about one group."""

    error_code: ErrorCode
    message: str | None
    value: Any


_Value = TypeVar("_Value")
_Question = Callable[[RemoteBroker, Node, list[str]], dict[str, _Answer]]


class Coordinators:
    """Connections to the coordinators of groups, opened as needed and kept."""

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._brokers: dict[str, RemoteBroker] = {}
        self._found: dict[str, Node] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()
        self._found.clear()

    def describe(self, names: Sequence[str]) -> dict[str, Group | Failure | None]:
        """Each group, or its failure; None for a name without a classic or consumer group."""
        return self._ask(names, _describe)

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int] | Failure]:
        """All committed offsets of each group, or its failure; empty for a group that does not exist."""
        return self._ask(names, _committed)

    def delete_offsets(self, name: str, partitions: Iterable[Partition]) -> dict[Partition, ErrorCode]:
        """Delete committed offsets of a group; an error code for each partition."""

        def question(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, _Answer]:
            return {name: _delete_offsets(broker, name, sorted(partitions))}

        outcome: dict[Partition, ErrorCode] | Failure = self._ask([name], question)[name]
        return succeeded(outcome)

    def _ask(self, names: Sequence[str], question: _Question) -> dict[str, Any]:
        answers: dict[str, _Answer] = {}
        deadline = time.monotonic() + RETRY_S * RETRIES_MAX
        for attempt in range(RETRIES_MAX):
            if attempt:
                time.sleep(RETRY_S)
            unknown = [name for name in names if name not in answers]
            for node, group in self._coordinators_of(unknown, answers):
                answers |= self._ask_one(node, group, question)
            passing = [name for name, answer in answers.items() if answer.error_code in _PASSING]
            if not passing or time.monotonic() > deadline:
                break
            if attempt < RETRIES_MAX - 1:
                for name in passing:
                    self._found.pop(name, None)
                    del answers[name]
        return {name: _value(name, answers[name]) for name in names}

    def _ask_one(self, node: Node, names: list[str], question: _Question) -> dict[str, _Answer]:
        """One coordinator's answers. If it cannot be reached, another broker may soon be the coordinator."""
        try:
            return question(self._open(node.address), node, names)
        except BadWord:
            raise
        except Failure as failure:
            broken = self._brokers.pop(node.address, None)
            if broken is not None:
                broken.close()
            message = f"broker {node.id}, which coordinates it, cannot be asked: {failure}"
            return dict.fromkeys(names, _Answer(ErrorCode.coordinator_not_available, message, None))

    def _coordinators_of(self, names: list[str], answers: dict[str, _Answer]) -> list[tuple[Node, list[str]]]:
        """The names by coordinator; a name without a coordinator gets an error answer."""
        missing = [name for name in names if name not in self._found]
        if missing:
            with open_any(self._bootstrap_server) as broker:
                answers |= self._find(broker, missing)
        by_node: dict[Node, list[str]] = {}
        for name in names:
            if name in self._found:
                by_node.setdefault(self._found[name], []).append(name)
        return list(by_node.items())

    def _find(self, broker: RemoteBroker, names: list[str]) -> dict[str, _Answer]:
        answer = broker.ask(
            apis.FIND_COORDINATOR, key=names[0], key_type=_GROUP, coordinator_keys=tuple(names)
        )
        if not hasattr(answer, "coordinators"):
            raise Failure(
                f"the broker at {broker.address} is older than Kafka 3.0: it looks up one group at a time"
            )
        failed = {}
        for found in answer.coordinators:
            if found.error_code is ErrorCode.none:
                self._found[found.key] = Node(found.node_id, found.host, found.port, None, False)
            else:
                failed[found.key] = _Answer(found.error_code, found.error_message, None)
        return failed

    def _open(self, address: str) -> RemoteBroker:
        if address not in self._brokers:
            self._brokers[address] = RemoteBroker(address)
        return self._brokers[address]


def list_groups(
    bootstrap_server: str, states: Iterable[str] = (), types: Iterable[str] = ()
) -> tuple[list[ListedGroup], list[Failure]]:
    """The groups of the cluster, by name, and the failures of brokers that did not answer."""
    found: list[ListedGroup] = []
    failures: list[Failure] = []
    for node in describe_cluster(bootstrap_server).nodes:
        try:
            found += _groups_at(node, tuple(states), tuple(types))
        except BadWord:
            raise
        except Failure as failure:
            failures.append(Failure(f"broker {node.id} does not answer; its groups are missing: {failure}"))
    return sorted(found, key=lambda listed: listed.group), failures


def _groups_at(node: Node, states: tuple[str, ...], types: tuple[str, ...]) -> list[ListedGroup]:
    with RemoteBroker(node.address) as broker:
        answer = broker.ask(apis.LIST_GROUPS, states_filter=states, types_filter=types)
    check(f"the groups of broker {node.id}", answer.error_code, None)
    return [
        ListedGroup(
            listed.group_id,
            getattr(listed, "group_type", "").lower(),
            getattr(listed, "group_state", ""),
            listed.protocol_type,
        )
        for listed in answer.groups
    ]


def succeeded(answer: _Value | Failure) -> _Value:
    """The value for a single group; raises its failure."""
    if isinstance(answer, Failure):
        raise answer
    return answer


def _value(name: str, answer: _Answer) -> Any:
    try:
        check(f"group {name!r}", answer.error_code, answer.message)
    except Failure as failure:
        return failure
    return answer.value


def no_such_group(bootstrap_server: str, name: str) -> Failure:
    """The failure for a name that is neither a classic nor a consumer group. Its coordinator lists groups of
    other types, so failures of other brokers do not matter."""
    for listed in list_groups(bootstrap_server)[0]:
        if listed.group == name and listed.type not in ("classic", CONSUMER, ""):
            return Failure(
                f"group {name!r} is a {listed.type} group; only classic and consumer groups can be shown"
            )
    return Failure(f"group {name!r} does not exist; see 'tidelog group list'")


def _describe(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, _Answer]:
    """Describe as classic groups first; the rest may be groups of the consumer protocol."""
    answers = {}
    described = broker.ask(
        apis.DESCRIBE_GROUPS, groups=tuple(names), include_authorized_operations=False
    ).groups
    for found in described:
        is_there = found.error_code is ErrorCode.none and found.group_state != _DEAD
        answers[found.group_id] = _answer(found, classic_group(found, node) if is_there else None)
    others = [name for name, answer in answers.items() if answer.value is None]
    if others and broker.serves(apis.CONSUMER_GROUP_DESCRIBE):
        described = broker.ask(
            apis.CONSUMER_GROUP_DESCRIBE, group_ids=tuple(others), include_authorized_operations=False
        ).groups
        for found in described:
            is_there = found.error_code is ErrorCode.none
            answers[found.group_id] = _answer(found, consumer_group(found, node) if is_there else None)
    return answers


def _answer(found: Any, group: Group | None) -> _Answer:
    if found.error_code is ErrorCode.group_id_not_found:
        return _Answer(ErrorCode.none, None, None)
    return _Answer(found.error_code, getattr(found, "error_message", None), group)


def _committed(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, _Answer]:
    types = broker.types(apis.OFFSET_FETCH)
    wanted = tuple(make(types.OffsetFetchRequestGroup, group_id=name, topics=None) for name in names)
    answers = {}
    for found in broker.ask(apis.OFFSET_FETCH, groups=wanted, require_stable=False).groups:
        offsets = {
            Partition(str(topic.name), int(partition.partition_index)): int(partition.committed_offset)
            for topic in found.topics
            for partition in topic.partitions
            if partition.error_code is ErrorCode.none and partition.committed_offset >= 0
        }
        error_code = found.error_code
        if error_code is ErrorCode.group_id_not_found:
            error_code = ErrorCode.none
        answers[found.group_id] = _Answer(error_code, None, offsets)
    return answers


def _delete_offsets(broker: RemoteBroker, name: str, partitions: list[Partition]) -> _Answer:
    types = broker.types(apis.OFFSET_DELETE)
    topics = tuple(
        types.OffsetDeleteRequestTopic(
            name=topic,
            partitions=tuple(
                types.OffsetDeleteRequestPartition(partition_index=partition.number)
                for partition in partitions
                if partition.topic == topic
            ),
        )
        for topic in sorted({partition.topic for partition in partitions})
    )
    answer = broker.ask(apis.OFFSET_DELETE, group_id=name, topics=topics)
    outcome = {
        Partition(str(topic.name), int(partition.partition_index)): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    return _Answer(answer.error_code, None, outcome)
