"""Kafka's `DumpLogSegments --offsets-decoder` understands every record of our `__consumer_offsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from bench.peers.kafka import Kafka
from confluent_kafka import Consumer, TopicPartition

from tests.compat.broker import running_broker
from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent
from tests.compat.java.tools import Dump, dump, files_of

TOPIC = "watched"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
}
RECORD = re.compile(r"^\| offset: .* key: (\{.*\}) payload: (.*)$")
OFFSET, CLASSIC, CONSUMER, MEMBER, TARGET, TARGET_MEMBER, CURRENT, PATTERN = (
    "1",
    "2",
    "3",
    "5",
    "6",
    "7",
    "8",
    "16",
)


class Printed(NamedTuple):
    """A record as the tool tells it; None for a value that ends its key."""

    kind: str
    key: Mapping[str, Any]
    value: Mapping[str, Any] | None


def consume(bootstrap: str, group_id: str, topic: str, **settings: str) -> None:
    """A member that gets both partitions, commits and leaves."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False, **named}
    )
    consumer.subscribe([topic])

    def is_assigned() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    try:
        eventually(is_assigned, f"{group_id} has got nothing")
        consumer.commit(offsets=[TopicPartition(TOPIC, 1, 7, metadata="here")], asynchronous=False)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def dumped(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Dump:
    log_dir = tmp_path_factory.mktemp("watched") / "logs"
    with running_broker(log_dir, SETTINGS) as bootstrap:
        Confluent(bootstrap).create_topic(TOPIC, 2, {})
        consume(bootstrap, "classic", TOPIC)
        consume(bootstrap, "static", TOPIC, group_instance_id="i-1")
        consume(bootstrap, "consumer", TOPIC, group_protocol="consumer")
        consume(bootstrap, "pattern", "^watch.*", group_protocol="consumer", group_instance_id="i-2")
    return dump(files_of(log_dir / "__consumer_offsets-0", ".log"), "--offsets-decoder")


@pytest.fixture(scope="module")
def printed(dumped: Dump) -> list[Printed]:
    found = (RECORD.match(line) for line in dumped.lines)
    return [_printed(match[1], match[2]) for match in found if match]


def _printed(key: str, value: str) -> Printed:
    told = json.loads(key)
    content = None if value == "<DELETE>" else json.loads(value)["data"]
    return Printed(told["type"], told["data"], content)


def last(printed: list[Printed], kind: str, group_id: str) -> Printed:
    """The last record of that kind with a value."""
    return [
        record
        for record in printed
        if record.kind == kind and group_id in record.key.values() and record.value is not None
    ][-1]


def test_every_record_is_told_without_a_complaint(dumped: Dump, printed: list[Printed]) -> None:
    assert dumped.complaints == ()
    assert len(printed) == sum(line.startswith("| offset: ") for line in dumped.lines)
    kinds = {OFFSET, CLASSIC, CONSUMER, MEMBER, TARGET, TARGET_MEMBER, CURRENT, PATTERN}
    assert {record.kind for record in printed} == kinds


@pytest.mark.parametrize("group_id", ["classic", "static", "consumer", "pattern"])
def test_a_committed_offset_is_told(printed: list[Printed], group_id: str) -> None:
    key, value = last(printed, OFFSET, group_id)[1:]
    assert key == {"group": group_id, "topic": TOPIC, "partition": 1}
    assert value is not None and (value["offset"], value["metadata"]) == (7, "here\0")


def test_a_classic_group_is_told_with_its_static_member(printed: list[Printed]) -> None:
    value = last(printed, CLASSIC, "static").value
    assert value is not None and (value["protocolType"], value["generation"]) == ("consumer", 1)
    (member,) = value["members"]
    assert member["groupInstanceId"] == "i-1"


def test_a_consumer_group_is_told_with_its_member(printed: list[Printed]) -> None:
    member = last(printed, MEMBER, "consumer").value
    assert member is not None and member["subscribedTopicNames"] == [TOPIC]
    current = last(printed, CURRENT, "consumer").value
    assert current is not None and current["assignedPartitions"][0]["partitions"] == [0, 1]
    pattern = last(printed, PATTERN, "pattern").value
    assert pattern is not None and pattern["topics"] == [TOPIC]
