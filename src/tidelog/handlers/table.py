"""The handler of each API, the gate before them, and the one look-up that serves a request.

| what arrives                          | what it gets                                               |
|---------------------------------------|------------------------------------------------------------|
| a frame before authentication         | a closed connection                                        |
| an API and version in the table       | its handler's answer, in its turn                          |
| ApiVersions of an unknown version     | version 0 of the answer with UNSUPPORTED_VERSION (KIP-511) |
| anything else, or bytes that do not   | a closed connection                                        |
| decode                                |                                                            |

**Invariant:** whatever a frame holds, the outcome is an answer, a parked request or `MalformedRequest`.
"""

from __future__ import annotations

from struct import Struct

from tidelog.base.limits import API_VERSION_BITS
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.waiting import Parked
from tidelog.handlers.acls import handle_create_acls, handle_delete_acls, handle_describe_acls
from tidelog.handlers.api_versions import handle_api_versions, refuse_api_versions
from tidelog.handlers.broker_unregistration import handle_unregister_broker
from tidelog.handlers.cluster import handle_describe_cluster
from tidelog.handlers.configs import handle_describe_configs, handle_list_config_resources
from tidelog.handlers.configs_alteration import (
    handle_alter_configs,
    handle_incremental_alter_configs,
    is_of_loggers,
)
from tidelog.handlers.consumer_group_heartbeat import handle_consumer_group_heartbeat
from tidelog.handlers.delete_groups import handle_delete_groups
from tidelog.handlers.describe_groups import handle_consumer_group_describe, handle_describe_groups
from tidelog.handlers.elections import handle_elect_leaders
from tidelog.handlers.features import handle_update_features
from tidelog.handlers.fetch import handle_fetch
from tidelog.handlers.find_coordinator import handle_find_coordinator
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.group_membership import (
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from tidelog.handlers.list_groups import handle_list_groups
from tidelog.handlers.list_offsets import handle_list_offsets
from tidelog.handlers.log_directories import handle_alter_replica_log_dirs, handle_describe_log_dirs
from tidelog.handlers.metadata import handle_metadata
from tidelog.handlers.offset_commit import handle_offset_commit
from tidelog.handlers.offset_delete import handle_offset_delete
from tidelog.handlers.offset_fetch import handle_offset_fetch
from tidelog.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from tidelog.handlers.partitions import handle_create_partitions
from tidelog.handlers.produce import handle_produce
from tidelog.handlers.producer_ids import handle_init_producer_id
from tidelog.handlers.producers import handle_describe_producers
from tidelog.handlers.quotas import handle_alter_client_quotas, handle_describe_client_quotas
from tidelog.handlers.reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
)
from tidelog.handlers.records_deletion import handle_delete_records
from tidelog.handlers.request import Handler, Request, Result
from tidelog.handlers.scram import (
    handle_alter_user_scram_credentials,
    handle_describe_user_scram_credentials,
)
from tidelog.handlers.telemetry import handle_get_telemetry_subscriptions, handle_push_telemetry
from tidelog.handlers.topic_partitions import handle_describe_topic_partitions
from tidelog.handlers.topics import handle_create_topics, handle_delete_topics
from tidelog.handlers.transaction_listing import handle_describe_transactions, handle_list_transactions
from tidelog.handlers.transaction_markers import handle_write_txn_markers
from tidelog.handlers.transaction_offsets import handle_txn_offset_commit
from tidelog.handlers.transactions import (
    handle_add_offsets_to_txn,
    handle_add_partitions_to_txn,
    handle_end_txn,
)
from tidelog.protocol import apis, wire
from tidelog.protocol.envelope import open_envelope, seal
from tidelog.protocol.errors import MalformedRequest

_HEADER = Struct(">hhih")
_HEADER_SIZE = _HEADER.size
_THROTTLE_POSITION = (
    8  # of every answer of a controller's API: behind size and number, and tags if it has some
)
_ALTERATIONS = (apis.ALTER_CONFIGS.key, apis.INCREMENTAL_ALTER_CONFIGS.key)

