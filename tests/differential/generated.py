"""Requests that nobody thought of: any value of any field, drawn by Hypothesis from kio's types.

Values are biased: names that exist and names that do not, the numbers at which checks change their mind.
What would part the two brokers for good is left out: a change of the world's topics, a batch that only one
of them takes, an array in which the same partition stands twice.

**Invariant:** what is drawn here is answered at once: no acks=0, no long wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema

from tests.differential.entities import NOBODY, milliseconds, topic_id, type_of
from tests.differential.scenarios.records import altered
from tests.differential.world import COMPACTED, ORDERS, SCRATCH, SMALL, START_MS, batch

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 0, 1, 3, 19, 20, 21
ALTER_CONFIGS, ALTER_REPLICA_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 33, 34, 37, 44
OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT, LIST_TRANSACTIONS = 24, 27, 28, 66
JOIN_GROUP, DESCRIBE_GROUPS, CONSUMER_HEARTBEAT = 11, 15, 68
REASSIGN, ALTER_SCRAM, UPDATE_FEATURES, UNREGISTER_BROKER, DESCRIBE_TOPIC_PARTITIONS = 45, 51, 57, 64, 75

KNOWN = (ORDERS, SMALL, COMPACTED)
MADE = tuple(f"made-{number}" for number in range(4))
STRANGE = ("a b", "", ".", "x" * 250)
SETTINGS = (
    "retention.ms",
    "cleanup.policy",
    "min.insync.replicas",
    "segment.bytes",
    "log.retention.ms",
    "x.y",
)
TEXTS = ("1000", "-1", "0", "compact", "compact,delete", "x", "", "true", "9223372036854775808")
NUMBERS = (0, 1, -1, 2, 3, 5, -2, 99)
Pool = tuple[Any, ...]

# What a field of that name may hold, in any API.
POOLS: dict[str, Pool] = {
    "name": (*KNOWN, "absent", *STRANGE),
    "topic": (*KNOWN, "absent", *STRANGE),
    "topic_name": (*KNOWN, "absent", *STRANGE),
    "topic_id": (None, NOBODY, topic_id(ORDERS), topic_id(SMALL)),
    "transactional_id": (None, ""),
    "resource_name": (*KNOWN, "1", "", "2", "absent"),
    "resource_type": (2, 4, 8, 16, 32, 0, 1, 99, -1),
    "resource_types": (2, 4, 8, 16, 32, 0, 1, 99, -1),
    "configuration_keys": SETTINGS,
    "value": (*TEXTS, None),
    "config_operation": (0, 1, 2, 3),
    "path": ("/nowhere", "", "relative"),
    "feature": ("no.such.feature", ""),
    "records": (batch(1), batch(2, codec=1), altered(batch(1), crc=1), altered(batch(2), magic=1), b"", b"x"),
    "acks": (-1, 1, 2, -2),
    "timeout": (milliseconds(20_000),),
    "transaction_timeout": (milliseconds(60_000), milliseconds(0)),
    "max_wait": (milliseconds(0), milliseconds(1), milliseconds(-1)),
    "max_bytes": (0, 1, 100, 2**20),
    "partition_max_bytes": (0, 1, 100, 2**20),
    "session_id": (0,),
    "session_epoch": (-1, 5),
    "replica_id": (-1, -2),
    "replica_state": (),
    "response_partition_limit": (2_000, 2**31 - 1),
    "entity_type": ("user", "client-id", "ip", ""),
    "fetch_offset": (0, 1, 3, 6, 7, -1, 2**63 - 1),
    "timestamp": (*range(-7, 2), START_MS, START_MS + 1_500, 2**63 - 1),
    "offset": (0, 1, 3, -1, -2, 99),
    "num_partitions": (1, 2, -1, 0, -2),
    "count": (1, 2, 4, 0, -1),
    "replication_factor": (1, -1, 0, -2, 2),
    "validate_only": (True,),
    "allow_auto_topic_creation": (False,),
    "broker_ids": (1, 7, -1),
    "replicas": (1, 7, -1),
    "iterations": (4_096, 16_384, 4_095, 0),
    "salt": (b"salt", b""),
    "group_id": ("drawn-a", "drawn-b", ""),
    "group_ids": ("drawn-a", "drawn-b", ""),
    "groups_names": ("drawn-a", "drawn-b", ""),
    "session_timeout": (milliseconds(0), milliseconds(10_000), milliseconds(-1)),
    "rebalance_timeout": (milliseconds(60_000), milliseconds(-1)),
    "retention_time": (milliseconds(-1), milliseconds(10**9)),
    "subscribed_topic_regex": (None, "", "(", "x.*"),
    "salted_password": (b"p" * 32, b""),
}
# What it may hold in one API.
API_POOLS: dict[tuple[int, str], Pool] = {
    (49, "value"): (0.0, 1.0, -1.0, 1e300),
    (PRODUCE, "name"): (SCRATCH, SMALL, COMPACTED, "absent", *STRANGE),
    (PRODUCE, "topic_id"): (NOBODY, topic_id(SCRATCH), topic_id(SMALL)),
    (FETCH, "topic_id"): (NOBODY, topic_id(ORDERS), topic_id(SMALL)),  # of no id Kafka makes an exception
    (CREATE_TOPICS, "name"): (*MADE, *KNOWN, *STRANGE),
    (CREATE_TOPICS, "validate_only"): (True, False),
    (DELETE_TOPICS, "name"): (*MADE, "absent", None),
    (DELETE_TOPICS, "topic_names"): (*MADE, "absent", *STRANGE),
    (DELETE_TOPICS, "topic_id"): (None, NOBODY),
    (DELETE_RECORDS, "name"): (SCRATCH, "absent", "a b"),
    (DESCRIBE_GROUPS, "groups"): ("drawn-a", "drawn-b", ""),
    (JOIN_GROUP, "member_id"): ("nobody", "x"),  # who joins waits for others
    (CONSUMER_HEARTBEAT, "member_id"): ("nobody", "x"),
    (CONSUMER_HEARTBEAT, "member_epoch"): (1, -1, -2, -3, 99),  # who joins has partitions of its own choice
    (ALTER_CONFIGS, "resource_type"): (2, 4, 8, 16, 32, 99),
    (ADD_PARTITIONS_TO_TXN, "transactional_id"): ("", "x"),
    (LIST_TRANSACTIONS, "producer_id_filters"): (-1, 10**15),  # that neither has given
    (WRITE_TXN_MARKERS, "name"): ("absent", "a b", ""),  # a marker is a record
    (REASSIGN, "name"): ("absent", "a b", ""),
    (UNREGISTER_BROKER, "broker_id"): (7, -1, 99),  # of itself Kafka would let go
    (DESCRIBE_TOPIC_PARTITIONS, "topic_name"): (*KNOWN, "absent"),
    (ALTER_SCRAM, "name"): ("drawn-a", "drawn-b", ""),
}
# Settings stand under `name` too, but in parts of their own.
PART_POOLS: dict[tuple[str, str], Pool] = {
    (part, "name"): SETTINGS for part in ("AlterableConfig", "CreatableTopicConfig")
}
# Where one of the two brokers would act on each of two entries, and the other on one of them.
UNIQUE_APIS = (
    PRODUCE,
    FETCH,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_DELETE,
    ALTER_CONFIGS,
    DELETE_RECORDS,
    ALTER_SCRAM,
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
)
# Where Kafka leaves out of its answer what names nothing, or does not answer at all.
FILLED_APIS = (ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT)


def requests(api_key: int, version: int) -> st.SearchStrategy[Any]:
    return _entities(load_request_schema(api_key, version), api_key, version)


def _entities(schema: Any, api_key: int, version: int) -> st.SearchStrategy[Any]:
    drawn = {field.name: _values(schema.__name__, field, api_key, version) for field in fields(schema)}
    return st.fixed_dictionaries(drawn).map(lambda values: schema(**values))


def _values(part: str, field: Field[Any], api_key: int, version: int) -> st.SearchStrategy[Any]:
    kind, is_array, is_nullable = type_of(field)
    pool = _pool(part, field.name, api_key, version)
    if is_dataclass(kind) and pool is None:
        inner = _entities(kind, api_key, version)
    else:
        inner = st.sampled_from(_typed(field, kind, pool))
    if is_array:
        unique = _identity if api_key in UNIQUE_APIS else None
        least = int(api_key in FILLED_APIS)
        inner = st.lists(inner, min_size=least, max_size=2, unique_by=unique).map(tuple)
    return st.one_of(inner, st.none()) if is_nullable and pool is None else inner


def _identity(entry: Any) -> Any:
    """By what two entries of an array are the same."""
    if hasattr(entry, "transactional_id"):
        return entry.transactional_id
    names = (
        "name",
        "group_id",
        "topic",
        "topic_id",
        "index",
        "partition",
        "partition_index",
        "resource_name",
        "producer_id",
    )
    return tuple(str(getattr(entry, name, "")) for name in names) if is_dataclass(entry) else entry


def _pool(part: str, name: str, api_key: int, version: int) -> Pool | None:
    if api_key == METADATA and name == "name" and version < 4:
        return (*KNOWN, *STRANGE)  # whoever asks for another makes it
    return PART_POOLS.get((part, name)) or API_POOLS.get((api_key, name)) or POOLS.get(name)


def _typed(field: Field[Any], kind: Any, pool: Pool | None) -> list[Any]:
    """The pool, or what suits the type; an empty pool leaves the field at its default."""
    if pool == ():
        return [field.default]
    kafka_type = field.metadata.get("kafka_type", "")
    make = _MAKERS.get(kafka_type)
    chosen = list(pool) if pool is not None else list(_TYPE_POOLS.get(kafka_type, NUMBERS))
    if "Nullable" not in str(field.type) and type(None) not in getattr(field.type, "__args__", ()):
        chosen = [value for value in chosen if value is not None or kafka_type == "uuid"]
    return [value if make is None or value is None else make(value) for value in chosen]


_MAKERS: dict[str, Callable[[Any], Any]] = {"records": bytes, "bytes": bytes}
_TYPE_POOLS: dict[str, Pool] = {
    "string": ("", "x", "a b"),
    "bool": (True, False),
    "timedelta_i32": (milliseconds(0), milliseconds(1_000)),
    "bytes": (b"", b"x"),
    "int8": (0, 1, 2, 3, 4, 99, -1),
    "uuid": (None, NOBODY),
}
