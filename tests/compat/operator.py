"""What every real admin client is asked to do, in one set of words: `client.py` for whoever runs a cluster.

The claims are in `operator_contract.py`. Two protocols, because librdkafka has no calls for log directories,
features, producers and lists of what has settings.

**Invariant:** as in `client.py`: a driver hands on what its client gave, and repairs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pytest

from tests.compat.client import Admin, Refused

OFFSET_OUT_OF_RANGE = 1
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
SECURITY_DISABLED = 54
LOG_DIR_NOT_FOUND = 57
ELECTION_NOT_NEEDED = 84
RESOURCE_NOT_FOUND = 91
UNACCEPTABLE_CREDENTIAL = 93
INVALID_UPDATE_VERSION = 95
UNKNOWN_TOPIC_ID = 100

UNTOLD = -2
"""The code of a refusal where the client passes on the broker's words but not its code."""

Kind = Literal["TOPIC", "BROKER", "BROKER_LOGGER", "CLIENT_METRICS", "GROUP"]
Change = tuple[Literal["SET", "DELETE", "APPEND", "SUBTRACT"], str, str | None]
Place = int | Literal["earliest", "latest", "max_timestamp"]
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
CLUSTER_DEFAULT = ""
"""The name of the broker that stands for all of them."""


@dataclass(frozen=True)
class Setting:
    """One setting as described. `type` and `documentation` are None where the client does not tell."""

    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    synonyms: frozenset[tuple[str, str | None, str]]
    type: str | None = None
    documentation: str | None = None


@dataclass(frozen=True)
class Placed:
    """One partition of a described topic."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    id: str
    controller: int
    nodes: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class LogDirectory:
    path: str
    sizes: Mapping[str, int]
    total_size: int
    usable_size: int


@dataclass(frozen=True)
class ActiveProducer:
    id: int
    epoch: int
    last_sequence: int
    is_in_transaction: bool


@dataclass(frozen=True)
class Features:
    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, tuple[int, int]]


class Operator(Admin, Protocol):
    """All that three admin clients have in common. Places are those of partition 0."""

    kinds: tuple[Kind, ...]
    knows_cluster_default: bool

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def partitions(self, topic: str) -> list[Placed]: ...

    def grow(self, topic: str, count: int, *, validate_only: bool = False) -> None: ...

    def delete_records(self, topic: str, before: int) -> int:
        """The low watermark afterwards."""
        ...

    def offset(self, topic: str, place: Place) -> tuple[int, int]:
        """An offset and its timestamp."""
        ...

    def settings(self, kind: Kind, name: str) -> dict[str, Setting]: ...

    def alter(self, kind: Kind, name: str, *changes: Change, validate_only: bool = False) -> None: ...

    def cluster(self) -> Cluster: ...

    def elect(self, topic: str, *, unclean: bool = False) -> None: ...

    def credentials(self, user: str | None = None) -> dict[str, set[tuple[str, int]]]: ...

    def set_credential(self, user: str, mechanism: Mechanism, iterations: int, password: str) -> None: ...

    def remove_credential(self, user: str, mechanism: Mechanism) -> None: ...

    def acls(self) -> object: ...

    def create_acl(self) -> object: ...

    def delete_acls(self) -> object: ...


class Surveyor(Operator, Protocol):
    """What librdkafka has no calls for."""

    def log_directories(self, node: int) -> list[LogDirectory]: ...

    def move(self, topic: str, node: int, path: str) -> None: ...

    def features(self) -> Features: ...

    def update_feature(self, feature: str, level: int, *, validate_only: bool = False) -> None: ...

    def producers(self, topic: str) -> list[ActiveProducer]: ...

    def resources(self, *kinds: Kind) -> set[tuple[str, str]]: ...

    def reassignment_count(self) -> int: ...


def refusal(act: Callable[..., object], *arguments: Any, **options: Any) -> int:
    """The code that the broker refuses the call with."""
    with pytest.raises(Refused) as refused:
        act(*arguments, **options)
    return refused.value.code


def is_refused(code: int, act: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    """Whether the broker refuses with this code; for a client that keeps codes to itself, whether at all."""
    return refusal(act, *arguments, **options) in (code, UNTOLD)
