"""The brokers of a cluster as one of them tells it: ids, addresses, racks, the controller."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cli.failure import Failure
from tidelog.cli.remote import Api, RemoteBroker, check, open_any

_BROKERS = 1  # the endpoints of brokers, not of controllers


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
    answer = broker.ask(
        Api.DESCRIBE_CLUSTER,
        include_cluster_authorized_operations=False,
        endpoint_type=_BROKERS,
        include_fenced_brokers=True,
    )
    check("the cluster", answer.error_code, answer.error_message)
    nodes = [
        Node(found.broker_id, found.host, found.port, found.rack, getattr(found, "is_fenced", False))
        for found in answer.brokers
    ]
    return Cluster(answer.cluster_id, answer.controller_id, tuple(sorted(nodes, key=lambda node: node.id)))


def address_of(bootstrap_server: str, node_id: int) -> str:
    return describe_cluster(bootstrap_server).node(node_id).address


def open_controller(cluster: Cluster, bootstrap_server: str) -> RemoteBroker:
    """Older clusters let nobody else change who leads and who holds; newer ones hand it on to whoever can."""
    for node in cluster.nodes:
        if node.id == cluster.controller_id and not node.is_fenced:
            return RemoteBroker(node.address)
    return open_any(bootstrap_server)
