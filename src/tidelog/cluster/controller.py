"""What changes in the cluster, as decisions: from the image to operations on the store.

**Invariant:** decides and writes; sends no commands. Nothing in the image changes here: that happens
when the store has confirmed the operations.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping

from tidelog.cluster.features import decide_first_levels
from tidelog.cluster.image import (
    BROKER_EPOCH,
    BROKERS,
    CLUSTER,
    NAMES,
    PRODUCER_IDS,
    BrokerFacts,
    Image,
    PartitionFacts,
    TopicFacts,
    config_path,
    encode_fields,
)
from tidelog.cluster.store import Check, Create, Delete, Operation, Write

PRODUCER_ID_BLOCK_SIZE = 1_000


def encode_id(raw: bytes) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def decide_first_start(image: Image, cluster_id: bytes) -> list[Operation]:
    """The nodes that every cluster has; nothing if they are there."""
    if CLUSTER in image.versions:
        return decide_first_levels(image, is_new=False)
    return [
        Create(CLUSTER, encode_fields(id=encode_id(cluster_id))),
        Create(PRODUCER_IDS, encode_fields(next=0)),
        Create(BROKER_EPOCH, encode_fields(epoch=0)),
        *decide_first_levels(image, is_new=True),
    ]


def decide_registration(image: Image, broker: BrokerFacts, was_clean: bool) -> list[Operation]:
    """Raise the broker epoch and register under it; after a crash, lead under new leader epochs.

    A machine that lost power may have lost the unsynced end of a log, and will give the same offsets
    again: the epoch tells the two apart.
    """
    epoch = image.broker_epoch + 1
    fields = encode_fields(epoch=epoch, host=broker.host, port=broker.port, rack=broker.rack)
    path = f"{BROKERS}/{broker.node_id}"
    operations: list[Operation] = [
        Write(BROKER_EPOCH, encode_fields(epoch=epoch), image.versions[BROKER_EPOCH]),
        Write(path, fields) if path in image.versions else Create(path, fields, is_ephemeral=True),
    ]
    if not was_clean:
        for topic in image.topics.values():
            operations += _decide_new_epochs(topic, broker.node_id)
    return operations


def _decide_new_epochs(topic: TopicFacts, node_id: int) -> list[Operation]:
    operations: list[Operation] = []
    for index, facts in topic.partitions.items():
        if facts.leader == node_id:
            raised = PartitionFacts(
                node_id, facts.leader_epoch + 1, facts.in_sync_replicas, facts.replicas, facts.version
            )
            operations.append(Write(topic.path(index), raised.encode(), facts.version))
    return operations


def decide_topic(
    name: str, topic_id: bytes, config: Mapping[str, str], assignment: list[list[int]]
) -> list[Operation]:
    topic = TopicFacts(topic_id, name, dict(config), 0)
    operations: list[Operation] = [
        Create(f"{NAMES}/{name}", encode_fields(id=topic_id.hex())),
        Create(topic.path(), encode_fields(name=name, config=topic.config)),
    ]
    for index, replicas in enumerate(assignment):
        facts = PartitionFacts(replicas[0], 0, list(replicas), list(replicas), 0)
        operations.append(Create(topic.path(index), facts.encode()))
    return operations


def decide_growth(topic: TopicFacts, added: list[list[int]]) -> list[Operation]:
    """More partitions, numbered on; refused if somebody changed the topic meanwhile."""
    operations: list[Operation] = [Check(topic.path(), topic.version)]
    for index, replicas in enumerate(added, start=len(topic.partitions)):
        facts = PartitionFacts(replicas[0], 0, list(replicas), list(replicas), 0)
        operations.append(Create(topic.path(index), facts.encode()))
    return operations


def decide_deletion(topic: TopicFacts) -> list[Operation]:
    operations: list[Operation] = [Delete(topic.path(index)) for index in topic.partitions]
    return [*operations, Delete(topic.path()), Delete(f"{NAMES}/{topic.name}")]


def decide_topic_config(topic: TopicFacts, config: Mapping[str, str]) -> list[Operation]:
    return [Write(topic.path(), encode_fields(name=topic.name, config=dict(config)), topic.version)]


def decide_config(image: Image, kind: str, name: str, config: Mapping[str, str]) -> list[Operation]:
    """The settings of a broker, of all brokers, of a group or of client metrics, as a whole."""
    path = config_path(kind, name)
    version = image.versions.get(path)
    if version is None:
        return [Create(path, encode_fields(**config))] if config else []
    return [Write(path, encode_fields(**config), version) if config else Delete(path, version)]


def decide_producer_ids(image: Image) -> list[Operation]:
    """Take the next block of producer ids for this broker."""
    fields = encode_fields(next=image.next_producer_id + PRODUCER_ID_BLOCK_SIZE)
    return [Write(PRODUCER_IDS, fields, image.versions[PRODUCER_IDS])]
