"""The Java AdminClient as a `Surveyor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.compat.java.driver import Java
from tests.compat.operator import (
    ActiveProducer,
    Change,
    Cluster,
    Features,
    Kind,
    LogDirectory,
    Mechanism,
    Place,
    Placed,
    Setting,
)


class JavaOperator(Java):
    kinds: tuple[Kind, ...] = ("TOPIC", "BROKER", "BROKER_LOGGER", "CLIENT_METRICS", "GROUP")
    knows_cluster_default = True

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        shape: dict[str, Any] = {"partitions": partitions, "replicas": replicas}
        if assignment is not None:
            shape = {"assignment": assignment}
        options = {"settings": dict(settings or {}), "validate_only": validate_only}
        self.admin("create_topic", topic=topic, **shape, **options)

    def partitions(self, topic: str) -> list[Placed]:
        """By name and by id: they must agree."""
        described = self.admin("describe_topic", topic=topic)
        assert self.admin("describe_topic", id=described["id"]) == described
        return [
            Placed(index, leader, tuple(replicas), tuple(in_sync))
            for index, leader, replicas, in_sync in described["partitions"]
        ]

    def topic_id(self, topic: str) -> str:
        return str(self.admin("describe_topic", topic=topic)["id"])

    def delete_topic_by_id(self, topic_id: str) -> None:
        self.admin("delete_topic", id=topic_id)

    def grow(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        self.admin("grow", topic=topic, count=count, validate_only=validate_only)

    def delete_records(self, topic: str, before: int) -> int:
        return int(self.admin("delete_records", topic=topic, before=before))

    def offset(self, topic: str, place: Place) -> tuple[int, int]:
        offset, timestamp_ms = self.admin("offset", topic=topic, place=place)
        return offset, timestamp_ms

    def settings(self, kind: Kind, name: str) -> dict[str, Setting]:
        described = self.admin("settings", kind=kind, name=name)
        return {key: _setting(entry) for key, entry in described.items()}

    def alter(self, kind: Kind, name: str, *changes: Change, validate_only: bool = False) -> None:
        self.admin("alter", kind=kind, name=name, changes=changes, validate_only=validate_only)

    def cluster(self) -> Cluster:
        found = self.admin("cluster")
        nodes = tuple((id, host, port) for id, host, port in found["nodes"])
        return Cluster(found["id"], found["controller"], nodes)

    def elect(self, topic: str, *, unclean: bool = False) -> None:
        assert self.admin("elect", topic=topic, unclean=unclean), "the answer does not name the partition"

    def credentials(self, user: str | None = None) -> dict[str, set[tuple[str, int]]]:
        found = self.admin("credentials", **({} if user is None else {"user": user}))
        return {name: {(mechanism, count) for mechanism, count in kept} for name, kept in found.items()}

    def set_credential(self, user: str, mechanism: Mechanism, iterations: int, password: str) -> None:
        options = {"mechanism": mechanism, "iterations": iterations, "password": password}
        self.admin("set_credential", user=user, **options)

    def remove_credential(self, user: str, mechanism: Mechanism) -> None:
        self.admin("remove_credential", user=user, mechanism=mechanism)

    def acls(self) -> object:
        return self.admin("acls")

    def create_acl(self) -> object:
        return self.admin("create_acl")

    def delete_acls(self) -> object:
        return self.admin("delete_acls")

    def log_directories(self, node: int) -> list[LogDirectory]:
        found = self.admin("log_dirs", node=node)
        assert not any(each["failed"] for each in found.values())
        return [
            LogDirectory(path, each["sizes"], each["total"], each["usable"]) for path, each in found.items()
        ]

    def move(self, topic: str, node: int, path: str) -> None:
        self.admin("move", topic=topic, node=node, path=path)

    def features(self) -> Features:
        found = self.admin("features")
        return Features(_ranges(found["supported"]), _ranges(found["finalized"]))

    def update_feature(self, feature: str, level: int, *, validate_only: bool = False) -> None:
        self.admin("update_feature", feature=feature, level=level, validate_only=validate_only)

    def producers(self, topic: str) -> list[ActiveProducer]:
        return [
            ActiveProducer(each["id"], each["epoch"], each["last_sequence"], each["in_transaction"])
            for each in self.admin("producers", topic=topic)
        ]

    def resources(self, *kinds: Kind) -> set[tuple[str, str]]:
        return {(kind, name) for kind, name in self.admin("resources", kinds=kinds)}

    def reassignment_count(self) -> int:
        return int(self.admin("reassignments"))


def _setting(entry: Mapping[str, Any]) -> Setting:
    return Setting(
        value=entry["value"],
        source=entry["source"],
        is_read_only=entry["read_only"],
        is_sensitive=entry["sensitive"],
        synonyms=frozenset((name, value, source) for name, value, source in entry["synonyms"]),
        type=entry["type"],
        documentation=entry["documentation"],
    )


def _ranges(found: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    return {name: (low, high) for name, (low, high) in found.items()}
