"""Consumer groups from their coordinators: members, committed offsets.

librdkafka asks for one group at a time and omits epochs and protocol types; here each coordinator is
asked once for all of its groups.

**Invariant:** a group that is missing because its broker does not answer is never taken for one that does not
exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tidelog.cli.coordinators import Answer, Coordinators
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group_members import CONSUMER, Group, Partition, classic_group, consumer_group
from tidelog.cli.nodes import Node, describe_cluster
from tidelog.cli.remote import RemoteBroker, check
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

_DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    type: str
    state: str
    protocol_type: str


_Value = TypeVar("_Value")


class GroupCoordinators(Coordinators):
    """Of groups."""

    noun = "group"
    key_type = 0

    def describe(self, names: Sequence[str]) -> dict[str, Group | Failure | None]:
        """Each group, or its failure; None for a name without a classic or consumer group."""
        return self._ask(names, _describe)

    def committed(self, names: Sequence[str]) -> dict[str, dict[Partition, int] | Failure]:
        """All committed offsets of each group, or its failure; empty for a group that does not exist."""
        return self._ask(names, _committed)

    def delete_offsets(self, name: str, partitions: Iterable[Partition]) -> dict[Partition, ErrorCode]:
        """Delete committed offsets of a group; an error code for each partition."""

        def question(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, Answer]:
            return {name: _delete_offsets(broker, name, sorted(partitions))}

        outcome: dict[Partition, ErrorCode] | Failure = self._ask([name], question)[name]
        return succeeded(outcome)


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


def no_such_group(bootstrap_server: str, name: str) -> Failure:
    """The failure for a name that is neither a classic nor a consumer group. Its coordinator lists groups of
    other types, so failures of other brokers do not matter."""
    for listed in list_groups(bootstrap_server)[0]:
        if listed.group == name and listed.type not in ("classic", CONSUMER, ""):
            return Failure(
                f"group {name!r} is a {listed.type} group; only classic and consumer groups can be shown"
            )
    return Failure(f"group {name!r} does not exist; see 'tidelog group list'")


def _describe(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, Answer]:
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


def _answer(found: Any, group: Group | None) -> Answer:
    if found.error_code is ErrorCode.group_id_not_found:
        return Answer(ErrorCode.none, None, None)
    return Answer(found.error_code, getattr(found, "error_message", None), group)


def _committed(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, Answer]:
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
        answers[found.group_id] = Answer(error_code, None, offsets)
    return answers


def _delete_offsets(broker: RemoteBroker, name: str, partitions: list[Partition]) -> Answer:
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
    return Answer(answer.error_code, None, outcome)
