"""One valid frame of every API and version: what mutations and fuzzing begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.protocol.otlp_samples import gauge, metrics, point
from tests.wire.group_requests import GROUP_APIS, group_values
from tests.wire.harness import (
    ALTER_SCRAM,
    API_VERSIONS,
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_SCRAM,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    GET_TELEMETRY,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    PUSH_TELEMETRY,
    UPDATE_FEATURES,
    Harness,
    batch_of,
    parts,
    request_frame,
    seconds,
)
from tests.wire.requests import fetch_values, metadata_values, produce_values
from tests.wire.transaction_requests import TRANSACTION_APIS, transaction_values
from tidelog.protocol.apis import APIS

TOPIC = "t"
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, UNREGISTER_BROKER = 48, 49, 64
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 33, 44, 74
ABOUT_PARTITIONS = (21, 34, 35, 37, 43, 45, 46)


def sample_frames(harness: Harness) -> Iterator[bytes]:
    """Frames without their size prefix, about the topic `t` that the harness must have."""
    for api in APIS:
        for version in range(api.oldest_version, api.newest_version + 1):
            yield request_frame(api.key, version, 1, **_values(harness, api.key, version))


def _values(harness: Harness, api_key: int, version: int) -> dict[str, Any]:
    part = parts(api_key, version)
    match api_key:
        case 0:
            return produce_values(harness, version, {TOPIC: [(0, batch_of(2)), (1, batch_of(1))]})
        case 1:
            forgotten = {TOPIC: [1]}
            return fetch_values(harness, version, {TOPIC: [(0, 0), (1, 0)]}, forgotten=forgotten)
        case 2:
            ask = part.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
            topics = (part.ListOffsetsTopic(name=TOPIC, partitions=(ask,)),)
            return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": seconds(1)}
        case 3:
            return metadata_values(version, [TOPIC])
        case 19:
            config = part.CreatableTopicConfig(name="retention.ms", value="1000")
            topic = part.CreatableTopic(
                name="n", num_partitions=1, replication_factor=1, assignments=(), configs=(config,)
            )
            return {"topics": (topic,), "timeout": seconds(1), "validate_only": True}
        case 20:
            states = (part.DeleteTopicState(name="absent", topic_id=None),) if version >= 6 else ()
            return {"topics": states, "topic_names": ("absent",), "timeout": seconds(1)}
        case 23:
            epoch = part.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
            return {
                "replica_id": -1,
                "topics": (part.OffsetForLeaderTopic(topic=TOPIC, partitions=(epoch,)),),
            }
        case 29 | 31:
            acl = _ANY_ACL | {"operation": 1, "permission_type": 1}
            return acl | {"filters": (part.DeleteAclsFilter(**acl),) if api_key == DELETE_ACLS else ()}
        case 30:
            return {"creations": (part.AclCreation(**_ONE_ACL),)}
        case 48:
            component = part.ComponentData(entity_type="user", match_type=0, match="somebody")
            return {"components": (component,), "strict": False}
        case 49:
            entity = part.EntityData(entity_type="user", entity_name="somebody")
            op = part.OpData(key="producer_byte_rate", value=1.0, remove=False)
            return {"entries": (part.EntryData(entity=(entity,), ops=(op,)),), "validate_only": False}
        case 50:
            return {"users": (part.UserName(name="somebody"),)}
        case 51:
            deletion = part.ScramCredentialDeletion(name="nobody", mechanism=1)
            upsertion = part.ScramCredentialUpsertion(
                name="somebody", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"secret"
            )
            return {"deletions": (deletion,), "upsertions": (upsertion,)}
        case 57:
            update = part.FeatureUpdateKey(
                feature="tidelog.version", max_version_level=1, upgrade_type=1, allow_downgrade=False
            )
            return {"timeout": seconds(1), "feature_updates": (update,), "validate_only": False}
        case 61:
            return {"topics": (part.TopicRequest(name=TOPIC, partition_indexes=(0, 1)),)}
        case 75:
            cursor = part.Cursor(topic_name=TOPIC, partition_index=1)
            topics = (part.TopicRequest(name=TOPIC),)
            return {"topics": topics, "response_partition_limit": 2, "cursor": cursor}
        case 21 | 34 | 35 | 37 | 43 | 45 | 46:
            return _about_partitions(part, api_key)
        case 32 | 33 | 44:
            return _about_settings(part, api_key)
        case key if key in GROUP_APIS:
            return group_values(harness, api_key, version)
        case key if key in TRANSACTION_APIS:
            return transaction_values(api_key, version)
        case _:
            return _SMALL[api_key]


def _about_partitions(part: Any, api_key: int) -> dict[str, Any]:
    match api_key:
        case 21:
            partition = part.DeleteRecordsPartition(partition_index=0, offset=0)
            topics = (part.DeleteRecordsTopic(name=TOPIC, partitions=(partition,)),)
            return {"topics": topics, "timeout": seconds(1)}
        case 34:
            topic = part.AlterReplicaLogDirTopic(name=TOPIC, partitions=(0, 9))
            return {"dirs": (part.AlterReplicaLogDir(path="/nowhere", topics=(topic,)),)}
        case 35:
            return {"topics": (part.DescribableLogDirTopic(topic=TOPIC, partitions=(0, 1)),)}
        case 37:
            assigned = (part.CreatePartitionsAssignment(broker_ids=(1,)),)
            topics = (part.CreatePartitionsTopic(name=TOPIC, count=3, assignments=assigned),)
            return {"topics": topics, "timeout": seconds(1), "validate_only": True}
        case 43:
            topics = (part.TopicPartitions(topic=TOPIC, partitions=(0, 1)),)
            return {"election_type": 0, "topic_partitions": topics, "timeout": seconds(1)}
        case 45:
            wanted = tuple(
                part.ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in ((0, (1,)), (1, None), (0, (2, 1)))
            )
            topics = (part.ReassignableTopic(name=TOPIC, partitions=wanted),)
            return {"topics": topics, "timeout": seconds(1), "allow_replication_factor_change": False}
        case _:
            topics = (part.ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=(0, 1)),)
            return {"topics": topics, "timeout": seconds(1)}


def _about_settings(part: Any, api_key: int) -> dict[str, Any]:
    resource = {"resource_type": 2, "resource_name": TOPIC}
    if api_key == DESCRIBE_CONFIGS:
        keys = ("retention.ms", "cleanup.policy")
        asked = part.DescribeConfigsResource(**resource, configuration_keys=keys)
        return {"resources": (asked,), "include_synonyms": True, "include_documentation": True}
    change = part.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    altered = part.AlterConfigsResource(**resource, configs=(change,))
    return {"resources": (altered,), "validate_only": True}


_ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": TOPIC,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": "*",
}
_ONE_ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "resource_pattern_type": 3,
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_SMALL: dict[int, dict[str, Any]] = {
    UNREGISTER_BROKER: {"broker_id": 9},
    LIST_CONFIG_RESOURCES: {"resource_types": (2, 4, 16, 32)},
    GET_TELEMETRY: {"client_instance_id": UUID(int=2**99)},
    PUSH_TELEMETRY: {
        "client_instance_id": UUID(int=2**99),
        "subscription_id": 0,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics(gauge("org.apache.kafka.x", point(1, {"k": "v"}))),
    },
    DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": True,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    },
    FIND_COORDINATOR: {"key": "group", "key_type": 0, "coordinator_keys": ("group",)},
    API_VERSIONS: {"client_software_name": "x", "client_software_version": "1"},
    INIT_PRODUCER_ID: {
        "transactional_id": None,
        "transaction_timeout": seconds(60),
        "producer_id": -1,
        "producer_epoch": -1,
    },
}
SAMPLED = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    CREATE_TOPICS,
    DELETE_TOPICS,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_SCRAM,
    ALTER_SCRAM,
    UPDATE_FEATURES,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    *ABOUT_PARTITIONS,
    *GROUP_APIS,
    *TRANSACTION_APIS,
    *_SMALL,
)
