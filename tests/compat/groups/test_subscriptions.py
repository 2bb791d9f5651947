"""What a group subscribes to and how it agrees on who gets what; and groups that begin again."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.client import Admin, Refused
from tests.compat.confluent.driver import settle
from tests.compat.conftest import NewTopic
from tests.compat.groups.codes import INCONSISTENT_GROUP_PROTOCOL, NON_EMPTY_GROUP
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import faults, missing
from tests.compat.groups.spec import AIOKAFKA, ALL, CONFLUENT_CLASSIC, KAFKA_PYTHON, Spec
from tests.compat.groups.stream import Stream

every_client = pytest.mark.parametrize("spec", ALL, ids=str)


@every_client
def test_a_pattern_follows_topics_that_are_made_later(
    bootstrap: str, writer: Admin, new_group: NewGroup, fresh_name: str, spec: Spec
) -> None:
    first, second, stranger = f"{fresh_name}.one", f"{fresh_name}.two", f"not-{fresh_name}.three"
    writer.create_topic(first, 2, {})
    writer.create_topic(stranger, 1, {})
    group = new_group()
    member = group.join(spec, pattern=f"^{fresh_name}[.](one|two)$")
    member.until_has([(first, 0), (first, 1)])
    writer.create_topic(second, 1, {})
    member.until_has([(first, 0), (first, 1), (second, 0)])
    stream = Stream(bootstrap, [(first, 0), (first, 1), (second, 0)])
    stream.write(9)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert faults(group.events) == []


@pytest.mark.parametrize("spec", [CONFLUENT_CLASSIC, AIOKAFKA, KAFKA_PYTHON], ids=str)
def test_members_without_a_common_assignor_cannot_be_in_one_group(
    new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic()
    group = new_group(topic)
    group.join(spec.but(strategy="range")).until_has([(topic, 0)])
    failed = group.join(spec.but(strategy="roundrobin")).until_told("failed")
    assert failed.code == INCONSISTENT_GROUP_PROTOCOL or "InconsistentGroupProtocol" in failed.said


@every_client
def test_a_deleted_group_begins_again_from_nothing(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic()
    group = new_group(topic)
    stream = Stream(bootstrap, [(topic, 0)])
    stream.write(5)
    member = group.join(spec)
    member.until_told("committed")
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises(Refused) as refused:
        settle(admin.delete_consumer_groups([group.name])[group.name])
    assert refused.value.code == NON_EMPTY_GROUP
    member.leave()
    settle(admin.delete_consumer_groups([group.name])[group.name])
    again = new_group(topic, name=group.name)
    second = again.join(spec)
    again.until(lambda events: not missing(events, stream.ends), "the commits outlived their group")
    assert second.told("assigned")[0].generation <= member.told("assigned")[0].generation