HANDLERS: dict[apis.Api, Handler] = {
    apis.PRODUCE: handle_produce,
    apis.FETCH: handle_fetch,
    apis.LIST_OFFSETS: handle_list_offsets,
    apis.METADATA: handle_metadata,
    apis.OFFSET_COMMIT: handle_offset_commit,
    apis.OFFSET_FETCH: handle_offset_fetch,
    apis.FIND_COORDINATOR: handle_find_coordinator,
    apis.JOIN_GROUP: handle_join_group,
    apis.HEARTBEAT: handle_heartbeat,
    apis.LEAVE_GROUP: handle_leave_group,
    apis.SYNC_GROUP: handle_sync_group,
    apis.DESCRIBE_GROUPS: handle_describe_groups,
    apis.LIST_GROUPS: handle_list_groups,
    apis.API_VERSIONS: handle_api_versions,
    apis.CREATE_TOPICS: handle_create_topics,
    apis.DELETE_TOPICS: handle_delete_topics,
    apis.DELETE_RECORDS: handle_delete_records,
    apis.INIT_PRODUCER_ID: handle_init_producer_id,
    apis.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    apis.ADD_PARTITIONS_TO_TXN: handle_add_partitions_to_txn,
    apis.ADD_OFFSETS_TO_TXN: handle_add_offsets_to_txn,
    apis.END_TXN: handle_end_txn,
    apis.WRITE_TXN_MARKERS: handle_write_txn_markers,
    apis.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    apis.DESCRIBE_ACLS: handle_describe_acls,
    apis.CREATE_ACLS: handle_create_acls,
    apis.DELETE_ACLS: handle_delete_acls,
    apis.DESCRIBE_CONFIGS: handle_describe_configs,
    apis.ALTER_CONFIGS: handle_alter_configs,
    apis.ALTER_REPLICA_LOG_DIRS: handle_alter_replica_log_dirs,
    apis.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    apis.CREATE_PARTITIONS: handle_create_partitions,
    apis.DELETE_GROUPS: handle_delete_groups,
    apis.ELECT_LEADERS: handle_elect_leaders,
    apis.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    apis.ALTER_PARTITION_REASSIGNMENTS: handle_alter_partition_reassignments,
    apis.LIST_PARTITION_REASSIGNMENTS: handle_list_partition_reassignments,
    apis.OFFSET_DELETE: handle_offset_delete,
    apis.DESCRIBE_CLIENT_QUOTAS: handle_describe_client_quotas,
    apis.ALTER_CLIENT_QUOTAS: handle_alter_client_quotas,
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: handle_describe_user_scram_credentials,
    apis.ALTER_USER_SCRAM_CREDENTIALS: handle_alter_user_scram_credentials,
    apis.UPDATE_FEATURES: handle_update_features,
    apis.DESCRIBE_CLUSTER: handle_describe_cluster,
    apis.DESCRIBE_PRODUCERS: handle_describe_producers,
    apis.UNREGISTER_BROKER: handle_unregister_broker,
    apis.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    apis.LIST_TRANSACTIONS: handle_list_transactions,
    apis.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
    apis.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
    apis.GET_TELEMETRY_SUBSCRIPTIONS: handle_get_telemetry_subscriptions,
    apis.PUSH_TELEMETRY: handle_push_telemetry,
    apis.LIST_CONFIG_RESOURCES: handle_list_config_resources,
    apis.DESCRIBE_TOPIC_PARTITIONS: handle_describe_topic_partitions,
}
# What `dispatch` asks of a row, by key.
_ROWS = {
    api.key: (api.oldest_version, api.newest_version, api.flexible_version, api.is_controllers, handler)
    for api, handler in HANDLERS.items()
}


def dispatch(broker: Broker, client: Client, frame: memoryview) -> int:
    """Serve one frame: the answer goes to the connection, now or when it leaves the waiting room. The API
    key of a request that is done with, or -1."""
    if client.principal is None:  # the gate: before it nothing of a frame is looked at, repeated or not
        raise MalformedRequest("a request before authentication")
    if broker.quotas.is_on:
        broker.quotas.begin(client, frame)
    repeated = client.repeated
    if repeated is not None:
        again = repeated.serve(frame)
        if again is not None:
            return _deliver(broker, client, again.api_key, again)
    api_key, version, correlation_id, position = _read_header(frame)
    row = _ROWS.get(api_key)
    if row is None and api_key == apis.ENVELOPE_KEY and client.listener == broker.replicas.listener:
        return _serve_enveloped(broker, client, version, correlation_id, frame)
    if row is None:
        raise MalformedRequest(f"API {api_key} is not served")
    oldest_version, newest_version, flexible_version, is_controllers, handler = row
    if not oldest_version <= version <= newest_version:
        _refuse_version(broker, client, api_key, version, correlation_id, frame)
        return -1
    broker.served_counts[api_key << API_VERSION_BITS | version] += 1
    if version >= flexible_version:
        has_tags = position >= len(frame) or frame[position]
        position = wire.skip_tagged_fields(frame, position) if has_tags else position + 1
    request = Request(client, api_key, version, correlation_id, frame, position)
    if is_controllers and _is_forwarded(broker, request):
        return _deliver(broker, client, api_key, _forward(broker, request, handler))
    return _deliver(broker, client, api_key, handler(broker, request))


