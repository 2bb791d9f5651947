"""The brokers of a cluster, from one of them: ids, addresses, racks, the controller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tidelog.cli.failure import Failure
from tidelog.cli.remote import RemoteBroker, check, open_any
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

CONTROLLER_WAIT_S = 5.0  # an election takes tenths of a second once ZooKeeper has noticed
CONTROLLER_LOOK_S = 0.1
_BROKERS, _CONTROLLERS = 1, 2  # types of endpoints


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Cluster:
    id: str
    controller_id: int
    nodes: tuple[Node, ...]

    def node(self, node_id: int) -> Node:
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise Failure(f"broker {node_id} is not in the cluster; its brokers are: {known}")


def describe_cluster(bootstrap_server: str) -> Cluster:
    with open_any(bootstrap_server) as broker:
        return ask_cluster(broker)


def ask_cluster(broker: RemoteBroker) -> Cluster:
    answer = _ask(broker, _BROKERS)
    check("the cluster", answer.error_code, answer.error_message)
    decides = _ask(broker, _CONTROLLERS)
    # A Kafka broker in KRaft mode refuses this, and its Metadata names any broker as the controller.
    controller_id = (decides if decides.error_code is ErrorCode.none else answer).controller_id
    nodes = [
        Node(found.broker_id, found.host, found.port, found.rack, getattr(found, "is_fenced", False))
        for found in answer.brokers
    ]
    return Cluster(answer.cluster_id, controller_id, tuple(sorted(nodes, key=lambda node: node.id)))


def _ask(broker: RemoteBroker, endpoint_type: int) -> Any:
    return broker.ask(
        apis.DESCRIBE_CLUSTER,
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=True,
    )


def has_controller(cluster: Cluster) -> bool:
    """Whether the named controller can decide; it reports itself if it cannot reach ZooKeeper. A controller
    that does not answer here may still answer the other brokers, until they elect another."""
    for node in cluster.nodes:
        if node.id == cluster.controller_id:
            try:
                with RemoteBroker(node.address) as broker:
                    return ask_cluster(broker).controller_id >= 0
            except Failure:
                return True
    return cluster.controller_id >= 0


def await_controller(bootstrap_server: str) -> None:
    """Raise a Failure within seconds if there is no controller: it makes all changes."""
    deadline = time.monotonic() + CONTROLLER_WAIT_S
    with open_any(bootstrap_server) as broker:
        while not has_controller(ask_cluster(broker)):
            if time.monotonic() > deadline:
                raise no_controller(broker.address)
            time.sleep(CONTROLLER_LOOK_S)


def no_controller(address: str) -> Failure:
    return Failure(
        f"the broker at {address} answers, but the cluster has no controller: nothing can be created, "
        "changed or deleted; check that ZooKeeper runs, and the brokers' logs, then try again"
    )


def address_of(bootstrap_server: str, node_id: int) -> str:
    return describe_cluster(bootstrap_server).node(node_id).address


def open_controller(cluster: Cluster, bootstrap_server: str) -> RemoteBroker:
    """A connection to the controller on older clusters, to any broker on newer ones, which forward
    requests."""
    for node in cluster.nodes:
        if node.id == cluster.controller_id and not node.is_fenced:
            return RemoteBroker(node.address)
    await_controller(bootstrap_server)
    return open_any(bootstrap_server)
