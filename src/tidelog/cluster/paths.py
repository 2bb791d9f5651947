"""The layout of the store.

| node                        | fields                                             | written by             |
|-----------------------------|----------------------------------------------------|------------------------|
| `/cluster`                  | id                                                 | the first broker, once |
|                             | generation: how often the store was restored       | `cluster restored`     |
| `/producer-ids`             | next: the first id not yet allocated               | any broker, if-version |
| `/features`                 | epoch; levels: feature to its finalized level      | the controller         |
| `/controller-epoch`         | epoch; the node is never recreated                 | the new controller     |
| `/controller`               | id, epoch (ephemeral)                              | the same, in one multi |
| `/brokers/epochs/<id>`      | epoch, registered, trusted_since,                  | that broker, at start  |
|                             | directory, directories: id to the epoch of its     |                        |
|                             | note; never recreated                              |                        |
|                             | is_retired: omitted unless unregistered            | the controller         |
| `/brokers/ids/<id>`         | epoch, host, port, rack, directory, is_stopping;   | that broker            |
|                             | listeners: name to host and port (ephemeral)       |                        |
| `/names/<name>`             | id of the topic with that name now                 | the controller         |
| `/config/<kind>/<name>`     | key to text; kinds: brokers, client-metrics,       | the controller         |
|                             | groups, quotas. Of brokers a number, or `default`  |                        |
|                             | for all; of quotas an entity, as `cluster/quotas`  |                        |
|                             | spells it                                          |                        |
| `/scram/<user>`             | mechanism to iterations, salt, stored_key and      | the controller         |
|                             | server_key in base64                               |                        |
| `/topics/<id>`              | name, config                                       | the controller         |
| `/topics/<id>/<partition>`  | leader, leader_epoch, isr, eligible, replicas;     | the leader, controller |
|                             | members: the stamp of each of isr, eligible        |                        |
|                             | answers, is_unclean: omitted unless it recovers    | replicas, controller   |
|                             | flush: omitted unless committed records are flushed| the leader             |
|                             | adding, removing: omitted if replicas do not move  |                        |
| `/changes/<number>`         | paths that the same multi has written              | the writer of the multi|


**Invariant:** `place_of` is the only reader of a path.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import quote, unquote

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
QUOTA_CONFIG = "quotas"
DEFAULT_BROKER = "default"
SCRAM = "/scram"
TOPICS = "/topics"
CHANGES = "/changes"
# The folders, for stores whose nodes need parents; and the top nodes of the tree, notices first.
FOLDERS = (
    "/brokers",
    BROKER_EPOCHS,
    BROKERS,
    CHANGES,
    CONFIG,
    *(f"{CONFIG}/{kind}" for kind in (BROKER_CONFIG, CLIENT_METRICS_CONFIG, GROUP_CONFIG, QUOTA_CONFIG)),
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


class Kind(Enum):
    """What a node is about."""

    BROKER = auto()
    BROKER_EPOCH = auto()
    CONFIG = auto()
    NOTICE = auto()
    PARTITION = auto()
    SCRAM = auto()
    SINGLE = auto()  # a single node, known by its path
    TOPIC = auto()
    OTHER = auto()


class Place(NamedTuple):
    kind: Kind
    name: str = ""  # the id of a broker or topic; of settings and credentials, the name of their owner
    part: str = ""  # the number of a partition; the kind of settings


def place_of(path: str) -> Place:
    parts = path.split("/")
    if len(parts) == 2:
        return _SINGLE if parts[1] != "changes" else _NOTICE
    top, name = parts[1], parts[2]
    if top == "topics":
        return Place(Kind.TOPIC, name) if len(parts) == 3 else Place(Kind.PARTITION, name, parts[3])
    if top == "changes":
        return _NOTICE
    if top == "brokers" and len(parts) == 4:
        return Place(Kind.BROKER if name == "ids" else Kind.BROKER_EPOCH, parts[3])
    if top == "config" and len(parts) == 4:
        return Place(Kind.CONFIG, unquote(parts[3]), name)
    if top == "scram":
        return Place(Kind.SCRAM, unquote(name))
    return _OTHER


_SINGLE, _NOTICE, _OTHER = Place(Kind.SINGLE), Place(Kind.NOTICE), Place(Kind.OTHER)


def escape_name(name: str) -> str:
    """As a part of a path. Names may contain anything; some stores treat dots alone as special."""
    return quote(name, safe="").replace(".", "%2E")


def unescape_name(part: str) -> str:
    return unquote(part)


def config_path(kind: str, name: str) -> str:
    return f"{CONFIG}/{kind}/{escape_name(name)}"


def name_path(topic: str) -> str:
    """Where the store has the id of the topic with that name."""
    return f"{NAMES}/{topic}"


def is_topic_path(path: str) -> bool:
    return path.startswith(TOPICS + "/") and path.count("/") == 2
