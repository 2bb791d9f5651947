"""Groups whose members are not alike: of different clients, or on the way from one protocol to the other."""

from __future__ import annotations

import pytest

from tests.compat.conftest import NewTopic
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import faults, missing
from tests.compat.groups.process import Group, Member
from tests.compat.groups.spec import (
    AIOKAFKA,
    CONFLUENT_CLASSIC,
    CONFLUENT_CONSUMER,
    KAFKA_PYTHON,
    Partition,
    Spec,
)
from tests.compat.groups.stream import Stream, partitions_of
from tests.soak import is_soak

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not is_soak(),
        reason="many processes that must keep time together: in `make soak`, which has the machine alone",
    ),
]


def test_clients_of_three_kinds_share_one_group(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup
) -> None:
    topic = new_topic(partitions=6)
    partitions, group = partitions_of(topic, 6), new_group(topic)
    group.begin(partitions)
    members: list[Member] = []
    with Stream(bootstrap, partitions) as stream:
        for spec in (KAFKA_PYTHON, AIOKAFKA, CONFLUENT_CLASSIC):
            members.append(group.join(spec))
            group.until_shared(members, partitions)
        while len(members) > 1:
            members.pop(0).leave()
            group.until_shared(members, partitions)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert faults(group.events) == []


def test_a_group_changes_its_protocol_and_back_while_it_reads(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup
) -> None:
    """KIP-848: the first member of the newer protocol converts the group, the last one that leaves, back."""
    topic = new_topic(partitions=6)
    partitions, group = partitions_of(topic, 6), new_group(topic)
    group.begin(partitions)
    members = [group.join(CONFLUENT_CLASSIC), group.join(CONFLUENT_CLASSIC)]
    with Stream(bootstrap, partitions) as stream:
        group.until_shared(members, partitions)
        for spec in (CONFLUENT_CONSUMER, CONFLUENT_CLASSIC):
            members = _replace_one_by_one(group, members, spec, partitions)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert faults(group.events) == []


def _replace_one_by_one(
    group: Group, members: list[Member], spec: Spec, partitions: list[Partition]
) -> list[Member]:
    for leaver in members:
        members = [*(member for member in members if member is not leaver), group.join(spec)]
        group.until_shared([*members, leaver], partitions)
        leaver.leave()
        group.until_shared(members, partitions)
    return members
