"""confluent-kafka (librdkafka) as a member of a group, in either protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.compat.client import Refused
from tests.compat.groups.drivers import CALL_SECONDS_MAX, POLL_SECONDS, Consumed, Told
from tests.compat.groups.spec import HEARTBEAT_MS, Partition, Place, Spec

MAGIC = b"CGMDv2:"
PASSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._UNKNOWN_TOPIC,
)
"""Told on the way and mended by librdkafka itself."""


class ConfluentMember:
    def __init__(self, spec: Spec) -> None:
        self._topics = [spec.pattern] if spec.pattern else list(spec.topics)
        self._consumer = Consumer(_settings(spec))

    def start(self, told: Told) -> None:
        self._consumer.subscribe(
            self._topics,
            on_assign=lambda _, partitions: told("assigned", _plain(partitions)),
            on_revoke=lambda _, partitions: told("revoked", _plain(partitions)),
            on_lost=lambda _, partitions: told("lost", _plain(partitions)),
        )

    def identity(self) -> tuple[str, int]:
        """librdkafka tells the generation only inside the bytes that a transaction is given."""
        packed = self._consumer.consumer_group_metadata()
        if packed is None:
            return "", -1
        assert packed.startswith(MAGIC)
        (generation,) = struct.unpack_from("=i", packed, len(MAGIC))
        return self._consumer.memberid() or "", generation

    def poll(self) -> list[Consumed]:
        consumed = []
        for message in _calling(self._consumer.consume, 100, POLL_SECONDS):
            error = message.error()
            if error is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                consumed.append(Consumed(topic, partition, offset, message.value().decode()))
            elif error.code() not in PASSING:
                raise Refused(error.code(), error.str())
        return consumed

    def hold(self) -> None:
        """Its callbacks come from within a poll."""

    def commit(self, places: Sequence[Place]) -> None:
        offsets = [_to_commit(each) for each in places]
        for done in _calling(self._consumer.commit, offsets=offsets, asynchronous=False):
            if done.error is not None:
                raise Refused(done.error.code(), done.error.str())

    def committed(self, partitions: Sequence[Partition]) -> list[Place]:
        asked = [TopicPartition(*partition) for partition in partitions]
        found = _calling(self._consumer.committed, asked, CALL_SECONDS_MAX)
        return [
            Place(
                each.topic,
                each.partition,
                each.offset,
                each.metadata or "",
                -1 if each.leader_epoch is None else each.leader_epoch,
            )
            for each in found
            if each.offset >= 0
        ]

    def position(self, partition: Partition) -> int:
        return int(self._consumer.position([TopicPartition(*partition)])[0].offset)

    def seek(self, partition: Partition, offset: int) -> None:
        _calling(self._consumer.seek, TopicPartition(*partition, offset))

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._consumer.pause([TopicPartition(*partition) for partition in partitions])

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._consumer.resume([TopicPartition(*partition) for partition in partitions])

    def close(self) -> None:
        with suppress(SystemError):  # the client's own, of a callback that came while it closed
            self._consumer.close()


def _settings(spec: Spec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": spec.bootstrap,
        "group.id": spec.group,
        "group.protocol": spec.protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": bool(spec.auto_commit_ms),
        "max.poll.interval.ms": spec.poll_interval_ms,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    if spec.auto_commit_ms:
        settings["auto.commit.interval.ms"] = spec.auto_commit_ms
    if spec.instance:
        settings["group.instance.id"] = spec.instance
    if spec.protocol == "classic":
        settings |= {"session.timeout.ms": spec.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings["partition.assignment.strategy"] = spec.strategy or "range,roundrobin"
    elif spec.strategy:
        settings["group.remote.assignor"] = spec.strategy
    return settings


def _to_commit(place: Place) -> TopicPartition:
    epoch: dict[str, Any] = {} if place.leader_epoch < 0 else {"leader_epoch": place.leader_epoch}
    return TopicPartition(*place.of, place.offset, metadata=place.metadata, **epoch)


def _calling(call: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return call(*arguments, **named)
    except KafkaException as failure:
        raise Refused(failure.args[0].code(), failure.args[0].str()) from failure


def _plain(partitions: Sequence[TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]
