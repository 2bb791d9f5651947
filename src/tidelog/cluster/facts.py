"""The facts that the store has about brokers, topics and partitions, and their encoding there.

**Invariant:** a field added by a later version is omitted when it has its default, and has a default here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from tidelog.base.forms import PLAINTEXT
from tidelog.cluster.paths import TOPICS

# Whether committed records are flushed by the members (R15): not at all; from here on; all of them.
UNFLUSHED, FLUSHING, FLUSHED = 0, 1, 2
NOBODY = -1
NOWHERE = -1
# Stamps of members that do not count: their logs are torn, or may have lost any record. A member whose log
# cannot be opened but has lost nothing keeps its stamp, subtracted from `OFFLINE_STAMP`.
TORN_STAMP, LOST_STAMP, OFFLINE_STAMP = -1, -2, -10


def encode_fields(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _notes_of(fields: dict[str, Any]) -> dict[str, int]:
    """An earlier version listed only the ids; their notes then have the epoch of the registration."""
    found: dict[str, int] | list[str] = fields.get("directories", {})
    return found if isinstance(found, dict) else dict.fromkeys(found, fields["registered"])


@dataclass(slots=True)
class BrokerFacts:
    node_id: int
    host: str
    port: int
    rack: str
    epoch: int
    directory: str = (
        ""  # the id of its first log directory: another directory means another broker with the same node id
    )
    is_stopping: bool = False
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)  # advertised, by listener
    features: dict[str, tuple[int, int]] = field(default_factory=dict)  # the supported levels of each feature

    def __post_init__(self) -> None:
        if not self.listeners:
            self.listeners = {PLAINTEXT: (self.host, self.port)}

    @classmethod
    def decode(cls, node_id: int, fields: dict[str, Any]) -> BrokerFacts:
        return cls(
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
    """The epochs of a broker as the store knows them. Its state before `trusted_since` may have lost
    unflushed records. An earlier version wrote only the first four fields, and raised the epoch only to
    register."""

    epoch: int
    trusted_since: int
    directory: str = ""  # the first directory of its last registration
    is_retired: bool = False  # decommissioned
    registered: int = -1  # the epoch of its last registration; a start raises the epoch earlier
    notes: Mapping[str, int] = MappingProxyType({})  # the epoch of each directory's note

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> BrokerEpoch:
        return cls(
            fields["epoch"],
            fields["trusted_since"],
            fields.get("directory", ""),
            fields.get("is_retired", False),
            fields.get("registered", fields["epoch"]),
            _notes_of(fields),
        )

    def encode(self) -> bytes:
        fields = {
            "epoch": self.epoch,
            "trusted_since": self.trusted_since,
            "directory": self.directory,
            "registered": self.registered,
        }
        if self.is_retired:
            fields["is_retired"] = True
        if self.notes:
            fields["directories"] = dict(self.notes)
        return encode_fields(**fields)


class Answer(NamedTuple):
    """The log end of a replica, reported under a broker epoch while the partition has no leader."""

    broker_epoch: int
    leader_epoch: int  # of its last record
    end_offset: int  # or NOWHERE: the log cannot be opened


@dataclass(slots=True)
class PartitionFacts:
    leader: int
    leader_epoch: int
    in_sync_replicas: list[int]
    replicas: list[int]
    version: int
    # Replicas that left an ISR below the minimum, with all committed records.
    eligible: list[int] = field(default_factory=list)
    # The stamp of each member: its broker epoch when it was admitted, or its class of loss, negative.
    members: dict[int, int] = field(default_factory=dict)
    # or what it has lost since, below zero
    adding: list[int] = field(default_factory=list)  # of the replicas, while they are reassigned (KIP-455)
    removing: list[int] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)  # for this leader epoch, if there is no leader
    is_unclean: bool = False  # an administrator requested an unclean election
    flush: int = UNFLUSHED

    @classmethod
    def decode(cls, fields: dict[str, Any], version: int) -> PartitionFacts:
        return cls(
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

    @property
    def listed(self) -> list[int]:
        """The members: in sync, or eligible."""
        return [*self.in_sync_replicas, *self.eligible]

    def stamp(self, node_id: int) -> int:
        return self.members.get(node_id, 0)

    def without_leader(self) -> PartitionFacts:
        """Remove the leader under a new epoch, so that the old leader is fenced."""
        return replace(self, leader=NOBODY, leader_epoch=self.leader_epoch + 1, answers={}, is_unclean=False)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replicas_before(self) -> list[int]:
        """The replicas from before the reassignment."""
        return [node_id for node_id in self.replicas if node_id not in self.adding]

    @property
    def replicas_after(self) -> list[int]:
        """The replicas after the reassignment."""
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


class DeletedTopic(NamedTuple):
    name: str
    topic_id: bytes


@dataclass(slots=True)
class TopicFacts:
    topic_id: bytes
    name: str
    config: dict[str, str]
    version: int
    partitions: dict[int, PartitionFacts] = field(default_factory=dict)
    was_compacted: bool = False  # compacted now or in the past: records may be missing from its logs

    def path(self, partition: int | None = None) -> str:
        own = f"{TOPICS}/{self.topic_id.hex()}"
        return own if partition is None else f"{own}/{partition}"


class PartitionChange(NamedTuple):
    """A partition as the controller wants to have it: with another leader, or other replicas."""

    topic: TopicFacts
    index: int  # type: ignore[assignment]  # Kafka's word; nobody searches this tuple
    facts: PartitionFacts
