"""The cluster as last seen in the store: brokers, topics, partitions, settings.

**Invariant:** changes only by what the store has confirmed or shown, and never back to an older version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.cluster.changes import (
    BrokerConfigured,
    BrokersChanged,
    Change,
    ControllerChanged,
    FeaturesChanged,
    QuotasChanged,
    TopicChanged,
    TopicConfigured,
)
from tidelog.cluster.facts import FLUSHED, NOBODY, BrokerEpoch, BrokerFacts, PartitionFacts, TopicFacts
from tidelog.cluster.paths import (
    BROKER_CONFIG,
    BROKER_EPOCHS,
    CLIENT_METRICS_CONFIG,
    CLUSTER,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    GROUP_CONFIG,
    PRODUCER_IDS,
    QUOTA_CONFIG,
    TOPICS,
    Kind,
    Place,
    is_topic_path,
    place_of,
)
from tidelog.cluster.store import Create, Delete, Node, Operation, Write

RECOVERY_LEVEL = 2  # of tidelog.version


def _fold(name: str) -> str:
    return name.replace(".", "_")


class Image:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.generation = 0
        self.brokers: dict[int, BrokerFacts] = {}
        self.topics: dict[str, TopicFacts] = {}
        self.topics_by_id: dict[bytes, TopicFacts] = {}
        self.topics_epoch = 0  # raised whenever a topic is created, deleted or grows
        self._folded_names: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.configs: dict[str, dict[str, dict[str, str]]] = {
            BROKER_CONFIG: {},
            CLIENT_METRICS_CONFIG: {},
            GROUP_CONFIG: {},
            QUOTA_CONFIG: {},
        }
        self.client_metrics_epoch = 0  # raised with every change of them
        self.scram: dict[str, dict[str, dict[str, Any]]] = {}  # by user and mechanism
        self.broker_epochs: dict[int, BrokerEpoch] = {}
        self.controller_id = NOBODY
        self.controller_epoch = 0  # the last controller epoch,
        self.controller_own_epoch = NOBODY  # and that of the present controller
        self.next_producer_id = 0
        self.features_epoch = -1
        self.feature_levels: dict[str, int] = {}
        # While groups move between partitions: the partitions that have received all of theirs.
        self.groups_moved: frozenset[int] | None = None

    @property
    def client_metrics(self) -> dict[str, dict[str, str]]:
        return self.configs[CLIENT_METRICS_CONFIG]

    def clash_of(self, name: str) -> str | None:
        """A topic whose name differs only in '.' and '_', which Kafka's metrics cannot tell apart."""
        found = self._folded_names.get(_fold(name))
        return found if found != name else None

    def is_trusted(self, facts: PartitionFacts, node_id: int) -> bool:
        """Whether a member has lost nothing since it was admitted."""
        known = self.broker_epochs.get(node_id)
        return known is not None and facts.stamp(node_id) >= known.trusted_since

    def counts(self, facts: PartitionFacts, node_id: int) -> bool:
        """Whether a member has all committed records: it lost nothing, or only unflushed records while all
        committed records are flushed."""
        known, stamp = self.broker_epochs.get(node_id), facts.members.get(node_id, 0)
        if known is None:
            return False
        return stamp >= known.trusted_since or (stamp >= 0 and facts.flush == FLUSHED)

    @property
    def has_recovery(self) -> bool:
        """Whether all brokers support the node fields for recovery and flushing."""
        return self.feature_levels.get("tidelog.version", 1) >= RECOVERY_LEVEL

    def is_known(self, node_id: int) -> bool:
        """Whether a broker belongs to the cluster, available or not."""
        known = self.broker_epochs.get(node_id)
        return known is not None and not known.is_retired

    def is_able(self, node_id: int) -> bool:
        """Whether a broker is available and not stopping."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.is_stopping

    def addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """The addresses of the brokers with that listener; a broker without it is hidden from its clients."""
        brokers = self.brokers.items()
        return {node_id: each.listeners[listener] for node_id, each in brokers if listener in each.listeners}

    def take(self, paths: Iterable[str], nodes: dict[str, Node]) -> list[Change]:
        """Apply what was read at those paths; return the changes. Parents come before children because paths
        are sorted, and are removed after them; a topic is removed with its partitions."""
        changes: list[Change] = []
        gone = {path: None for path in paths if path not in nodes and path in self.versions}
        for path in list(gone):
            if is_topic_path(path):
                topic = self.topics_by_id[bytes.fromhex(place_of(path).name)]
                gone |= dict.fromkeys(map(topic.path, topic.partitions))
        for path in sorted(gone, reverse=True):
            changes += self._delete(path)
        for path in sorted(nodes):
            data, version = nodes[path]
            if self._is_news(path, version):
                changes += self._set(path, data, version)
        return list(dict.fromkeys(changes))

    def _is_news(self, path: str, version: int) -> bool:
        known = self.versions.get(path)
        if known is None or not path.startswith((TOPICS + "/", BROKER_EPOCHS + "/")):
            return True
        return version > known  # a node that is never recreated, read at an older version

    def apply(self, operations: Iterable[Operation]) -> list[Change]:
        """Apply a confirmed request; return the changes."""
        changes: list[Change] = []
        for operation in operations:
            if isinstance(operation, Create):
                changes += self._set(operation.path, operation.data, 0)
            elif isinstance(operation, Write):
                version = self.versions.get(operation.path, -1) + 1
                changes += self._set(operation.path, operation.data, version)
            elif isinstance(operation, Delete):
                changes += self._delete(operation.path)
        return list(dict.fromkeys(changes))

    def _set(self, path: str, data: bytes, version: int) -> Sequence[Change]:
        place = place_of(path)
        kind = place.kind
        if kind is Kind.NOTICE:
            return ()  # a notice lists paths to read; it changes no fact
        fields = json.loads(data) if data else {}
        changes: Sequence[Change] = ()
        if kind is Kind.PARTITION:
            topic = self.topics_by_id.get(bytes.fromhex(place.name))
            if topic is None:
                return ()  # the topic was deleted while its partitions were read
            self.topics_epoch += path not in self.versions
            topic.partitions[int(place.part)] = PartitionFacts.decode(fields, version)
            changes = (TopicChanged(topic.topic_id),)
        elif kind is Kind.TOPIC:
            self.topics_epoch += path not in self.versions
            changes = self._set_topic(bytes.fromhex(place.name), fields, version)
        elif kind is Kind.BROKER:
            self.brokers[int(place.name)] = BrokerFacts.decode(int(place.name), fields)
            changes = (BrokersChanged(),)
        elif kind is Kind.BROKER_EPOCH:
            self.broker_epochs[int(place.name)] = BrokerEpoch.decode(fields)
            changes = (BrokersChanged(),)
        elif kind is Kind.CONFIG and place.part in self.configs:
            self.configs[place.part][place.name] = fields
            changes = self._on_configured(place)
        elif kind is Kind.SCRAM:
            self.scram[place.name] = fields
        elif kind is Kind.SINGLE:
            changes = self._set_single(path, fields)
        self.versions[path] = version
        return changes

    def _set_single(self, path: str, fields: dict[str, Any]) -> Sequence[Change]:
        if path == CLUSTER:
            self.cluster_id, self.generation = fields["id"], fields.get("generation", 0)
        elif path == PRODUCER_IDS:
            self.next_producer_id = fields["next"]
        elif path == FEATURES:
            self.features_epoch, self.feature_levels = fields["epoch"], fields["levels"]
            moved = fields.get("groups_moved")
            self.groups_moved = frozenset(moved) if moved is not None else None
            return (FeaturesChanged(),)
        elif path == CONTROLLER_EPOCH:
            self.controller_epoch = fields["epoch"]
        elif path == CONTROLLER:
            self.controller_id, self.controller_own_epoch = fields["id"], fields["epoch"]
            return (ControllerChanged(),)
        return ()

    def _set_topic(self, topic_id: bytes, fields: dict[str, Any], version: int) -> Sequence[Change]:
        topic = TopicFacts(topic_id, fields["name"], fields["config"], version)
        topic.was_compacted = fields.get("was_compacted", False)
        known = self.topics_by_id.get(topic_id)
        if known is not None:
            topic.partitions = known.partitions
        self.topics[topic.name] = self.topics_by_id[topic_id] = topic
        self._folded_names[_fold(topic.name)] = topic.name
        return TopicConfigured(topic_id), TopicChanged(topic_id)

    def _on_configured(self, place: Place) -> Sequence[Change]:
        self.client_metrics_epoch += place.part == CLIENT_METRICS_CONFIG
        if place.part == QUOTA_CONFIG:
            return (QuotasChanged(),)
        return (BrokerConfigured(place.name),) if place.part == BROKER_CONFIG else ()

    def _delete(self, path: str) -> Sequence[Change]:
        self.versions.pop(path, None)
        place = place_of(path)
        kind = place.kind
        if kind in (Kind.TOPIC, Kind.PARTITION):
            return self._delete_topic(bytes.fromhex(place.name), place)
        if kind is Kind.BROKER:
            self.brokers.pop(int(place.name), None)
        if kind in (Kind.BROKER, Kind.BROKER_EPOCH):
            return (BrokersChanged(),)
        if kind is Kind.CONFIG and place.part in self.configs:
            self.configs[place.part].pop(place.name, None)
            return self._on_configured(place)
        if kind is Kind.SCRAM:
            self.scram.pop(place.name, None)
        elif path == CONTROLLER:
            self.controller_id = NOBODY
            return (ControllerChanged(),)
        return ()

    def _delete_topic(self, topic_id: bytes, place: Place) -> Sequence[Change]:
        self.topics_epoch += 1
        topic = self.topics_by_id.get(topic_id)
        if topic is not None and place.kind is Kind.PARTITION:
            topic.partitions.pop(int(place.part), None)
        elif topic is not None:
            del self.topics_by_id[topic_id]
            if self.topics.get(topic.name) is topic:
                del self.topics[topic.name]
                self._folded_names.pop(_fold(topic.name), None)
        return (TopicChanged(topic_id),)
