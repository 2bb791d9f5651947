"""The facts of the cluster as last seen in the store: brokers, topics, partitions.

| node                        | fields                                             | written by             |
|-----------------------------|----------------------------------------------------|------------------------|
| `/cluster`                  | id                                                 | the first broker, once |
| `/producer-ids`             | next: the first id not yet given away              | any broker, if-version |
| `/features`                 | epoch; levels: feature to its finalized level      | the controller         |
| `/controller-epoch`         | epoch; the node is never made anew                 | who becomes controller |
| `/controller`               | id, epoch (ephemeral)                              | the same, in one multi |
| `/brokers/epochs/<id>`      | epoch, registered, trusted_since,                  | that broker, at start  |
|                             | directory, directories; never made anew            |                        |
|                             | is_retired: left out unless it was unregistered    | the controller         |
| `/brokers/ids/<id>`         | epoch, host, port, rack, directory, is_stopping;   | that broker            |
|                             | listeners: name to host and port (ephemeral)       |                        |
| `/names/<name>`             | id of the topic that has the name now              | the controller         |
| `/config/<kind>/<name>`     | key to text; kinds: brokers, client-metrics,       | the controller         |
|                             | groups. Of brokers a number, or `default` for all  |                        |
| `/scram/<user>`             | mechanism to iterations, salt, stored_key and      | the controller         |
|                             | server_key in base64                               |                        |
| `/topics/<id>`              | name, config                                       | the controller         |
| `/topics/<id>/<partition>`  | leader, leader_epoch, isr, eligible, replicas;     | the leader, controller |
|                             | members: the stamp of each of isr, eligible        |                        |
|                             | answers, is_unclean: left out unless it recovers   | replicas, controller   |
|                             | flush: left out unless members flush what counts   | the leader             |
|                             | adding, removing: left out if replicas do not move |                        |
| `/changes/<number>`         | paths that the same multi has written              | whoever wrote them     |

**Invariant:** changes only by what the store has confirmed or shown, and never back to an older version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from tidelog.base.forms import PLAINTEXT
from tidelog.cluster.store import Create, Delete, Node, Operation, Write

CLUSTER = "/cluster"
PRODUCER_IDS = "/producer-ids"
FEATURES = "/features"
CONTROLLER_EPOCH = "/controller-epoch"
CONTROLLER = "/controller"
BROKER_EPOCHS = "/brokers/epochs"
BROKERS = "/brokers/ids"
NAMES = "/names"
CONFIG = "/config"
BROKER_CONFIG, CLIENT_METRICS_CONFIG, GROUP_CONFIG = "brokers", "client-metrics", "groups"
DEFAULT_BROKER = "default"
SCRAM = "/scram"
TOPICS = "/topics"
CHANGES = "/changes"
# What a store has whose nodes must have parents, and the tree from its top, notices first.
FOLDERS = (
    "/brokers",
    BROKER_EPOCHS,
    BROKERS,
    CHANGES,
    CONFIG,
    *(f"{CONFIG}/{kind}" for kind in (BROKER_CONFIG, CLIENT_METRICS_CONFIG, GROUP_CONFIG)),
    NAMES,
    SCRAM,
    TOPICS,
)
ROOTS = (
    CHANGES,
    CLUSTER,
    PRODUCER_IDS,
    FEATURES,
    CONTROLLER_EPOCH,
    CONTROLLER,
    "/brokers",
    CONFIG,
    NAMES,
    SCRAM,
    TOPICS,
)
RECOVERY_LEVEL = 2  # of tidelog.version
# Whether what is committed is on the disks of the members (R15): not at all; from here on; all of it.
UNFLUSHED, FLUSHING, FLUSHED = 0, 1, 2
NOBODY = -1
NOWHERE = -1
# Stamps of members that count for nothing: their logs are torn, or may have lost anything. One that cannot be
# opened and has lost nothing keeps its stamp, below `OFFLINE_STAMP`.
TORN_STAMP, LOST_STAMP, OFFLINE_STAMP = -1, -2, -10


def escape_name(name: str) -> str:
    """As a part of a path. People call things anything; dots alone mean something else to some stores."""
    return quote(name, safe="").replace(".", "%2E")


def config_path(kind: str, name: str) -> str:
    return f"{CONFIG}/{kind}/{escape_name(name)}"


def is_topic_path(path: str) -> bool:
    return path.startswith(TOPICS + "/") and path.count("/") == 2


def encode_fields(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _fold(name: str) -> str:
    return name.replace(".", "_")


@dataclass(slots=True)
class BrokerFacts:
    node_id: int
    host: str
    port: int
    rack: str
    epoch: int
    directory: str = ""  # the id of its first log directory: who else comes with this node id is another
    is_stopping: bool = False
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)  # what clients of each are told
    features: dict[str, tuple[int, int]] = field(default_factory=dict)  # the levels of each that it knows

    def __post_init__(self) -> None:
        if not self.listeners:
            self.listeners = {PLAINTEXT: (self.host, self.port)}

    def encode(self) -> bytes:
        return encode_fields(
            epoch=self.epoch,
            host=self.host,
            port=self.port,
            rack=self.rack,
            directory=self.directory,
            is_stopping=self.is_stopping,
            listeners=self.listeners,
            features=self.features,
        )


class BrokerEpoch(NamedTuple):
    """A broker as the store has known it. What it had before `trusted_since` may have lost what was not
    flushed. A version before wrote no more than the first four fields, and raised the epoch only to register.
    """

    epoch: int
    trusted_since: int
    directory: str = ""  # of its last registration, the first
    is_retired: bool = False  # it is not meant to come back
    registered: int = -1  # the epoch of its last registration; a start raises the epoch before
    directories: tuple[str, ...] = ()  # of its last registration, each with a note of that epoch

    def encode(self) -> bytes:
        fields = {
            "epoch": self.epoch,
            "trusted_since": self.trusted_since,
            "directory": self.directory,
            "registered": self.registered,
        }
        if self.is_retired:
            fields["is_retired"] = True
        if self.directories:
            fields["directories"] = list(self.directories)
        return encode_fields(**fields)


class Answer(NamedTuple):
    """Where the log of a replica ends, said under a broker epoch, while nobody leads."""

    broker_epoch: int
    leader_epoch: int  # of its last record
    end_offset: int  # or NOWHERE: it cannot be opened


@dataclass(slots=True)
class PartitionFacts:
    leader: int
    leader_epoch: int
    in_sync_replicas: list[int]
    replicas: list[int]
    version: int
    eligible: list[int] = field(default_factory=list)  # left an ISR below the minimum, with all that counts
    members: dict[int, int] = field(default_factory=dict)  # the broker epoch each of these two came in with;
    # or what it has lost since, below zero
    adding: list[int] = field(default_factory=list)  # of the replicas, while they move (KIP-455)
    removing: list[int] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)  # of this leader epoch, if it has no leader
    is_unclean: bool = False  # an administrator has asked for an unclean election
    flush: int = UNFLUSHED

    @property
    def listed(self) -> list[int]:
        """The members: in sync, or eligible."""
        return [*self.in_sync_replicas, *self.eligible]

    def stamp(self, node_id: int) -> int:
        return self.members.get(node_id, 0)

    def without_leader(self) -> PartitionFacts:
        """Nobody leads; an epoch later, so that nobody goes on leading."""
        return replace(self, leader=NOBODY, leader_epoch=self.leader_epoch + 1, answers={}, is_unclean=False)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replicas_before(self) -> list[int]:
        """Those that were there before replicas began to move."""
        return [node_id for node_id in self.replicas if node_id not in self.adding]

    @property
    def replicas_after(self) -> list[int]:
        """Those that will be there when replicas have moved."""
        return [node_id for node_id in self.replicas if node_id not in self.removing]

    def encode(self) -> bytes:
        move = {"adding": self.adding, "removing": self.removing} if self.is_moving else {}
        recovery: dict[str, Any] = {}
        if self.answers:
            recovery["answers"] = {str(node_id): answer for node_id, answer in self.answers.items()}
        if self.is_unclean:
            recovery["is_unclean"] = True
        if self.flush:
            recovery["flush"] = self.flush
        return encode_fields(
            **move,
            **recovery,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.in_sync_replicas,
            eligible=self.eligible,
            members={str(node_id): epoch for node_id, epoch in self.members.items()},
            replicas=self.replicas,
        )


@dataclass(slots=True)
class TopicFacts:
    topic_id: bytes
    name: str
    config: dict[str, str]
    version: int
    partitions: dict[int, PartitionFacts] = field(default_factory=dict)
    was_compacted: bool = False  # it is, or was, compacted: records may be missing from its logs

    def path(self, partition: int | None = None) -> str:
        own = f"{TOPICS}/{self.topic_id.hex()}"
        return own if partition is None else f"{own}/{partition}"


class Image:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.brokers: dict[int, BrokerFacts] = {}
        self.topics: dict[str, TopicFacts] = {}
        self.topics_by_id: dict[bytes, TopicFacts] = {}
        self.topics_epoch = 0  # raised whenever a topic comes, goes or grows
        self._folded_names: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.configs: dict[str, dict[str, dict[str, str]]] = {
            BROKER_CONFIG: {},
            CLIENT_METRICS_CONFIG: {},
            GROUP_CONFIG: {},
        }
        self.client_metrics_epoch = 0  # raised with every change of them
        self.scram: dict[str, dict[str, dict[str, Any]]] = {}  # by user and mechanism
        self.broker_epochs: dict[int, BrokerEpoch] = {}
        self.controller_id = NOBODY
        self.controller_epoch = 0  # the last one that there was,
        self.controller_own_epoch = NOBODY  # and that of the controller
        self.next_producer_id = 0
        self.features_epoch = -1
        self.feature_levels: dict[str, int] = {}
        # While groups move between partitions: the partitions that have all of theirs.
        self.groups_moved: frozenset[int] | None = None

    @property
    def client_metrics(self) -> dict[str, dict[str, str]]:
        return self.configs[CLIENT_METRICS_CONFIG]

    def clash_of(self, name: str) -> str | None:
        """A topic that the name differs from only by '.' and '_', which Kafka's metrics cannot tell apart."""
        found = self._folded_names.get(_fold(name))
        return found if found != name else None

    def is_trusted(self, facts: PartitionFacts, node_id: int) -> bool:
        """Whether a member has kept all that it had when it was taken in."""
        known = self.broker_epochs.get(node_id)
        return known is not None and facts.stamp(node_id) >= known.trusted_since

    def counts(self, facts: PartitionFacts, node_id: int) -> bool:
        """Whether a member has all that was committed: it has kept everything, or has lost no more than what
        was not flushed where all that was committed is flushed."""
        known, stamp = self.broker_epochs.get(node_id), facts.members.get(node_id, 0)
        if known is None:
            return False
        return stamp >= known.trusted_since or (stamp >= 0 and facts.flush == FLUSHED)

    @property
    def has_recovery(self) -> bool:
        """Whether all brokers know what stands in a partition that recovers, or has flushed all."""
        return self.feature_levels.get("tidelog.version", 1) >= RECOVERY_LEVEL

    def is_known(self, node_id: int) -> bool:
        """Whether a broker belongs to the cluster, there or not."""
        known = self.broker_epochs.get(node_id)
        return known is not None and not known.is_retired

    def is_able(self, node_id: int) -> bool:
        """Whether a broker is there, and means to stay."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.is_stopping

    def addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """The brokers that clients of a listener can reach, and where; one without it is hidden from them."""
        brokers = self.brokers.items()
        return {node_id: each.listeners[listener] for node_id, each in brokers if listener in each.listeners}

    def take(self, paths: Iterable[str], nodes: dict[str, Node]) -> list[str]:
        """Take what those paths were found to have; the ones that differ from what was known. Parents come
        before children because paths are sorted, and go after them; a topic takes its partitions along."""
        changed = []
        gone = {path: None for path in paths if path not in nodes and path in self.versions}
        for path in list(gone):
            if is_topic_path(path):
                topic = self.topics_by_id[bytes.fromhex(path.split("/")[2])]
                gone |= dict.fromkeys(map(topic.path, topic.partitions))
        for path in sorted(gone, reverse=True):
            self._delete(path)
            changed.append(path)
        for path in sorted(nodes):
            data, version = nodes[path]
            if self._is_news(path, data, version):
                self._set(path, data, version)
                changed.append(path)
        return changed

    def _is_news(self, path: str, data: bytes, version: int) -> bool:
        known = self.versions.get(path)
        if known is None or not path.startswith((TOPICS + "/", BROKER_EPOCHS + "/")):
            return True
        return version > known  # a node that is never made anew, seen as it once was

    def apply(self, operations: Iterable[Operation]) -> None:
        """What a confirmed request did to the tree."""
        for operation in operations:
            if isinstance(operation, Create):
                self._set(operation.path, operation.data, 0)
            elif isinstance(operation, Write):
                self._set(operation.path, operation.data, self.versions.get(operation.path, -1) + 1)
            elif isinstance(operation, Delete):
                self._delete(operation.path)

    def _set(self, path: str, data: bytes, version: int) -> None:
        if path.startswith(CHANGES):
            return  # notices say what to read; they are no facts
        fields = json.loads(data) if data else {}
        parts = path.split("/")
        if path == CLUSTER:
            self.cluster_id = fields["id"]
        elif path == PRODUCER_IDS:
            self.next_producer_id = fields["next"]
        elif path == FEATURES:
            self.features_epoch, self.feature_levels = fields["epoch"], fields["levels"]
            moved = fields.get("groups_moved")
            self.groups_moved = frozenset(moved) if moved is not None else None
        elif path == CONTROLLER_EPOCH:
            self.controller_epoch = fields["epoch"]
        elif path == CONTROLLER:
            self.controller_id, self.controller_own_epoch = fields["id"], fields["epoch"]
        elif path.startswith(BROKER_EPOCHS + "/"):
            self.broker_epochs[int(parts[3])] = BrokerEpoch(
                fields["epoch"],
                fields["trusted_since"],
                fields.get("directory", ""),
                fields.get("is_retired", False),
                fields.get("registered", fields["epoch"]),
                tuple(fields.get("directories", ())),
            )
        elif path.startswith(BROKERS + "/"):
            self._set_broker(int(parts[3]), fields)
        elif path.startswith(CONFIG + "/") and parts[2] in self.configs and len(parts) == 4:
            self.configs[parts[2]][unquote(parts[3])] = fields
            self.client_metrics_epoch += parts[2] == CLIENT_METRICS_CONFIG
        elif path.startswith(SCRAM + "/"):
            self.scram[unquote(parts[2])] = fields
        elif path.startswith(TOPICS + "/"):
            if len(parts) == 4 and bytes.fromhex(parts[2]) not in self.topics_by_id:
                return  # the topic was deleted while its partitions were read
            self.topics_epoch += path not in self.versions
            self._set_topic(parts, fields, version)
        self.versions[path] = version

    def _set_broker(self, node_id: int, fields: dict[str, Any]) -> None:
        self.brokers[node_id] = BrokerFacts(
            node_id,
            fields["host"],
            fields["port"],
            fields["rack"],
            fields["epoch"],
            fields["directory"],
            fields["is_stopping"],
            {name: (host, port) for name, (host, port) in fields.get("listeners", {}).items()},
            {name: (oldest, newest) for name, (oldest, newest) in fields.get("features", {}).items()},
        )

    def _set_topic(self, parts: list[str], fields: dict[str, Any], version: int) -> None:
        topic_id = bytes.fromhex(parts[2])
        if len(parts) == 3:
            topic = TopicFacts(topic_id, fields["name"], fields["config"], version)
            topic.was_compacted = fields.get("was_compacted", False)
            known = self.topics_by_id.get(topic_id)
            if known is not None:
                topic.partitions = known.partitions
            self.topics[topic.name] = self.topics_by_id[topic_id] = topic
            self._folded_names[_fold(topic.name)] = topic.name
            return
        self.topics_by_id[topic_id].partitions[int(parts[3])] = PartitionFacts(
            fields["leader"],
            fields["leader_epoch"],
            fields["isr"],
            fields["replicas"],
            version,
            fields.get("eligible", []),
            {int(node_id): epoch for node_id, epoch in fields.get("members", {}).items()},
            fields.get("adding", []),
            fields.get("removing", []),
            {int(node_id): Answer(*answer) for node_id, answer in fields.get("answers", {}).items()},
            fields.get("is_unclean", False),
            fields.get("flush", UNFLUSHED),
        )

    def _delete(self, path: str) -> None:
        self.versions.pop(path, None)
        parts = path.split("/")
        if path == CONTROLLER:
            self.controller_id = NOBODY
        elif path.startswith(BROKERS + "/"):
            self.brokers.pop(int(parts[3]), None)
        elif path.startswith(CONFIG + "/") and parts[2] in self.configs and len(parts) == 4:
            self.configs[parts[2]].pop(unquote(parts[3]), None)
            self.client_metrics_epoch += parts[2] == CLIENT_METRICS_CONFIG
        elif path.startswith(SCRAM + "/"):
            self.scram.pop(unquote(parts[2]), None)
        elif path.startswith(TOPICS + "/"):
            self.topics_epoch += 1
            topic = self.topics_by_id.get(bytes.fromhex(parts[2]))
            if topic is not None and len(parts) == 4:
                topic.partitions.pop(int(parts[3]), None)
            elif topic is not None:
                del self.topics_by_id[topic.topic_id]
                if self.topics.get(topic.name) is topic:
                    del self.topics[topic.name]
                    self._folded_names.pop(_fold(topic.name), None)
