"""What a topic may be called, by Kafka's rules, and what to say of one that is not there."""

from __future__ import annotations

from collections.abc import Collection, Container

from tidelog.base.limits import TOPIC_NAME_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.cluster.facts import NOBODY, PartitionFacts, TopicFacts
from tidelog.cluster.image import Image
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import INTERNAL_TOPICS

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def name_problem(name: str) -> str | None:
    """Why a topic cannot have that name, or None. No more of it is quoted than a topic's name can have."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        quoted = f"{name[:TOPIC_NAME_LENGTH_MAX]}…"
        return f"Topic name is invalid: the length of '{quoted}' is longer than {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def facts_of(image: Image, topic: str | bytes, index: int) -> PartitionFacts | None:
    """What the cluster knows of a partition, wherever it is."""
    found = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    return found.partitions.get(index) if found is not None else None


def leader_of(broker: Broker, topic: TopicFacts, index: int, reachable: Container[int]) -> int:
    """Who leads a partition, as far as clients can use it: they reach only some of the brokers."""
    facts, here = topic.partitions[index], broker.partitions.find(topic.topic_id, index)
    if facts.leader not in reachable:
        return NOBODY
    if facts.leader == broker.node_id and (here is None or not here.is_open):
        return NOBODY
    return facts.leader


def offline_replicas(broker: Broker, topic: TopicFacts, index: int, reachable: Container[int]) -> list[int]:
    """Replicas whose broker clients do not reach, and this broker's if its disk is gone."""
    here = broker.partitions.find(topic.topic_id, index)
    is_lost = here is None or not here.is_open
    return [
        node_id
        for node_id in topic.partitions[index].replicas
        if node_id not in reachable or (node_id == broker.node_id and is_lost)
    ]


def controller_told(broker: Broker, reachable: Collection[int]) -> int:
    """Whom clients send what is the controller's to: as in KRaft a live broker, which hands it on. Clients
    would wait for a controller that has died, and the broker asked has just answered them."""
    return broker.node_id if broker.node_id in reachable else min(reachable, default=NOBODY)


def unknown_error(topic: str | bytes, is_known: bool) -> ErrorCode:
    """For a partition that is nowhere: is it the topic's id that nobody has, or only its index?"""
    if isinstance(topic, str) or is_known:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.unknown_topic_id


def missing_error(image: Image, topic: str | bytes, index: int) -> ErrorCode:
    """For a partition that is not here: it is elsewhere, or nowhere."""
    if facts_of(image, topic, index) is not None:
        return ErrorCode.not_leader_or_follower
    return unknown_error(topic, topic in image.topics_by_id)
