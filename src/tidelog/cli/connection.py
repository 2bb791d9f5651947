"""Connections of the commands to a broker: librdkafka clients without log output.

**Invariant:** an unreachable broker is reported once, with its address, within seconds; a reachable broker is
never reported as unreachable.
"""

from __future__ import annotations

import socket
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

from tidelog.cli.addresses import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    split_address,
    unanswered,
    unreachable,
)
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import describe_cluster, no_controller

_UNREACHABLE_CODES = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)


def client_settings(bootstrap_server: str) -> dict[str, Any]:
    """The common settings of all clients; raises a Failure if nothing listens at the address."""
    _knock(bootstrap_server)
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "tidelog-cli",
        "log_level": 0,
        "enable.metrics.push": False,  # a command ends before metrics are pushed
    }


def open_admin(bootstrap_server: str) -> AdminClient:
    return AdminClient(client_settings(bootstrap_server))


def cluster_metadata(client: AdminClient, bootstrap_server: str) -> ClusterMetadata:
    """The metadata of all topics. (A request for one topic by name could create it.)"""
    try:
        metadata: ClusterMetadata = client.list_topics(timeout=ANSWER_TIMEOUT_S)
        return metadata
    except KafkaException as error:
        raise explain(error, bootstrap_server) from None


def topic_metadata(client: AdminClient, bootstrap_server: str, topic: str) -> TopicMetadata:
    """The metadata of one topic; raises a Failure if it does not exist."""
    found: TopicMetadata | None = cluster_metadata(client, bootstrap_server).topics.get(topic)
    if found is None:
        raise no_such_topic(topic)
    if found.error is not None:
        raise Failure(f"topic {topic!r}: {found.error.str()}")
    return found


def no_such_topic(topic: str) -> Failure:
    return Failure(f"topic {topic!r} does not exist; create it with: tidelog topic create {topic}")


def explain(error: KafkaException, bootstrap_server: str) -> Failure:
    """The failure for a client's exception."""
    cause: KafkaError = error.args[0]
    if cause.code() == KafkaError.NOT_CONTROLLER:
        return no_controller(bootstrap_server)
    if cause.code() not in _UNREACHABLE_CODES:
        return Failure(cause.str())
    try:
        cluster = describe_cluster(bootstrap_server)
    except Failure as failure:
        return failure
    return no_controller(bootstrap_server) if cluster.controller_id < 0 else unanswered(bootstrap_server)


def _knock(bootstrap_server: str) -> None:
    """Raise a Failure if no address accepts connections: librdkafka would retry for ever."""
    reason = "no address"
    for address in bootstrap_server.split(","):
        try:
            socket.create_connection(split_address(address), CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            reason = (error.strerror or "timed out").lower()
    raise unreachable(bootstrap_server, reason)
