"""Brokers and ZooKeeper members, each a process, with proxies on every way between them.

Parties are `broker-1` to `broker-5`, `zookeeper-1` to `zookeeper-3`, and `client` for all others. A broker
has two listeners, for clients and for brokers, and advertises a proxy for each; so are the addresses at which
it finds ZooKeeper. Members of ZooKeeper speak with each other directly. Some brokers have a disk that can be
full, where the system allows it.

**Invariant:** no process outlives the `with` block.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException

from tests.chaos.awaiting import await_that
from tests.chaos.disk import SmallDisk
from tests.chaos.network import Direction, Network
from tests.chaos.ports import owner, unused_port
from tests.chaos.truth import Truth
from tests.compat.groups.spec import BROKER_SETTINGS
from tests.testing.watching import TIMEOUT_S, Watcher
from tidelog.cli.cluster_start import CHROOT, production_profile
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.testing.process import BrokerProcess

BROKERS, ZOOKEEPERS = 5, 3
CLIENT = "client"
NO_DIRECTORY = "every log directory is offline"
CLIENTS, PEERS = "CLIENTS", "PEERS"
"""The listeners of a broker."""
SESSION_MS = 4_000
ASK_S = 2.0
WHOLE_S = 180.0
DISKS = (1, 2)
"""The brokers whose disk can be full."""
OFFSETS_PARTITIONS = 6
THIS_VERSION = "tidelog.cli.main"
"""The module that a broker is started by; `tests.chaos.later` is a version that is yet to come."""
SETTINGS = BROKER_SETTINGS | {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "5000",
    "leader.imbalance.check.interval.seconds": "10",
    "log.segment.bytes": str(1 << 20),  # so that faults fall across rolls
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{PEERS}:PLAINTEXT",
    "inter.broker.listener.name": PEERS,
}


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def _mode(member: ZooKeeperProcess) -> str:
    """Of a member that serves: leader or follower."""
    told = b""
    with suppress(OSError), socket.create_connection((member.host, member.port), ASK_S) as asking:
        asking.settimeout(ASK_S)
        asking.sendall(b"srvr")
        while piece := asking.recv(4_096):
            told += piece
    found = re.search(rb"^Mode: (\w+)", told, re.MULTILINE)
    return found.group(1).decode() if found else ""


class MachineBroker(BrokerProcess):
    """Started by the words of its disk, if it has one of its own."""

    def __init__(self, directory: Path, properties: Mapping[str, str], inside: list[str]) -> None:
        super().__init__(directory, properties, is_detached=True)
        self._inside = inside
        self.version = THIS_VERSION

    @property
    def has_ended_for_room(self) -> bool:
        _, _, last_life = self.stderr().rpartition("starting: version=")
        return not self.is_running and NO_DIRECTORY in last_life

    def command(self) -> list[str]:
        words = super().command()
        words[words.index(THIS_VERSION)] = self.version
        return [*self._inside, *words]


class Machines:
    """A context manager that has started all of them."""

    def __init__(
        self,
        directory: Path,
        brokers: int = BROKERS,
        zookeepers: int = ZOOKEEPERS,
        settings: Mapping[str, str] | None = None,
        has_second_directories: bool = False,
    ) -> None:
        """Those whose disk can be full may have a second directory on another one."""
        self.directory = directory
        self._has_second_directories = has_second_directories
        self._counts = (brokers, zookeepers)
        self._settings = production_profile(brokers) | SETTINGS | dict(settings or {})
        self.zookeepers: dict[int, ZooKeeperProcess] = {}
        self.brokers: dict[int, MachineBroker] = {}
        self.disks: dict[int, SmallDisk] = {}
        self._ways: dict[int, dict[str, int]] = {}  # of each broker, by listener
        self._stack = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{ways[CLIENTS]}" for ways in self._ways.values())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.network = stack.enter_context(Network(self._whose))
            self._start_zookeepers(stack)
            self.connect = ",".join(each.connect for each in self.zookeepers.values()) + CHROOT
            for node_id in range(1, self._counts[0] + 1):
                self._add(node_id, stack)
            self.start(self.brokers)
            self.truth = Truth(self.connect)
            stack.callback(self.truth.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _start_zookeepers(self, stack: ExitStack) -> None:
        numbers = range(1, self._counts[1] + 1)
        places = {number: f"127.0.0.1:{unused_port()}:{unused_port()}" for number in numbers}
        for number in numbers:
            folder, members = self.directory / f"zookeeper-{number}", places if len(places) > 1 else {}
            self.zookeepers[number] = ZooKeeperProcess(folder, unused_port(), number, members)
            stack.callback(self.zookeepers[number].kill)
            self.zookeepers[number].spawn()
        for member in self.zookeepers.values():
            member.wait_ready()

    def add(self, node_id: int) -> None:
        """One more broker, which serves when this returns."""
        self._add(node_id, self._stack)
        self.start([node_id])

    def _add(self, node_id: int, stack: ExitStack) -> None:
        self.brokers[node_id] = self._make_broker(node_id, stack)
        stack.callback(self.kill, node_id)

    def _make_broker(self, node_id: int, stack: ExitStack) -> MachineBroker:
        folder = self.directory / f"broker-{node_id}"
        party = f"broker-{node_id}"
        self._ways[node_id] = {
            CLIENTS: self.network.open(party, source=CLIENT),
            PEERS: self.network.open(party),
        }
        stores = [
            self.network.open(f"zookeeper-{number}", member.port, party)
            for number, member in self.zookeepers.items()
        ]
        settings = {
            "node.id": str(node_id),
            "advertised.listeners": _addresses(self._ways[node_id]),
            "zookeeper.connect": ",".join(f"127.0.0.1:{way}" for way in stores) + CHROOT,
        }
        disk = SmallDisk.open(folder / "disk") if node_id in DISKS else None
        if disk is not None:
            self.disks[node_id] = stack.enter_context(disk)
            settings["log.dirs"] = str(disk.folder / "data")
            if self._has_second_directories:
                settings["log.dirs"] += f",{folder / 'second'}"
        return MachineBroker(folder, self._settings | settings, disk.inside if disk is not None else [])

    def _whose(self, port: int, way: int) -> str:
        pids = {
            f"broker-{number}": broker.pid for number, broker in self.brokers.items() if broker.is_running
        }
        return owner(port, way, pids) or CLIENT

    def create(self, topic: str, partitions: int) -> None:
        """A topic with three replicas, once the controller has heard of all brokers."""
        watcher = Watcher(self.bootstrap_servers)

        def is_created() -> bool:
            try:
                watcher.create(topic, partitions)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False
            return True

        await_that(is_created, f"{topic} cannot be created", TIMEOUT_S)

    def await_whole(self, timeout_s: float = WHOLE_S) -> float:
        """Until all brokers are there and everything is in sync; how many seconds it took."""
        return self.truth.await_whole(set(self.brokers), timeout_s, self.start_those_short_of_room)

    def await_settled(self) -> float:
        """Until all is in sync and led as preferred, so that no election is due; how many seconds it took."""
        return self.await_whole() + await_that(
            self.truth.is_led_as_preferred, "preferred leaders are not restored", WHOLE_S
        )

    # What is done to brokers.

    def start(self, node_ids: Iterable[int]) -> None:
        """All of them at once; each serves when this returns."""
        wanted = list(node_ids)
        with ThreadPoolExecutor(len(wanted) or 1) as together:
            list(together.map(self._start, wanted))

    def _start(self, node_id: int) -> None:
        broker, ways = self.brokers[node_id], self._ways[node_id]
        ports = {name: unused_port() for name in ways}  # others each time: the last ones may be taken by now
        for name, way in ways.items():
            self.network.lead(way, ports[name])
        broker.properties["listeners"] = _addresses(ports)
        broker.start()

    def start_those_short_of_room(self) -> None:
        """A broker whose disk was full ends in its own time, which may be after there was room again."""
        self.start([node_id for node_id in self.disks if self.brokers[node_id].has_ended_for_room])

    def kill(self, node_id: int) -> None:
        broker = self.brokers[node_id]
        if broker.is_running:
            broker.kill()

    def port(self, node_id: int) -> int:
        """Where the broker itself listens for clients."""
        return int(self.brokers[node_id].properties["listeners"].partition(",")[0].rpartition(":")[2])

    def data(self, node_id: int) -> Path:
        """Where the broker's log is, as seen from here."""
        disk = self.disks.get(node_id)
        return disk.seen / "data" if disk is not None else Path(self.brokers[node_id].properties["log.dirs"])

    # What is asked of ZooKeeper's members.

    def leading_zookeeper(self) -> int:
        """The member that leads the ensemble; any, if nobody says so."""
        modes = {number: _mode(member) for number, member in self.zookeepers.items()}
        return next((number for number, mode in modes.items() if mode == "leader"), 1)

    # Who speaks with whom.

    def between(self, some: Iterable[str], others: Iterable[str]) -> list[Direction]:
        """What the first say to the second."""
        return [(one, other) for one in some for other in others if one != other]

    def other_brokers(self, node_id: int) -> list[str]:
        return [f"broker-{other}" for other in self.brokers if other != node_id]

    def all_zookeepers(self) -> list[str]:
        return [f"zookeeper-{number}" for number in self.zookeepers]
