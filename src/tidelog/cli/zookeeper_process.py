"""A real ZooKeeper in a process of its own, from the jars that ship inside PySpark.

    with ZooKeeperProcess(directory) as zookeeper:
        BrokerProcess(elsewhere, {"zookeeper.connect": zookeeper.connect})

Several make an ensemble: give each its number and the same `members`, number to (quorum port, election port).

**Invariant:** no process outlives the `with` block. Data, settings and log are in the directory.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, Signals
from types import TracebackType
from typing import Self

from tidelog.base.extras import install_command
from tidelog.spark.java import JavaMissing, find_java

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS = ("zookeeper-3.*.jar", "zookeeper-jute-*.jar")
# Small, quick to start, and with room for a topic of many partitions in one change.
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djute.maxbuffer=8388608")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05
ASK_TIMEOUT_S = 2.0
WRITE_THREADS_S = 1.0
_CAUSE = re.compile(r"[\w.$]+(Exception|Error): ")  # at the start of a line, above its stack trace
_LOG_SETTINGS = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class ZooKeeperMissing(Exception):
    """ZooKeeper is not installed; the message says what to install."""


class ZooKeeperDidNotStart(Exception):
    """The process ended or did not answer; the message has the end of its log."""


def find_jars() -> Path:
    """The folder of PySpark's jars. Raises ZooKeeperMissing."""
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found is not None and found.origin else None
    if folder is None or not all(any(folder.glob(pattern)) for pattern in JARS):
        raise ZooKeeperMissing(
            f"ZooKeeper's jars come with PySpark, which is not installed; {install_command('spark')}; "
            "or run a ZooKeeper of your own and give brokers its address: -o zookeeper.connect=host:2181"
        )
    return folder


def find_command(folder: Path) -> list[str]:
    """The command line of a server with its settings in that folder. Raises ZooKeeperMissing."""
    jars = find_jars()
    try:
        java = find_java() / "bin" / "java"
    except JavaMissing as missing:
        raise ZooKeeperMissing(str(missing).replace("Spark needs", "ZooKeeper needs", 1)) from None
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    return [str(java), *JVM_OPTIONS, logging, "-cp", f"{jars}/*", MAIN, str(folder / "zoo.cfg")]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class ZooKeeperProcess:
    """One server, by default on a free loopback port, which it keeps over restarts."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        port: int = 0,
        number: int = 1,
        members: Mapping[int, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.directory = Path(directory).resolve()
        self.host = host
        self.port = port or free_port()
        self._number = number
        self._members = dict(members or {})  # number to host:quorum port:election port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`."""
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    @property
    def pid(self) -> int:
        assert self._process is not None, "ZooKeeper was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start the process; a member of an ensemble serves only when most members run."""
        assert not self.is_running, "ZooKeeper is already running"
        self._write_settings()
        with open(self.directory / "zookeeper.out", "ab") as output:
            self._process = subprocess.Popen(
                find_command(self.directory),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is meant for the parent process
            )

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        until = time.monotonic() + timeout_s
        while not self.is_serving():
            if not self.is_running or time.monotonic() > until:
                last_words = self.last_words()
                self._write_threads()
                self.kill()
                raise ZooKeeperDidNotStart(f"{self.connect}: {last_words}")
            time.sleep(POLL_S)

    def _write_threads(self) -> None:
        """Append a thread dump to the output, for the diagnosis of a start that failed."""
        if self.is_running:
            self.signal(SIGQUIT)
            time.sleep(WRITE_THREADS_S)

    def is_serving(self) -> bool:
        """Whether the server leads, follows or stands alone."""
        try:
            with socket.create_connection((self.host, self.port), ASK_TIMEOUT_S) as asking:
                asking.settimeout(ASK_TIMEOUT_S)
                asking.sendall(b"srvr")
                answer = b""
                while piece := asking.recv(4096):
                    answer += piece
        except OSError:
            return False
        return b"Mode:" in answer

    def kill(self) -> None:
        """SIGKILL, and wait for the process to be gone."""
        self._end(SIGKILL)

    def stop(self) -> None:
        self._end(SIGTERM)

    def pause(self) -> None:
        self.signal(SIGSTOP)

    def resume(self) -> None:
        self.signal(SIGCONT)

    def signal(self, number: Signals) -> None:
        assert self._process is not None, "ZooKeeper was not started"
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _end(self, number: Signals) -> None:
        if self._process is None:
            return
        if self.is_running:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_settings(self) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": "1000",
            "initLimit": "30",
            "syncLimit": "10",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
            "dataDir": str(data),
            "clientPortAddress": self.host,
            "clientPort": str(self.port),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.purgeInterval": "1",
            "autopurge.snapRetainCount": "3",
        }
        settings |= {f"server.{number}": address for number, address in self._members.items()}
        if self._members:
            (data / "myid").write_text(f"{self._number}\n")
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self.directory / "zoo.cfg").write_text("".join(lines))
        log = _LOG_SETTINGS.format(log=self.directory / "zookeeper.log")
        (self.directory / "log4j2.properties").write_text(log)

    def last_words(self) -> str:
        """The path of the log, and its most informative line."""
        for name in ("zookeeper.out", "zookeeper.log"):
            path = self.directory / name
            text = path.read_text(errors="replace").strip() if path.exists() else ""
            if text:
                return f"see {path}: {_reason(text.splitlines())[:500]}"
        return f"no answer within {START_TIMEOUT_S:.0f} s"


def _reason(lines: list[str]) -> str:
    """The last error with a cause, or the last line: Java's final lines seldom name the cause."""
    return next((line for line in reversed(lines) if _CAUSE.match(line)), lines[-1])


def ensemble(directory: str | os.PathLike[str], count: int, port: int = 0) -> list[ZooKeeperProcess]:
    """The servers of an ensemble on this machine, not started; with a port, on that and the following
    ports."""
    folder = Path(directory)
    members = {}
    if count > 1:
        members = {number: f"127.0.0.1:{free_port()}:{free_port()}" for number in range(1, count + 1)}
    return [
        ZooKeeperProcess(folder / f"zookeeper-{number}", port and port + number - 1, number, members)
        for number in range(1, count + 1)
    ]
