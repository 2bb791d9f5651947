"""`tidelog cluster --brokers N`: a real ZooKeeper and N brokers on this machine, each in its own process.

Topics get the production profile by default: three replicas, of which two must be in sync, no unclean
election (R14). Each broker has a settings file, so that `tidelog serve --config` can restart a stopped
broker. ZooKeeper serves until the end of the command, for these and other brokers.

**Invariant:** unless it is killed itself, it leaves no process behind; the files stay in the folder.
"""

from __future__ import annotations

import importlib.util
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tidelog.base.extras import install_command
from tidelog.cli.failure import Failure
from tidelog.cli.properties import write_properties
from tidelog.cli.zookeeper_process import ZooKeeperDidNotStart, ZooKeeperMissing, ZooKeeperProcess, ensemble
from tidelog.server.signals import ending_signals
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess

CHROOT = "/tidelog"
REPLICAS, IN_SYNC = 3, 2
SESSION_MS = 6_000  # as in docs/cluster.md: silence after which a broker counts as gone
SETTINGS_FILE = "server.properties"
LOOK_SECONDS = 0.2


def production_profile(broker_count: int) -> dict[str, str]:
    """Limited by the number of brokers."""
    replicas = min(REPLICAS, broker_count)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "min.insync.replicas": str(min(IN_SYNC, replicas)),
        "unclean.leader.election.enable": "false",
    }


def start_cluster(
    brokers: int, directory: Path, port: int, zookeepers: int, racks: Sequence[str], settings: dict[str, str]
) -> None:
    """Run the cluster until SIGTERM or Ctrl-C."""
    if importlib.util.find_spec("kazoo") is None:
        raise Failure(
            f"brokers of a cluster need kazoo, which is not installed; {install_command('cluster')}"
        )
    directory = directory.resolve()
    stopped = threading.Event()
    for number in ending_signals():
        signal.signal(number, lambda *_: stopped.set())
    try:
        with _zookeepers(directory, zookeepers) as members:
            connect = ",".join(member.connect for member in members) + CHROOT
            profile = {"zookeeper.session.timeout.ms": str(SESSION_MS)} | production_profile(brokers)
            shared = profile | settings | {"zookeeper.connect": connect}
            processes = [
                _broker(
                    directory / f"broker-{node_id}",
                    port and port + node_id - 1,
                    shared | _of_its_own(node_id, racks),
                )
                for node_id in range(1, brokers + 1)
            ]
            _run(processes, members, stopped)
    except (ZooKeeperMissing, ZooKeeperDidNotStart) as problem:
        raise Failure(str(problem)) from None
    except BrokerDidNotStart as problem:
        raise Failure(f"a broker did not start: {problem}") from None
    except OSError as problem:
        raise Failure(f"{problem.filename or directory}: {problem.strerror}") from None


@contextmanager
def _zookeepers(directory: Path, count: int) -> Iterator[Sequence[ZooKeeperProcess]]:
    present = _member_count(directory / "zookeeper-1" / "zoo.cfg")
    if present not in (0, count):  # new members might agree on an empty cluster before the old one runs
        raise Failure(
            f"{directory} has a cluster with {present} ZooKeeper{'s' * (present > 1)}; start it with "
            f"--zookeepers {present}, or start another cluster in another --dir"
        )
    members = ensemble(directory, count)
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.stop)
            member.spawn()
        for member in members:
            member.wait_ready()
        yield members


def _member_count(settings: Path) -> int:
    """The number of members at the last start; 0 without one."""
    return max(settings.read_text().count("\nserver."), 1) if settings.exists() else 0


def _of_its_own(node_id: int, racks: Sequence[str]) -> dict[str, str]:
    rack = {"broker.rack": racks[(node_id - 1) % len(racks)]} if racks else {}
    return {"node.id": str(node_id)} | rack


def _broker(folder: Path, port: int, settings: dict[str, str]) -> BrokerProcess:
    process = BrokerProcess(folder, settings, is_detached=True)
    process.port = port
    return process


def _settings_file(process: BrokerProcess) -> Path:
    return Path(process.directory) / SETTINGS_FILE


def _run(
    processes: Sequence[BrokerProcess], members: Sequence[ZooKeeperProcess], stopped: threading.Event
) -> None:
    with ThreadPoolExecutor(len(processes)) as together:
        try:
            list(together.map(BrokerProcess.start, processes))
            for node_id, process in enumerate(processes, 1):
                heading = "As 'tidelog cluster' last started this broker; written again at its next start."
                write_properties(_settings_file(process), process.settings, heading)
                print(f"tidelog ready: broker {node_id} at {process.bootstrap_servers}", flush=True)
            servers = ",".join(process.bootstrap_servers for process in processes)
            print(f"tidelog cluster ready: {servers}", flush=True)
            _watch(processes, members, stopped)
        finally:
            list(together.map(_stop, processes))


def _watch(
    processes: Sequence[BrokerProcess], members: Sequence[ZooKeeperProcess], stopped: threading.Event
) -> None:
    """Report each process that ends; the others continue. ZooKeeper also serves brokers of other commands."""
    running: dict[BrokerProcess | ZooKeeperProcess, str] = {}
    for node_id, process in enumerate(processes, 1):
        running[process] = (
            f"broker {node_id} has ended; see {process.stderr_path}; "
            f"start it again with: tidelog serve --config {shlex.quote(str(_settings_file(process)))}"
        )
    for member in members:
        running[member] = f"ZooKeeper at {member.connect} has ended; see {member.directory}/zookeeper.log"
    while not stopped.wait(LOOK_SECONDS):
        ended = [each for each in running if not each.is_running]
        for each in ended:
            print(running.pop(each), flush=True)
        if not running:
            raise Failure("all brokers and all ZooKeeper servers have ended; see their logs")
        if ended and not any(process in running for process in processes):
            print("all brokers started by this command have ended; ZooKeeper serves until Ctrl-C", flush=True)


def _stop(process: BrokerProcess) -> None:
    if process.is_running:
        with suppress(subprocess.TimeoutExpired):  # then it was killed
            process.stop()
