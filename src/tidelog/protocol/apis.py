"""The table of APIs: name, versions that are served, and the rights that a request may need.

The broker adds a handler to each row (`handlers/table`), the client narrows a row to the versions that it
speaks; docs/protocol.md shows the rows.

**Invariant:** the number and name of an API, and its first flexible version, are written here alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class Resource(IntEnum):
    """What a right is about, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """What a right allows, by Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


Rights = tuple[tuple[Resource, Operation], ...]


class Api(NamedTuple):
    key: int
    name: str
    oldest_version: int
    newest_version: int
    flexible_version: int  # from here on messages have compact lengths and tagged fields
    rights: Rights = ()  # that may be asked for, by what a request names
    is_controllers: bool = False  # the controller decides; others hand the request on
    advertised_version: int | None = None  # the oldest one that is advertised, if not the oldest served

    def narrowed(self, oldest_version: int, newest_version: int) -> Api:
        """The same for somebody who speaks fewer versions, or others, than are served."""
        return self._replace(oldest_version=oldest_version, newest_version=newest_version)


def _on(resource: Resource, *operations: Operation) -> Rights:
    return tuple((resource, operation) for operation in operations)


def _topic(*operations: Operation) -> Rights:
    return _on(Resource.TOPIC, *operations)


def _group(*operations: Operation) -> Rights:
    return _on(Resource.GROUP, *operations)


def _cluster(*operations: Operation) -> Rights:
    return _on(Resource.CLUSTER, *operations)


def _transaction(*operations: Operation) -> Rights:
    return _on(Resource.TRANSACTIONAL_ID, *operations)


_O = Operation
_ON_SETTINGS = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER)
_SEES_SETTINGS = tuple((resource, _O.DESCRIBE_CONFIGS) for resource in _ON_SETTINGS)
_ALTERS_SETTINGS = tuple((resource, _O.ALTER_CONFIGS) for resource in _ON_SETTINGS)

# Between brokers, and in no list that clients see: a client's request that is the controller's (KIP-590).
ENVELOPE_KEY = 58

# Old librdkafka takes a missing Produce 0 for a broker without compression (KAFKA-18659).
PRODUCE = Api(0, "Produce", 3, 13, 9, _topic(_O.WRITE) + _transaction(_O.WRITE), advertised_version=0)
FETCH = Api(1, "Fetch", 4, 18, 12, _topic(_O.READ) + _cluster(_O.CLUSTER_ACTION))
LIST_OFFSETS = Api(2, "ListOffsets", 1, 11, 6, _topic(_O.DESCRIBE))
METADATA = Api(3, "Metadata", 0, 13, 9, _topic(_O.DESCRIBE, _O.CREATE) + _cluster(_O.CREATE))
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 10, 8, _group(_O.READ) + _topic(_O.READ))
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 10, 6, _group(_O.DESCRIBE) + _topic(_O.DESCRIBE))
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, 3, _group(_O.DESCRIBE) + _transaction(_O.DESCRIBE))
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, 6, _group(_O.READ))
HEARTBEAT = Api(12, "Heartbeat", 0, 4, 4, _group(_O.READ))
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, 4, _group(_O.READ))
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, 4, _group(_O.READ))
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 6, 5, _group(_O.DESCRIBE))
LIST_GROUPS = Api(16, "ListGroups", 0, 5, 3, _cluster(_O.DESCRIBE) + _group(_O.DESCRIBE))
API_VERSIONS = Api(18, "ApiVersions", 0, 4, 3)
CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, 5, _cluster(_O.CREATE) + _topic(_O.CREATE), True)
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, 4, _topic(_O.DELETE), True)
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2, 2, _topic(_O.DELETE))
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 5, 2, _transaction(_O.WRITE) + _cluster(_O.IDEMPOTENT_WRITE))
OFFSET_FOR_LEADER_EPOCH = Api(
    23, "OffsetForLeaderEpoch", 2, 4, 4, _topic(_O.DESCRIBE) + _cluster(_O.CLUSTER_ACTION)
)
ADD_PARTITIONS_TO_TXN = Api(
    24,
    "AddPartitionsToTxn",
    0,
    5,
    3,
    _transaction(_O.WRITE) + _topic(_O.WRITE) + _cluster(_O.CLUSTER_ACTION),
)
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", 0, 4, 3, _transaction(_O.WRITE) + _group(_O.READ))
END_TXN = Api(26, "EndTxn", 0, 5, 3, _transaction(_O.WRITE))
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 2, 1, _cluster(_O.CLUSTER_ACTION, _O.ALTER))
TXN_OFFSET_COMMIT = Api(
    28, "TxnOffsetCommit", 0, 5, 3, _transaction(_O.WRITE) + _group(_O.READ) + _topic(_O.READ)
)
DESCRIBE_ACLS = Api(29, "DescribeAcls", 1, 3, 2, _cluster(_O.DESCRIBE))
CREATE_ACLS = Api(30, "CreateAcls", 1, 3, 2, _cluster(_O.ALTER))
DELETE_ACLS = Api(31, "DeleteAcls", 1, 3, 2, _cluster(_O.ALTER))
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, 4, _SEES_SETTINGS)
ALTER_CONFIGS = Api(33, "AlterConfigs", 0, 2, 2, _ALTERS_SETTINGS, True)
ALTER_REPLICA_LOG_DIRS = Api(34, "AlterReplicaLogDirs", 1, 2, 2, _cluster(_O.ALTER))
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 1, 5, 2, _cluster(_O.DESCRIBE))
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, 2, _topic(_O.ALTER), True)
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, 2, _group(_O.DELETE))
ELECT_LEADERS = Api(43, "ElectLeaders", 0, 2, 2, _cluster(_O.ALTER), True)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, 1, _ALTERS_SETTINGS, True)
ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", 0, 1, 0, _cluster(_O.ALTER), True)
LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", 0, 0, 0, _cluster(_O.DESCRIBE), True)
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, 1, _group(_O.DELETE) + _topic(_O.READ))
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 0, 1, 1, _cluster(_O.DESCRIBE_CONFIGS))
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 0, 1, 1, _cluster(_O.ALTER_CONFIGS), True)
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", 0, 0, 0, _cluster(_O.DESCRIBE))
ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", 0, 0, 0, _cluster(_O.ALTER), True)
UPDATE_FEATURES = Api(57, "UpdateFeatures", 0, 2, 0, _cluster(_O.ALTER), True)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, 0, _cluster(_O.DESCRIBE))
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, 0, _topic(_O.READ))
UNREGISTER_BROKER = Api(64, "UnregisterBroker", 0, 0, 0, _cluster(_O.ALTER), True)
DESCRIBE_TRANSACTIONS = Api(
    65, "DescribeTransactions", 0, 0, 0, _transaction(_O.DESCRIBE) + _topic(_O.DESCRIBE)
)
LIST_TRANSACTIONS = Api(66, "ListTransactions", 0, 2, 0, _transaction(_O.DESCRIBE))
CONSUMER_GROUP_HEARTBEAT = Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, _group(_O.READ) + _topic(_O.DESCRIBE))
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", 0, 1, 0, _group(_O.DESCRIBE) + _topic(_O.DESCRIBE))
GET_TELEMETRY_SUBSCRIPTIONS = Api(71, "GetTelemetrySubscriptions", 0, 0, 0)
PUSH_TELEMETRY = Api(72, "PushTelemetry", 0, 0, 0)
LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", 0, 1, 0, _cluster(_O.DESCRIBE_CONFIGS))
DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", 0, 0, 0, _topic(_O.DESCRIBE))

# Every row above is served; ApiVersions lists them in this order.
APIS: tuple[Api, ...] = tuple(row for row in list(globals().values()) if isinstance(row, Api))

# What our client asks of other brokers, and this one does not serve.
SASL_HANDSHAKE = Api(17, "SaslHandshake", 1, 1, 2)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, 2)


def api_table(apis: Iterable[Api]) -> str:
    """The rows as docs/protocol.md shows them."""
    lines = [
        "| key | API | versions | flexible from | decided by | rights |",
        "|---|---|---|---|---|---|",
    ]
    for api in apis:
        decider = "controller" if api.is_controllers else ""
        cells = str(api.key), api.name, _versions_of(api), _flexible_of(api), decider, _rights_of(api)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _versions_of(api: Api) -> str:
    oldest, newest = api.oldest_version, api.newest_version
    served = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    return served if api.advertised_version is None else f"{served}, advertised from {api.advertised_version}"


def _flexible_of(api: Api) -> str:
    return str(api.flexible_version) if api.flexible_version <= api.newest_version else ""


def _rights_of(api: Api) -> str:
    return ", ".join(f"{_words(resource)}: {_words(operation)}" for resource, operation in api.rights)


def _words(member: IntEnum) -> str:
    return member.name.lower().replace("_", " ")
