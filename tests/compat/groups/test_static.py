"""Static members (KIP-345): a restart moves nothing, and of two with one id only one stays."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tests.compat.client import Refused
from tests.compat.conftest import NewTopic
from tests.compat.groups.codes import FENCED_INSTANCE_ID
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import committed_again, missing, outside_tenure
from tests.compat.groups.spec import ALL, CONFLUENT_CLASSIC, CONFLUENT_CONSUMER, KAFKA_PYTHON, Spec
from tests.compat.groups.stream import Stream, partitions_of

UNRELEASED_INSTANCE_ID = "The instance ID is still used"
"""librdkafka makes it a fatal error with a code of its own and tells of the broker's only in words."""


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_a_static_member_that_restarts_gets_its_partitions_back_and_moves_no_other(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=4)
    partitions, group = partitions_of(topic, 4), new_group(topic)
    stream = Stream(bootstrap, partitions)
    stays = group.join(spec, instance="stays")
    stays.until_has(partitions)
    restarts = group.join(spec, instance="restarts")
    group.until_shared([stays, restarts], partitions)
    kept, had = stays.owned, restarts.owned
    already = len(stays.told("revoked"))
    restarts.leave()
    stream.write(20)
    again = group.join(spec, instance="restarts")
    again.until_has(list(had))
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert stays.owned == kept
    assert len(stays.told("revoked")) == already
    assert outside_tenure(group.events) + committed_again(group.events) == []


@pytest.mark.parametrize("spec", [CONFLUENT_CLASSIC, KAFKA_PYTHON], ids=str)
def test_a_second_instance_of_the_same_id_fences_the_first(
    new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=2)
    partitions, group = partitions_of(topic, 2), new_group(topic)
    first = group.join(spec, instance="only")
    first.until_has(partitions)
    first.ask("stall")
    second = group.join(spec, instance="only")
    second.until_has(partitions)
    with pytest.raises(Refused) as refused:
        first.ask("commit", places=[[topic, 0, 1]])
    # librdkafka's heartbeat may have found out first, and then every call fails for good.
    assert refused.value.code in (FENCED_INSTANCE_ID, KafkaError._FATAL)
    second.ask("commit", places=[[topic, 0, 0]])


def test_in_the_newer_protocol_the_second_instance_is_refused_while_the_first_lives(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup
) -> None:
    topic = new_topic(partitions=2)
    partitions, group = partitions_of(topic, 2), new_group(topic)
    stream = Stream(bootstrap, partitions)
    first = group.join(CONFLUENT_CONSUMER, instance="only")
    first.until_has(partitions)
    second = group.join(CONFLUENT_CONSUMER, instance="only")
    assert UNRELEASED_INSTANCE_ID in second.until_told("failed").said
    stream.write(10)
    group.until(lambda events: not missing(events, stream.ends), "the first stopped reading")
    assert not second.records()
