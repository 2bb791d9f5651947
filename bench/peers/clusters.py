"""Three brokers of each kind, as their own documentation starts them, seen as one: measure, kill, stop.

Tidelog's are those of `tidelog cluster`: one ZooKeeper, three brokers, and the command that watches them. CPU
and memory are those of everything that was started, ZooKeeper and that command included. Kafka's are three
nodes, each broker and controller.

**Invariant:** whatever was spawned here is gone after `stop`.
"""

from __future__ import annotations

import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kio.schema.describe_cluster.v1 import request as cluster_request
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.describe_quorum.v1 import request as quorum_request
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from bench.load.admin import Admin, read_response, request_frame
from bench.peers.kafka import Kafka
from bench.peers.process import READY_SECONDS_MAX, Peer, PeerFailed, RunningBroker, Site, process_tree
from bench.peers.tidelog import Tidelog

BROKERS = 3
SESSION_MS = 6_000
POLL_SECONDS = 0.05
READY = re.compile(r"tidelog ready: broker (\d+) at \S+:(\d+)\s")
# What `tidelog cluster` sets by itself.
PROFILE = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


@dataclass(frozen=True)
class Node:
    number: int
    port: int
    pid: int
    log_directory: Path

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)


class RunningCluster(ABC):
    def __init__(self, name: str, sites: Sequence[Site]) -> None:
        self.name = name
        self.nodes: dict[int, Node] = {}
        self._roots: list[RunningBroker] = [site.spawn() for site in sites]

    @abstractmethod
    def find_nodes(self) -> dict[int, Node]:
        """The brokers that have been started so far, by their number."""

    @abstractmethod
    def controller(self) -> int:
        """The number of the broker that is the active controller."""

    def wait_ready(self) -> None:
        """Return once every broker lists all of them."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (len(self.nodes) == BROKERS and all(map(_knows_all, self.nodes.values()))):
            if time.monotonic() > deadline:
                raise PeerFailed(f"the cluster of {self.name} did not serve in {READY_SECONDS_MAX:.0f} s")
            for root in self._roots:
                root.assert_alive()
            time.sleep(POLL_SECONDS)
            self.nodes = self.find_nodes()

    def node_numbers(self) -> list[int]:
        return sorted(self.nodes)

    def cpu_seconds(self) -> float:
        return sum(root.cpu_seconds() for root in self._roots)

    def resident_bytes(self) -> int:
        return sum(root.resident_bytes() for root in self._roots)

    def kill_node(self, number: int) -> None:
        os.kill(self.nodes[number].pid, signal.SIGKILL)

    def stop(self) -> None:
        for root in self._roots:
            with suppress(ProcessLookupError):
                os.kill(root.pid, signal.SIGTERM)  # all at once: a last controller would wait for the others
        for root in self._roots:
            root.stop()


class TidelogCluster(RunningCluster):
    def __init__(self, peer: Tidelog, directory: Path) -> None:
        settings = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
        super().__init__(peer.name, [peer.prepare_cluster(directory, BROKERS, settings)])

    def find_nodes(self) -> dict[int, Node]:
        """What the command has printed has the ports, what it has started has the processes."""
        root = self._roots[0]
        ports = dict(READY.findall((root.site.directory / "output.txt").read_text(errors="replace")))
        nodes = {}
        for pid in process_tree(root.pid):
            with suppress(FileNotFoundError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                for number in (number for number in ports if f"node.id={number}" in words):
                    folder = root.site.directory / f"broker-{number}" / "data"
                    nodes[int(number)] = Node(int(number), int(ports[number]), pid, folder)
        return nodes

    def controller(self) -> int:
        """Metadata names any broker; who asks for controllers is told which one decides."""
        wanted = cluster_request.DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=i8(2)
        )
        with Admin(*self.nodes[1].address) as admin:
            return read_response(admin.exchange(request_frame(wanted)), DescribeClusterResponse).controller_id


class KafkaCluster(RunningCluster):
    def __init__(self, peer: Kafka, directory: Path) -> None:
        settings = PROFILE | {"broker.session.timeout.ms": str(SESSION_MS)}
        folders = [directory / str(number) for number in range(1, BROKERS + 1)]
        super().__init__(peer.name, peer.prepare_nodes(folders, settings))

    def find_nodes(self) -> dict[int, Node]:
        return {
            number: Node(number, root.port, root.pid, root.site.log_directory)
            for number, root in enumerate(self._roots, 1)
        }

    def controller(self) -> int:
        topic = quorum_request.TopicData(
            topic_name=TopicName("__cluster_metadata"),
            partitions=(quorum_request.PartitionData(partition_index=i32(0)),),
        )
        request = quorum_request.DescribeQuorumRequest(topics=(topic,))
        with Admin(*self.nodes[1].address) as admin:
            return admin.call(request, DescribeQuorumResponse).topics[0].partitions[0].leader_id


def start_cluster(peer: Peer, directory: Path) -> RunningCluster:
    """Start a cluster of that kind in a new folder and wait until it serves."""
    cluster: RunningCluster
    if isinstance(peer, Kafka):
        cluster = KafkaCluster(peer, directory)
    else:
        assert isinstance(peer, Tidelog)
        cluster = TidelogCluster(peer, directory)
    try:
        cluster.wait_ready()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _knows_all(node: Node) -> bool:
    try:
        with Admin(*node.address) as admin:
            return admin.broker_count() == BROKERS
    except OSError:
        return False
