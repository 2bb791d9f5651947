"""What changes in the cluster, as decisions: from the image to operations on the store.

**Invariant:** decides and writes; sends no commands. Nothing in the image changes here: that happens
when the store has confirmed the operations.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from tidelog.cluster.facts import (
    FLUSHED,
    NOBODY,
    UNFLUSHED,
    BrokerEpoch,
    BrokerFacts,
    PartitionFacts,
    TopicFacts,
    encode_fields,
)
from tidelog.cluster.features import decide_first_levels
from tidelog.cluster.image import Image
from tidelog.cluster.paths import (
    BROKER_EPOCHS,
    BROKERS,
    CLUSTER,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_IDS,
    config_path,
    name_path,
)
from tidelog.cluster.store import Check, Create, Delete, Operation, Write

CLEANUP_POLICY = "cleanup.policy"
PRODUCER_ID_BLOCK_SIZE = 1_000


def encode_id(raw: bytes) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    return urlsafe_b64decode(f"{text}==")


def decode_name(data: bytes) -> bytes:
    """The id of a topic, as the node of its name has it."""
    return bytes.fromhex(json.loads(data)["id"])


def decide_first_start(image: Image, cluster_id: bytes, is_alone: bool = False) -> list[Operation]:
    """Create the missing nodes that every cluster has; raise the levels for a broker that has its store to
    itself."""
    operations: list[Operation] = []
    if CLUSTER not in image.versions:
        operations += [
            Create(CLUSTER, encode_fields(id=encode_id(cluster_id))),
            Create(PRODUCER_IDS, encode_fields(next=0)),
        ]
    if CONTROLLER_EPOCH not in image.versions:
        operations.append(Create(CONTROLLER_EPOCH, encode_fields(epoch=0)))
    is_new = CLUSTER not in image.versions
    return [*operations, *decide_first_levels(image, is_new, is_alone)]


def decide_fence(image: Image, node_id: int) -> list[Operation]:
    """Raise the epoch of a broker that is about to open its logs: requests of its previous process are
    refused from here on, and the broker no longer counts as registered."""
    last, path = image.broker_epochs.get(node_id), f"{BROKERS}/{node_id}"
    raised = BrokerEpoch(1, 1) if last is None else last._replace(epoch=last.epoch + 1)
    return [
        _write_or_create(image, f"{BROKER_EPOCHS}/{node_id}", raised.encode()),
        *([Delete(path)] if path in image.versions else []),
    ]


def decide_registration(
    image: Image, broker: BrokerFacts, is_trusted: bool, notes: Mapping[str, int]
) -> list[Operation]:
    """Register under the epoch in `broker`; `notes` has the epoch of each directory's note. A broker that may
    have lost unflushed records is trusted from this epoch on: its earlier memberships do not count."""
    node_id, epoch = broker.node_id, broker.epoch
    last, path = image.broker_epochs[node_id], f"{BROKERS}/{node_id}"
    since = last.trusted_since if is_trusted else epoch
    known = BrokerEpoch(epoch, since, broker.directory, False, epoch, notes)
    return [
        _write_or_create(image, f"{BROKER_EPOCHS}/{node_id}", known.encode()),
        *([Delete(path)] if path in image.versions else []),
        Create(path, broker.encode(), is_ephemeral=True),
    ]


def decide_unregistration(image: Image, node_id: int) -> list[Operation]:
    """Retire a broker that is gone: it is not expected back. Its epochs stay fenced."""
    last, path = image.broker_epochs[node_id], f"{BROKER_EPOCHS}/{node_id}"
    return [Write(path, last._replace(is_retired=True).encode(), image.versions[path])]


def _write_or_create(image: Image, path: str, data: bytes) -> Operation:
    version = image.versions.get(path)
    return Create(path, data) if version is None else Write(path, data, version)


def decide_candidacy(image: Image, node_id: int) -> list[Operation]:
    """Become the controller, under an epoch higher than any controller's before."""
    epoch = image.controller_epoch + 1
    return [
        Write(CONTROLLER_EPOCH, encode_fields(epoch=epoch), image.versions[CONTROLLER_EPOCH]),
        Create(CONTROLLER, encode_fields(id=node_id, epoch=epoch), is_ephemeral=True),
    ]


def decide_topic(
    image: Image,
    name: str,
    topic_id: bytes,
    config: Mapping[str, str],
    assignment: list[list[int]],
    is_flushed: bool = False,
) -> list[Operation]:
    """Create a topic. `is_flushed`: all committed records are flushed by the members from the beginning."""
    topic = TopicFacts(topic_id, name, dict(config), 0)
    operations: list[Operation] = [
        Create(name_path(name), encode_fields(id=topic_id.hex())),
        Create(topic.path(), _encode_topic(topic, config)),
    ]
    for index, replicas in enumerate(assignment):
        operations.append(Create(topic.path(index), _first_facts(image, replicas, is_flushed).encode()))
    return operations


def _first_facts(image: Image, replicas: list[int], is_flushed: bool) -> PartitionFacts:
    """A new partition is in sync on those of its replicas that are available."""
    members = {node_id: image.brokers[node_id].epoch for node_id in replicas if image.is_able(node_id)}
    leader = next(iter(members), NOBODY)
    in_sync, flush = (
        list(members) or list(replicas),
        FLUSHED if is_flushed and image.has_recovery else UNFLUSHED,
    )
    return PartitionFacts(leader, 0, in_sync, list(replicas), 0, [], members, flush=flush)


def decide_growth(
    image: Image, topic: TopicFacts, added: list[list[int]], is_flushed: bool = False
) -> list[Operation]:
    """Add partitions at the end; refused by the store if the topic has changed in between."""
    operations: list[Operation] = [Check(topic.path(), topic.version)]
    for index, replicas in enumerate(added, start=len(topic.partitions)):
        operations.append(Create(topic.path(index), _first_facts(image, replicas, is_flushed).encode()))
    return operations


def decide_deletion(topic: TopicFacts) -> list[Operation]:
    operations: list[Operation] = [Delete(topic.path(index)) for index in topic.partitions]
    return [*operations, Delete(topic.path()), Delete(name_path(topic.name))]


def decide_topic_config(topic: TopicFacts, config: Mapping[str, str]) -> list[Operation]:
    return [Write(topic.path(), _encode_topic(topic, config), topic.version)]


def _encode_topic(topic: TopicFacts, config: Mapping[str, str]) -> bytes:
    """The topic's node with its new settings, and whether it ever was compacted."""
    policies = topic.config.get(CLEANUP_POLICY, ""), config.get(CLEANUP_POLICY, "")
    marks = {"was_compacted": True} if topic.was_compacted or "compact" in "".join(policies) else {}
    return encode_fields(name=topic.name, config=dict(config), **marks)


def decide_config(image: Image, kind: str, name: str, config: Mapping[str, str]) -> list[Operation]:
    """Replace the settings of a broker, of all brokers, of a group or of client metrics."""
    path = config_path(kind, name)
    version = image.versions.get(path)
    if version is None:
        return [Create(path, encode_fields(**config))] if config else []
    return [Write(path, encode_fields(**config), version) if config else Delete(path, version)]


def decide_producer_ids(image: Image) -> list[Operation]:
    """Allocate the next block of producer ids to this broker."""
    fields = encode_fields(next=image.next_producer_id + PRODUCER_ID_BLOCK_SIZE)
    return [Write(PRODUCER_IDS, fields, image.versions[PRODUCER_IDS])]
