"""Spark's own cluster on this machine, from PySpark's jars: a master and workers, a JVM each.

    with StandaloneCluster(folder) as cluster:
        run_python(text, folder, cluster.environment)      # text: session(master=cluster.master, …)
        cluster.kill_executor()

A driver runs as a program of its own (`programs`): this process has a JVM already, and a JVM one driver. Each
worker gives one executor of one core and `EXECUTOR_MEMORY` to an application; all heaps together stay below
two gigabytes.

**Invariant:** nothing of the cluster outlives the `with` block.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import pyspark
from bench.peers.process import process_tree

from tests.chaos.ports import unused_port
from tests.spark.programs import awaited
from tidelog.spark.java import find_java

HOST = "127.0.0.1"
DAEMON_MEMORY = "128m"
EXECUTOR_MEMORY = "512m"
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
STOP_SECONDS_MAX = 30.0


class StandaloneCluster:
    """A master and its workers; a context manager."""

    def __init__(self, folder: Path, worker_count: int = 2) -> None:
        self._folder = folder
        self._worker_count = worker_count
        self._port, self._page_port = unused_port(), unused_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """For the cluster's own processes and for a driver."""
        return {
            "JAVA_HOME": str(find_java()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": HOST,
        }

    @property
    def settings(self) -> dict[str, str]:
        """For a driver's `config`."""
        return {
            "spark.driver.memory": EXECUTOR_MEMORY,
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": JVM_OPTIONS,
        }

    def state(self) -> dict[str, Any]:
        """What the master says of itself: `aliveworkers`, `activeapps`, `workers`…"""
        with urlopen(f"http://{HOST}:{self._page_port}/json/", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        workers = self.processes[1:]
        return [pid for worker in workers for pid in process_tree(worker.pid) if is_executor(pid)]

    def kill_executor(self) -> int:
        """SIGKILL one, as soon as there is one; which it was."""
        killed = awaited(self.executors, "no executor was started")[0]
        os.kill(killed, signal.SIGKILL)
        return killed

    def __enter__(self) -> Self:
        try:
            self._spawn("master", MASTER, "--port", str(self._port), "--webui-port", str(self._page_port))
            for number in range(self._worker_count):
                work = ["-c", "1", "-m", EXECUTOR_MEMORY, "-d", str(self._folder / f"work-{number}")]
                self._spawn(f"worker-{number}", WORKER, *work, "--webui-port", "0", self.master)
            awaited(self._is_complete, "not all workers came to the master")
        except BaseException as failure:
            self.stop()
            failure.add_note(self._said())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is not None:
            error.add_note(self._said())

    def stop(self) -> None:
        """Workers end their executors; what does not end in time is killed with all that it started."""
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end_group(process.pid)
                process.wait()

    def _spawn(self, name: str, *arguments: str) -> None:
        environment = self.environment | {
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
            "SPARK_NO_DAEMONIZE": "1",
        }
        command = [f"{environment['SPARK_HOME']}/bin/spark-class", arguments[0], "--host", HOST]
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [*command, *arguments[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env=os.environ | environment,
                    start_new_session=True,
                )
            )

    def _is_complete(self) -> bool:
        assert all(process.poll() is None for process in self.processes), "a process of the cluster ended"
        try:
            return bool(self.state()["aliveworkers"] == self._worker_count)
        except (URLError, ConnectionError, json.JSONDecodeError):  # at first that page is the one for people
            return False

    def _said(self) -> str:
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)


def is_executor(pid: int) -> bool:
    try:
        return EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
