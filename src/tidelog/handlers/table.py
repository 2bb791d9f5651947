"""The table of APIs and the one look-up that serves a request. ApiVersions is this table.

| what arrives                          | what it gets                                               |
|---------------------------------------|------------------------------------------------------------|
| an API and version in the table       | its handler's answer, in its turn                          |
| ApiVersions of an unknown version     | version 0 of the answer with UNSUPPORTED_VERSION (KIP-511) |
| anything else, or bytes that do not   | a closed connection                                        |
| decode                                |                                                            |

**Invariant:** whatever a frame holds, the outcome is an answer, a parked request or `MalformedRequest`.
"""

from __future__ import annotations

from datetime import timedelta
from struct import Struct
from typing import NamedTuple

from tidelog.base.limits import API_VERSION_BITS, SOFTWARE_NAME_LENGTH_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.handlers.alterations import handle_alter_configs, handle_incremental_alter_configs, is_of_loggers
from tidelog.handlers.cluster import handle_metadata
from tidelog.handlers.configs import handle_describe_configs, handle_list_config_resources
from tidelog.handlers.decommission import handle_unregister_broker
from tidelog.handlers.describe import (
    handle_describe_cluster,
    handle_describe_producers,
    handle_describe_topic_partitions,
)
from tidelog.handlers.directories import handle_alter_replica_log_dirs, handle_describe_log_dirs
from tidelog.handlers.elections import handle_elect_leaders
from tidelog.handlers.features import features_told, handle_update_features
from tidelog.handlers.fetch import handle_fetch
from tidelog.handlers.gathering import deadline_of
from tidelog.handlers.group_admin import (
    handle_consumer_group_describe,
    handle_delete_groups,
    handle_describe_groups,
    handle_find_coordinator,
    handle_list_groups,
)
from tidelog.handlers.group_offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
)
from tidelog.handlers.groups import (
    handle_consumer_group_heartbeat,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from tidelog.handlers.growth import handle_create_partitions, handle_delete_records
from tidelog.handlers.offsets import handle_list_offsets, handle_offset_for_leader_epoch
from tidelog.handlers.produce import handle_produce
from tidelog.handlers.quotas import handle_alter_client_quotas, handle_describe_client_quotas
from tidelog.handlers.reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
)
from tidelog.handlers.request import Handler, Request, Result
from tidelog.handlers.security import (
    handle_alter_user_scram_credentials,
    handle_create_acls,
    handle_delete_acls,
    handle_describe_acls,
    handle_describe_user_scram_credentials,
)
from tidelog.handlers.telemetry import handle_get_telemetry_subscriptions, handle_push_telemetry
from tidelog.handlers.topics import handle_create_topics, handle_delete_topics
from tidelog.handlers.transactions import handle_init_producer_id
from tidelog.protocol import wire
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import ErrorCode, MalformedRequest

_HEADER = Struct(">hhih")
_HEADER_SIZE = _HEADER.size
API_VERSIONS = 18
# Told to clients only while somebody wants their metrics: librdkafka says a line about it at every start.
TELEMETRY_APIS = (71, 72)
# What the controller decides: topics, elections, settings, moves, credentials, features.
CONTROLLER_APIS = frozenset((19, 20, 33, 37, 43, 44, 45, 46, 51, 57, 64))
ALTERATION_APIS = (33, 44)
_ZERO = timedelta(0)


class Api(NamedTuple):
    key: int
    oldest_version: int
    newest_version: int
    flexible_version: int  # from here on headers have tagged fields
    handler: Handler
    advertised_version: int | None = None  # the oldest one that is advertised, if not the oldest served


def handle_api_versions(broker: Broker, request: Request) -> Result:
    """*Behaviour*: lists this table, and notes what software the client is. *Versions*: 3 adds the client's
    name and features, 4 the fix of feature ranges."""
    asked = request.decode()
    if request.version >= 3:
        name, software_version = asked.client_software_name, asked.client_software_version
        if not _is_software_name(name) or not _is_software_name(software_version):
            return request.respond(error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=_ZERO)
        request.connection.software = (
            name[:SOFTWARE_NAME_LENGTH_MAX],
            software_version[:SOFTWARE_NAME_LENGTH_MAX],
        )
    return _api_versions(broker, request, ErrorCode.none)


