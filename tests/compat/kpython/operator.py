"""kafka-python's KafkaAdminClient as a `Surveyor`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID

from kafka import KafkaAdminClient, TopicPartition, TopicPartitionReplica
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import BrokerResponseError

from tests.compat.client import Refused
from tests.compat.kpython.driver import KafkaPython, raise_refusal
from tests.compat.operator import (
    UNTOLD,
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

PLACES = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}
CODE = re.compile(r"\[Error (\d+)\]")
ANY_ACL = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)
AN_ACL = ACL(
    "User:u", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t")
)


class KafkaPythonOperator(KafkaPython):
    kinds: tuple[Kind, ...] = ("TOPIC", "BROKER", "BROKER_LOGGER", "CLIENT_METRICS", "GROUP")
    knows_cluster_default = False  # it takes the name of a broker for a number

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
        new: dict[str, Any] = {"num_partitions": partitions, "replication_factor": replicas}
        if assignment is not None:
            new = {"assignments": {index: list(nodes) for index, nodes in enumerate(assignment)}}
        new["configs"] = dict(settings or {})
        raise_refusal(
            self._ask(
                lambda admin: admin.create_topics(
                    {topic: new}, validate_only=validate_only, raise_errors=False
                )
            )["topics"]
        )

    def partitions(self, topic: str) -> list[Placed]:
        """By both calls that it has: they must agree."""
        (described,) = self._ask(lambda admin: admin.describe_topic_partitions([topic]))["topics"]
        (by_metadata,) = self._ask(lambda admin: admin.describe_topics([topic]))
        raise_refusal([described])
        placed = _placed(described)
        assert placed == _placed(by_metadata)
        return placed

    def topic_id(self, topic: str) -> UUID:
        return UUID(self._ask(lambda admin: admin.describe_topics([topic]))[0]["topic_id"])

    def topic_of(self, topic_id: UUID) -> str:
        return str(self._ask(lambda admin: admin.describe_topics([topic_id]))[0]["name"])

    def delete_topic_by_id(self, topic_id: UUID) -> None:
        raise_refusal(self._ask(lambda admin: admin.delete_topics([topic_id], raise_errors=False))["topics"])

    def pages(self, topics: Sequence[str], limit: int) -> Iterator[list[tuple[str, int]]]:
        """The partitions of the topics, as they come in answers of at most so many."""
        cursor = None
        while True:
            page = self._ask(
                lambda admin: admin.describe_topic_partitions(list(topics), limit, cursor)  # noqa: B023
            )
            yield [
                (topic["name"], partition["partition_index"])
                for topic in page["topics"]
                for partition in topic["partitions"]
            ]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def grow(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        answer = self._ask(
            lambda admin: admin.create_partitions(
                {topic: count}, validate_only=validate_only, raise_errors=False
            )
        )
        raise_refusal([result.to_dict() for result in answer.results])

    def delete_records(self, topic: str, before: int) -> int:
        partition = TopicPartition(topic, 0)
        return int(
            self._ask(lambda admin: admin.delete_records({partition: before}))[partition]["low_watermark"]
        )

    def offset(self, topic: str, place: Place) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        spec = PLACES[place] if isinstance(place, str) else place
        found = self._ask(lambda admin: admin.list_partition_offsets({partition: spec}))[partition]
        return found.offset, found.timestamp

    def settings(self, kind: Kind, name: str) -> dict[str, Setting]:
        described = self._ask(
            lambda admin: admin.describe_configs(
                [ConfigResource(kind, name)], include_synonyms=True, config_filter=ConfigFilterType.ALL
            )
        )
        return {key: _setting(entry) for key, entry in described[kind.lower()][name].items()}

    def alter(self, kind: Kind, name: str, *changes: Change, validate_only: bool = False) -> None:
        configs = {key: (AlterConfigOp[operation], value) for operation, key, value in changes}
        self._alter(kind, name, configs, validate_only=validate_only, incremental=True)

    def replace(self, kind: Kind, name: str, settings: Mapping[str, str]) -> None:
        """The older call. This client adds to it what was set before."""
        self._alter(kind, name, dict(settings), validate_only=False, incremental=False)

    def reset(self, kind: Kind, name: str, *keys: str) -> None:
        """Back to their defaults: these, or all."""
        resource = ConfigResource(kind, name, dict.fromkeys(keys))
        _raise_if_said(self._ask(lambda admin: admin.reset_configs([resource]))[kind.lower()][name])

    def _alter(self, kind: Kind, name: str, configs: dict[str, Any], **options: bool) -> None:
        resource = ConfigResource(kind, name, configs)
        said = self._ask(lambda admin: admin.alter_configs([resource], raise_on_unknown=False, **options))
        _raise_if_said(said[kind.lower()][name])

    def cluster(self) -> Cluster:
        found = self._ask(lambda admin: admin.describe_cluster())
        nodes = tuple((node["broker_id"], node["host"], node["port"]) for node in found["brokers"])
        return Cluster(found["cluster_id"], found["controller_id"], nodes)

    def elect(self, topic: str, *, unclean: bool = False) -> None:
        answer = self._ask(lambda admin: admin.elect_leaders(int(unclean), {topic: [0]}, raise_errors=False))
        for result in answer.replica_election_results:
            raise_refusal([partition.to_dict() for partition in result.partition_result])

    def credentials(self, user: str | None = None) -> dict[str, set[tuple[str, int]]]:
        users = None if user is None else [user]
        found = self._ask(lambda admin: admin.describe_user_scram_credentials(users))
        for each in found.values():
            if each["error"] is not None:
                raise Refused(UNTOLD, each["error"])
        return {name: _credentials(each["credential_infos"]) for name, each in found.items()}

    def set_credential(self, user: str, mechanism: Mechanism, iterations: int, password: str) -> None:
        self._alter_credential(UserScramCredentialUpsertion(user, mechanism, password, iterations))

    def remove_credential(self, user: str, mechanism: Mechanism) -> None:
        self._alter_credential(UserScramCredentialDeletion(user, mechanism))

    def _alter_credential(self, alteration: Any) -> None:
        said = self._ask(lambda admin: admin.alter_user_scram_credentials([alteration]))[alteration.user]
        if said is not None:
            raise Refused(UNTOLD, said)

    def acls(self) -> object:
        return self._ask(lambda admin: admin.describe_acls(ANY_ACL))

    def create_acl(self) -> object:
        return self._ask(lambda admin: _raise_failed(admin.create_acls([AN_ACL])["failed"]))

    def delete_acls(self) -> object:
        return self._ask(lambda admin: _raise_failed([error for *_, error in admin.delete_acls([ANY_ACL])]))

    def log_directories(self, node: int) -> list[LogDirectory]:
        (found,) = self._ask(lambda admin: admin.describe_log_dirs(brokers=[node]))
        return [_log_directory(each) for each in found["log_dirs"]]

    def move(self, topic: str, node: int, path: str) -> None:
        replica = TopicPartitionReplica(topic, 0, node)
        error = self._ask(lambda admin: admin.alter_replica_log_dirs({replica: path}))[replica]
        if error.errno != 0:
            raise Refused(error.errno, error.message)

    def features(self) -> Features:
        found = self._ask(lambda admin: admin.describe_features())
        return Features(
            {name: each["supported"] for name, each in found.items() if "supported" in each},
            {name: each["finalized"] for name, each in found.items() if "finalized" in each},
        )

    def update_feature(self, feature: str, level: int, *, validate_only: bool = False) -> None:
        said = self._ask(lambda admin: admin.update_features({feature: level}, validate_only=validate_only))
        _raise_if_said(said[feature])

    def producers(self, topic: str) -> list[ActiveProducer]:
        partition = TopicPartition(topic, 0)
        found = self._ask(lambda admin: admin.describe_producers([partition]))[partition]
        return [
            ActiveProducer(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.current_transaction_start_offset >= 0,
            )
            for each in found.active_producers
        ]

    def resources(self, *kinds: Kind) -> set[tuple[str, str]]:
        found = self._ask(lambda admin: admin.list_config_resources(list(kinds)))
        return {(kind.upper(), name) for kind, names in found.items() for name in names}

    def reassignment_count(self) -> int:
        return len(self._ask(lambda admin: admin.list_partition_reassignments()))

    def _ask(self, act: Callable[[KafkaAdminClient], Any]) -> Any:
        with closing(self._admin()) as admin:
            try:
                return act(admin)
            except BrokerResponseError as error:
                raise Refused(error.errno, str(error)) from error


def _placed(described: Mapping[str, Any]) -> list[Placed]:
    return [
        Placed(
            each["partition_index"],
            each["leader_id"],
            tuple(each["replica_nodes"]),
            tuple(each["isr_nodes"]),
        )
        for each in described["partitions"]
    ]


def _setting(entry: Mapping[str, Any]) -> Setting:
    return Setting(
        value=entry["value"],
        source=entry["config_source"],
        is_read_only=entry["read_only"],
        is_sensitive=entry["is_sensitive"],
        synonyms=frozenset((each["name"], each["value"], each["source"]) for each in entry["synonyms"]),
        type=entry["config_type"],
    )


def _log_directory(found: Mapping[str, Any]) -> LogDirectory:
    raise_refusal([found])
    sizes = {
        f"{topic['name']}-{partition['partition_index']}": partition["partition_size"]
        for topic in found["topics"]
        for partition in topic["partitions"]
    }
    return LogDirectory(found["log_dir"], sizes, found["total_bytes"], found["usable_bytes"])


def _credentials(kept: Sequence[Mapping[str, Any]]) -> set[tuple[str, int]]:
    return {(each["mechanism"].name.replace("_", "-"), each["iterations"]) for each in kept}


def _raise_if_said(said: str) -> None:
    if said != "OK":
        found = CODE.search(said)
        raise Refused(int(found[1]) if found else UNTOLD, said)


def _raise_failed(errors: Sequence[Any]) -> None:
    for error in errors:
        if error.errno != 0:
            raise error("refused")
