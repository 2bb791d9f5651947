"""DescribeCluster: its brokers and its controller, as the clients of a listener see them.

**Invariant:** changes nothing.
"""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.handlers.names import controller_told
from tidelog.handlers.operations import CLUSTER_OPERATIONS, NO_OPERATIONS
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2


def handle_describe_cluster(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the cluster's id, and those of its brokers that have the listener that the client came in
    by, with their addresses there. Asked for brokers, it names a live one as the controller, as KRaft does.
    Asked for controllers, which all brokers may become, it names the one that decides now, or -1; also where
    that is this broker, and the store cannot be reached.

    *Versions*: 1 asks for a type of endpoints; 2 tells which brokers are fenced, and there are none.
    """
    asked = request.decode()
    wanted = getattr(asked, "endpoint_type", _BROKERS)
    if wanted not in (_BROKERS, _CONTROLLERS):
        return _no_cluster(
            request, ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}"
        )
    reachable = broker.image.addresses(request.client.listener)
    brokers = tuple(
        request.make(
            "DescribeClusterBroker",
            broker_id=node_id,
            host=host,
            port=port,
            rack=broker.image.brokers[node_id].rack or None,
            is_fenced=False,
        )
        for node_id, (host, port) in reachable.items()
    )
    return request.respond(
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=wanted,
        cluster_id=broker.image.cluster_id,
        controller_id=(
            controller_told(broker, reachable) if wanted == _BROKERS else broker.control.deciding_id
        ),
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if asked.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def _no_cluster(request: Request, error: ErrorCode, message: str) -> bytes:
    return request.respond(
        error_code=error,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="",
        controller_id=-1,
        brokers=(),
        cluster_authorized_operations=NO_OPERATIONS,
    )