def _serve_enveloped(
    broker: Broker, client: Client, version: int, correlation_id: int, frame: memoryview
) -> int:
    """Serve what another broker got from a client, or wants itself, as if that client had asked here. The
    connection is not the client's: whatever it is over, it is muted where it has asked."""
    *_, position = _read_header(frame)
    envelope = open_envelope(frame, version, wire.skip_tagged_fields(frame, position))
    inner = memoryview(envelope.frame)
    asker = Client(client.connection, (envelope.address, 0), client.listener, envelope.principal)
    if envelope.principal is not None and broker.quotas.is_on:
        broker.quotas.know(asker, inner)
    api_key, inner_version, _, position = _read_header(inner)
    row = _ROWS.get(api_key)
    if row is None or not row[0] <= inner_version <= row[1]:
        raise MalformedRequest(f"an envelope with version {inner_version} of API {api_key}")
    _, _, flexible_version, is_controllers, handler = row
    broker.served_counts[api_key << API_VERSION_BITS | inner_version] += 1
    if inner_version >= flexible_version:
        position = wire.skip_tagged_fields(inner, position)
    request = Request(asker, api_key, inner_version, correlation_id, inner, position)
    if is_controllers and _is_forwarded(broker, request):
        return _deliver(broker, client, api_key, _forward(broker, request, handler))
    return _deliver(broker, client, api_key, handler(broker, request))


def _read_header(frame: memoryview) -> tuple[int, int, int, int]:
    """API key, version, correlation id, and where the client id ends."""
    if len(frame) < _HEADER_SIZE:
        raise MalformedRequest("a request shorter than its header")
    api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
    position = _HEADER_SIZE + client_id_size if client_id_size > 0 else _HEADER_SIZE
    if position > len(frame):
        raise MalformedRequest("a client id longer than the request")
    return api_key, version, correlation_id, position


def _deliver(broker: Broker, client: Client, api_key: int, result: Result) -> int:
    """Send the answer in its turn, or park the request; what `dispatch` returns."""
    if isinstance(result, Parked):
        if not result.is_gone:
            result.api_key = api_key
            result.parked_ms = broker.clock.uptime_ms
            if not broker.waiting.park(result, client.connection):
                result.is_gone = True  # the store may yet answer what its handler has asked for
                raise MalformedRequest("too many pending requests")
            return -1
        result = result.early
    if result is not None:
        client.connection.answer(result)
    return api_key


def _refuse_version(
    broker: Broker, client: Client, api_key: int, version: int, correlation_id: int, frame: memoryview
) -> None:
    if api_key != apis.API_VERSIONS.key:
        oldest_version, newest_version, *_ = _ROWS[api_key]
        raise MalformedRequest(
            f"version {version} of API {api_key}; {oldest_version} to {newest_version} are served"
        )
    request = Request(client, api_key, 0, correlation_id, frame, len(frame))
    client.connection.answer(refuse_api_versions(broker, request))


def _is_forwarded(broker: Broker, request: Request) -> bool:
    """Whether another broker is to answer what is the controller's."""
    if not broker.is_sharing or broker.control.is_controller:
        return False
    return request.api_key not in _ALTERATIONS or not is_of_loggers(request)


def _forward(broker: Broker, request: Request, handler: Handler) -> Result:
    """Have the controller answer. If that cannot be asked, the request is answered here: what it wants to
    change cannot be changed then, and clients are told to try again."""
    frame = memoryview(bytearray(request.data))
    kept = Request(
        request.client, request.api_key, request.version, request.correlation_id, frame, request.position
    )
    timeout = getattr(kept.decode(), "timeout", None)
    wait_ms = None if timeout is None else deadline_of(broker, timeout) - broker.clock.uptime_ms
    client = request.client
    throttle_position = _THROTTLE_POSITION + (request.version >= _ROWS[request.api_key][2])

    def hear(answer: bytearray) -> None:
        """Mute the client here for as long as the controller wants it to be, and tell all of that."""
        (throttle_ms,) = wire.INT32.unpack_from(answer, throttle_position)
        if throttle_ms > 0:
            client.mute(broker.clock, broker.clock.uptime_ms + throttle_ms)
        wire.INT32.pack_into(answer, throttle_position, client.throttle_time_ms)

    return broker.forwarding.forward(
        seal(frame, client.principal, client.address),
        request.correlation_id,
        lambda: handler(broker, kept),
        wait_ms,
        hear,
    )
