"""confluent-kafka's AdminClient as an `Operator`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from confluent_kafka import ElectionType, TopicCollection, TopicPartition
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compat.client import Refused
from tests.compat.confluent.driver import Confluent, settle
from tests.compat.operator import Change, Cluster, Kind, Mechanism, Place, Placed, Setting

admin: Any = import_module("confluent_kafka.admin")  # it does not export its types
MECHANISMS = {
    "SCRAM-SHA-256": admin.ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": admin.ScramMechanism.SCRAM_SHA_512,
}
PLACES = {
    "earliest": admin.OffsetSpec.earliest,
    "latest": admin.OffsetSpec.latest,
    "max_timestamp": admin.OffsetSpec.max_timestamp,
}
ANY_ACL = admin.AclBindingFilter(
    admin.ResourceType.ANY,
    None,
    admin.ResourcePatternType.ANY,
    None,
    None,
    admin.AclOperation.ANY,
    admin.AclPermissionType.ANY,
)
AN_ACL = admin.AclBinding(
    admin.ResourceType.TOPIC,
    "t",
    admin.ResourcePatternType.LITERAL,
    "User:u",
    "*",
    admin.AclOperation.READ,
    admin.AclPermissionType.ALLOW,
)


class ConfluentOperator(Confluent):
    kinds: tuple[Kind, ...] = ("TOPIC", "BROKER")
    knows_cluster_default = False  # it takes an empty name for none

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
        if assignment is None:
            new = NewTopic(topic, partitions, replicas, config=dict(settings or {}))
        else:
            new = NewTopic(topic, len(assignment), replica_assignment=[list(each) for each in assignment])
        settle(self._admin.create_topics([new], validate_only=validate_only)[topic])

    def partitions(self, topic: str) -> list[Placed]:
        described = settle(self._admin.describe_topics(TopicCollection([topic]))[topic])
        return [
            Placed(
                each.id,
                each.leader.id,
                tuple(node.id for node in each.replicas),
                tuple(node.id for node in each.isr),
            )
            for each in described.partitions
        ]

    def grow(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        grown = self._admin.create_partitions([NewPartitions(topic, count)], validate_only=validate_only)
        settle(grown[topic])

    def grow_on(self, topic: str, count: int, assignment: Sequence[Sequence[int]]) -> None:
        """As `grow`, with the replicas of each new partition named."""
        replicas = [list(each) for each in assignment]
        settle(self._admin.create_partitions([NewPartitions(topic, count, replicas)])[topic])

    def allowed(self, topic: str) -> tuple[set[str], set[str]]:
        """What this client may do with the cluster, and with the topic."""
        cluster = settle(self._admin.describe_cluster(include_authorized_operations=True))
        asked = self._admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
        described = settle(asked[topic])
        names = [{each.name for each in found.authorized_operations} for found in (cluster, described)]
        return names[0], names[1]

    def delete_records(self, topic: str, before: int) -> int:
        (deleted,) = self._admin.delete_records([TopicPartition(topic, 0, before)]).values()
        return int(settle(deleted).low_watermark)

    def offset(self, topic: str, place: Place) -> tuple[int, int]:
        spec = PLACES[place]() if isinstance(place, str) else admin.OffsetSpec.for_timestamp(place)
        (listed,) = self._admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        found = settle(listed)
        return found.offset, found.timestamp

    def settings(self, kind: Kind, name: str) -> dict[str, Setting]:
        (described,) = self._admin.describe_configs([admin.ConfigResource(kind, name)]).values()
        return {name: _setting(entry) for name, entry in settle(described).items()}

    def alter(self, kind: Kind, name: str, *changes: Change, validate_only: bool = False) -> None:
        entries = [
            admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType[operation])
            for operation, key, value in changes
        ]
        resource = admin.ConfigResource(kind, name, incremental_configs=entries)
        (altered,) = self._admin.incremental_alter_configs([resource], validate_only=validate_only).values()
        settle(altered)

    def replace(self, kind: Kind, name: str, settings: Mapping[str, str]) -> None:
        """The older call: what is not named goes back to its default."""
        resource = admin.ConfigResource(kind, name, set_config=dict(settings))
        settle(self._admin.alter_configs([resource])[resource])

    def cluster(self) -> Cluster:
        found = settle(self._admin.describe_cluster())
        nodes = tuple((node.id, node.host, node.port) for node in found.nodes)
        return Cluster(found.cluster_id, found.controller.id, nodes)

    def elect(self, topic: str, *, unclean: bool = False) -> None:
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        (error,) = settle(self._admin.elect_leaders(kind, [TopicPartition(topic, 0)])).values()
        if error is not None:
            raise Refused(error.code(), error.str())

    def credentials(self, user: str | None = None) -> dict[str, set[tuple[str, int]]]:
        asked: Any = self._admin.describe_user_scram_credentials(None if user is None else [user])
        found = settle(asked) if user is None else {user: settle(asked[user])}
        return {name: _credentials(each.scram_credential_infos) for name, each in found.items()}

    def set_credential(self, user: str, mechanism: Mechanism, iterations: int, password: str) -> None:
        kept = admin.ScramCredentialInfo(MECHANISMS[mechanism], iterations)
        upsertion = admin.UserScramCredentialUpsertion(user, kept, password.encode())
        settle(self._admin.alter_user_scram_credentials([upsertion])[user])

    def remove_credential(self, user: str, mechanism: Mechanism) -> None:
        deletion = admin.UserScramCredentialDeletion(user, MECHANISMS[mechanism])
        settle(self._admin.alter_user_scram_credentials([deletion])[user])

    def acls(self) -> object:
        return settle(self._admin.describe_acls(ANY_ACL))

    def create_acl(self) -> object:
        return settle(self._admin.create_acls([AN_ACL])[AN_ACL])

    def delete_acls(self) -> object:
        return settle(self._admin.delete_acls([ANY_ACL])[ANY_ACL])


def _setting(entry: Any) -> Setting:
    synonyms = {(each.name, each.value, _source(each)) for each in entry.synonyms.values()}
    return Setting(entry.value, _source(entry), entry.is_read_only, entry.is_sensitive, frozenset(synonyms))


def _source(entry: Any) -> str:
    return str(admin.ConfigSource(entry.source).name)


def _credentials(kept: Sequence[Any]) -> set[tuple[str, int]]:
    return {(each.mechanism.name.replace("_", "-"), each.iterations) for each in kept}
