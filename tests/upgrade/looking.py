"""What clients find in the data of `tests.upgrade.stored` when a broker of today has them.

**Invariant:** offsets, records and places of groups are read by way of brokers, files by nobody's help.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from tests.chaos.awaiting import await_that
from tests.upgrade.stored import (
    COMMITTED,
    GROUPS_PARTITIONS,
    GROUPS_TOPIC,
    RECORDS,
    TIDES,
    places,
    record,
)
from tidelog.cluster.features import NAME, SUPPORTED
from tidelog.groups.placement import former_place_of, place_of

ANSWER_S = 30.0
NEWEST_LEVEL = next(feature.newest_level for feature in SUPPORTED if feature.name == NAME)
FORMER_PLACES = {group: {former_place_of(group, GROUPS_PARTITIONS)} for group in COMMITTED}
PLACES = {group: {place_of(group, GROUPS_PARTITIONS)} for group in COMMITTED}
_KIND_AND_SIZE = struct.Struct(">hh")
_OWN_KIND = 30_000  # of records that Kafka does not know

Place = tuple[str, int]


def _consumer(bootstrap_servers: str, group: str = "looking") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )


def read_all(
    bootstrap_servers: str, wanted: Iterable[Place], at_least: int = 0
) -> dict[Place, list[Message]]:
    """Every record of these partitions, from offset 0 to the end, when so many are committed: after a crash
    the high watermark comes back with the next flush."""
    consumer = _consumer(bootstrap_servers)
    found: dict[Place, list[Message]] = {place: [] for place in wanted}
    unread = {place: end for place in found if (end := _end_offset(consumer, place, at_least)) > 0}
    consumer.assign([TopicPartition(*place, 0) for place in unread])
    while unread:
        message = consumer.poll(ANSWER_S)
        assert message is not None, f"not read to their ends: {unread}"
        assert message.error() is None, message.error()
        place = str(message.topic()), message.partition() or 0
        found[place].append(message)
        if (message.offset() or 0) + 1 == unread.get(place):
            del unread[place]
    consumer.close()
    return found


def _end_offset(consumer: Consumer, place: Place, at_least: int) -> int:
    """When there is a leader that knows it."""
    bounds: list[tuple[int, int]] = [(0, -1)]

    def is_known() -> bool:
        with suppress(KafkaException):
            consumer.list_topics(place[0], timeout=ANSWER_S)  # else it believes for minutes that nobody leads
            bounds.append(consumer.get_watermark_offsets(TopicPartition(*place), timeout=ANSWER_S))
        return bounds[-1][1] >= at_least

    await_that(is_known, f"nobody knows {at_least} records of {place}", ANSWER_S)
    start_offset, end_offset = bounds[-1]
    assert start_offset == 0, f"{place} begins at {start_offset}"
    return end_offset


def check_records(bootstrap_servers: str, wanted: Iterable[Place], more: int = 0) -> None:
    """Each has all of its records, and as many that came later."""
    for (topic, index), messages in read_all(bootstrap_servers, wanted, RECORDS + more).items():
        assert [each.offset() for each in messages] == [*range(RECORDS + more)]
        found = [(each.key(), each.value(), each.timestamp()[1]) for each in messages]
        assert found == [record(topic, index, number) for number in range(RECORDS + more)], (topic, index)


def append(bootstrap_servers: str, wanted: Iterable[Place], number: int) -> None:
    """One more record to each, which all who are in sync have when this returns."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    for topic, index in wanted:
        key, value, timestamp = record(topic, index, number)
        producer.produce(
            topic,
            value,
            key,
            index,
            on_delivery=lambda error, _: failures.append(error),
            timestamp=timestamp,
        )
    assert producer.flush(ANSWER_S) == 0
    assert not any(failures), failures


def leader_epochs(bootstrap_servers: str, wanted: Iterable[Place]) -> list[int | None]:
    """Under which the last record of each was written."""
    return [messages[-1].leader_epoch() for messages in read_all(bootstrap_servers, wanted).values()]


def leader(bootstrap_servers: str, place: Place) -> int:
    """Who leads a partition, or -1. All topics are asked for: clients ask again for one that nobody leads."""
    topic, index = place
    found = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=ANSWER_S)
    return int(found.topics[topic].partitions[index].leader)


def committed(bootstrap_servers: str) -> dict[str, set[int]]:
    """What each group has committed in all partitions."""
    found = {}
    for group in COMMITTED:
        consumer = _consumer(bootstrap_servers, group)
        offsets = consumer.committed([TopicPartition(*place) for place in places(TIDES)], timeout=ANSWER_S)
        found[group] = {each.offset for each in offsets}
        consumer.close()
    return found


def group_places(bootstrap_servers: str) -> dict[str, set[int]]:
    """The partitions that have something of a group, as whoever loads them would find it."""
    latest: dict[tuple[int, bytes], object] = {}
    for (_, index), messages in read_all(
        bootstrap_servers, [(GROUPS_TOPIC, index) for index in range(GROUPS_PARTITIONS)]
    ).items():
        for each in messages:
            latest[index, bytes(each.key() or b"")] = each.value()
    found: dict[str, set[int]] = {}
    for (index, key), value in latest.items():
        kind, size = _KIND_AND_SIZE.unpack_from(key.ljust(_KIND_AND_SIZE.size, b"\0"))
        if value is not None and kind < _OWN_KIND:
            name = key[_KIND_AND_SIZE.size : _KIND_AND_SIZE.size + size].decode()
            found.setdefault(name, set()).add(index)
    return found


def have_moved(bootstrap_servers: str) -> bool:
    return group_places(bootstrap_servers) == PLACES


def raise_level(bootstrap_servers: str) -> None:
    """As an operator does it."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.update_features({NAME: NEWEST_LEVEL})
    finally:
        admin.close()