def _is_software_name(text: str) -> bool:
    """Letters and digits, with dashes and dots among them (KIP-511)."""
    ends = (text[:1] + text[-1:]).isalnum()
    return ends and text.isascii() and text.replace("-", "").replace(".", "").isalnum()


def _api_versions(broker: Broker, request: Request, error: ErrorCode) -> bytes:
    rows = tuple(
        request.make(
            "ApiVersion",
            api_key=api.key,
            min_version=api.oldest_version if api.advertised_version is None else api.advertised_version,
            max_version=api.newest_version,
        )
        for api in (APIS if error is ErrorCode.none else (_BY_KEY[API_VERSIONS],))
        if api.key not in TELEMETRY_APIS or broker.image.client_metrics
    )
    features = features_told(broker, request)
    return request.respond(error_code=error, api_keys=rows, throttle_time=_ZERO, **features)


# Old librdkafka takes a missing Produce 0 for a broker without compression (KAFKA-18659).
APIS = (
    Api(0, 3, 13, 9, handle_produce, advertised_version=0),
    Api(1, 4, 18, 12, handle_fetch),
    Api(2, 1, 11, 6, handle_list_offsets),
    Api(3, 0, 13, 9, handle_metadata),
    Api(8, 2, 10, 8, handle_offset_commit),
    Api(9, 1, 10, 6, handle_offset_fetch),
    Api(10, 0, 6, 3, handle_find_coordinator),
    Api(11, 0, 9, 6, handle_join_group),
    Api(12, 0, 4, 4, handle_heartbeat),
    Api(13, 0, 5, 4, handle_leave_group),
    Api(14, 0, 5, 4, handle_sync_group),
    Api(15, 0, 6, 5, handle_describe_groups),
    Api(16, 0, 5, 3, handle_list_groups),
    Api(18, 0, 4, 3, handle_api_versions),
    Api(19, 2, 7, 5, handle_create_topics),
    Api(20, 1, 6, 4, handle_delete_topics),
    Api(21, 0, 2, 2, handle_delete_records),
    Api(22, 0, 5, 2, handle_init_producer_id),
    Api(23, 2, 4, 4, handle_offset_for_leader_epoch),
    Api(29, 1, 3, 2, handle_describe_acls),
    Api(30, 1, 3, 2, handle_create_acls),
    Api(31, 1, 3, 2, handle_delete_acls),
    Api(32, 1, 4, 4, handle_describe_configs),
    Api(33, 0, 2, 2, handle_alter_configs),
    Api(34, 1, 2, 2, handle_alter_replica_log_dirs),
    Api(35, 1, 5, 2, handle_describe_log_dirs),
    Api(37, 0, 3, 2, handle_create_partitions),
    Api(42, 0, 2, 2, handle_delete_groups),
    Api(43, 0, 2, 2, handle_elect_leaders),
    Api(44, 0, 1, 1, handle_incremental_alter_configs),
    Api(45, 0, 1, 0, handle_alter_partition_reassignments),
    Api(46, 0, 0, 0, handle_list_partition_reassignments),
    Api(47, 0, 0, 1, handle_offset_delete),
    Api(48, 0, 1, 1, handle_describe_client_quotas),
    Api(49, 0, 1, 1, handle_alter_client_quotas),
    Api(50, 0, 0, 0, handle_describe_user_scram_credentials),
    Api(51, 0, 0, 0, handle_alter_user_scram_credentials),
    Api(57, 0, 2, 0, handle_update_features),
    Api(60, 0, 2, 0, handle_describe_cluster),
    Api(61, 0, 0, 0, handle_describe_producers),
    Api(64, 0, 0, 0, handle_unregister_broker),
    Api(68, 0, 1, 0, handle_consumer_group_heartbeat),
    Api(69, 0, 1, 0, handle_consumer_group_describe),
    Api(71, 0, 0, 0, handle_get_telemetry_subscriptions),
    Api(72, 0, 0, 0, handle_push_telemetry),
    Api(74, 0, 1, 0, handle_list_config_resources),
    Api(75, 0, 0, 0, handle_describe_topic_partitions),
)
_BY_KEY: dict[int, Api] = {api.key: api for api in APIS}


def dispatch(broker: Broker, connection: Connection, frame: memoryview) -> int:
    """Serve one frame: the answer goes to the connection, now or when it leaves the waiting room. The API
    key of a request that is done with, or -1."""
    if connection.repeated is not None:
        again = connection.repeated.serve(frame)
        if again is not None:
            assert isinstance(again, Parked)
            if not again.is_gone:
                _park(broker, connection, again)
            elif again.early is not None:
                connection.answer(again.early)
            return -1
    api_key, version, correlation_id, client_id_size = _read_header(frame)
    position = _HEADER_SIZE + client_id_size if client_id_size > 0 else _HEADER_SIZE
    api = _BY_KEY.get(api_key)
    if api is None:
        raise MalformedRequest(f"API {api_key} is not served")
    if not api.oldest_version <= version <= api.newest_version:
        _refuse_version(broker, connection, api, version, correlation_id, frame)
        return -1
    broker.served_counts[api_key << API_VERSION_BITS | version] += 1
    if version >= api.flexible_version:
        has_tags = position >= len(frame) or frame[position]
        position = wire.skip_tagged_fields(frame, position) if has_tags else position + 1
    request = Request(connection, api_key, version, correlation_id, frame, position)
    is_local = not broker.is_sharing or api_key not in CONTROLLER_APIS or broker.control.is_controller
    result = api.handler(broker, request) if is_local else _forward(broker, api, request)
    if isinstance(result, Parked):
        if not result.is_gone:
            result.api_key = api_key
            _park(broker, connection, result)
            return -1
        result = result.early
    if result is not None:
        connection.answer(result)
    return api_key


def _park(broker: Broker, connection: Connection, parked: Parked) -> None:
    parked.parked_ms = broker.uptime_ms
    if not broker.waiting.park(parked, connection):
        parked.is_gone = True  # the store may yet answer what its handler has asked for
        raise MalformedRequest("too many requests wait for an answer")


def _forward(broker: Broker, api: Api, request: Request) -> Result:
    """Have the controller answer. If that cannot be asked, the request is answered here: what it wants to
    change cannot be changed then, and clients are told to try again."""
    if api.key in ALTERATION_APIS and is_of_loggers(request):
        return api.handler(broker, request)
    frame = memoryview(bytearray(request.data))
    kept = Request(
        request.connection, api.key, request.version, request.correlation_id, frame, request.position
    )

    timeout = getattr(kept.decode(), "timeout", None)
    wait_ms = None if timeout is None else deadline_of(broker, timeout) - broker.uptime_ms
    return broker.forwarding.forward(
        frame, request.correlation_id, lambda: api.handler(broker, kept), wait_ms
    )


def _read_header(frame: memoryview) -> tuple[int, int, int, int]:
    if len(frame) < _HEADER_SIZE:
        raise MalformedRequest("a request shorter than its header")
    header: tuple[int, int, int, int] = _HEADER.unpack_from(frame)
    if header[3] > len(frame) - _HEADER_SIZE:
        raise MalformedRequest("a client id longer than the request")
    return header


def _refuse_version(
    broker: Broker, connection: Connection, api: Api, version: int, correlation_id: int, frame: memoryview
) -> None:
    if api.key != API_VERSIONS:
        raise MalformedRequest(
            f"version {version} of API {api.key}; {api.oldest_version} to {api.newest_version} are served"
        )
    request = Request(connection, API_VERSIONS, 0, correlation_id, frame, len(frame))
    connection.answer(_api_versions(broker, request, ErrorCode.unsupported_version))
