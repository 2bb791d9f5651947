"""A JVM with Kafka's Java clients and tools in it, which answers one call after the other.

Starting a JVM and loading Kafka's classes costs a second or two, so one serves all tests of a worker. The
Java half is in `src/`; it is compiled for the run, by the compiler in the same Java.

**Invariant:** no JVM outlives its `with` block.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.kafka import fetch_jars, find_java
from bench.peers.process import PeerMissing

from tests.compat.client import Refused

SOURCES = Path(__file__).parent / "src"
COMPILER = "jdk.compiler"
LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


@dataclass(frozen=True)
class Ran:
    """One run of a command line tool."""

    status: int
    output: str
    errors: str


class Jvm:
    def __init__(self, process: subprocess.Popen[str], command: list[str], log: Path) -> None:
        self._process = process
        self._command = command
        self._log = log
        self._count = 0

    def call(self, name: str, /, **arguments: Any) -> Any:
        """One call of the Java half. Raises `Refused` where the broker said no."""
        self._count += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": self._count, "call": name, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "refused" in answer:
            raise Refused(answer["refused"], answer["said"])
        assert "failed" not in answer, answer["failed"]
        return answer["result"]

    def _answer(self) -> dict[str, Any]:
        """The answer to the last call; one whose test was ended before it came is passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer["number"] == self._count:
                return answer
        raise AssertionError(f"the JVM is gone: {self._log.read_text()[-2000:]}")

    def tool(self, main: str, *arguments: str, text: str = "") -> Ran:
        """Runs a command line tool to its end."""
        return Ran(**self.call("tool", main=main, arguments=arguments, input=text))

    def signal(self, number: signal.Signals) -> None:
        """SIGKILL returns when the process is gone."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    @contextmanager
    def another(self, log: Path, first: Sequence[Path] = ()) -> Iterator[Jvm]:
        """A second JVM with the same classes, to be killed; or with others in front of them."""
        command = list(self._command)
        place = command.index("-cp") + 1
        command[place] = ":".join([*map(str, first), command[place]])
        with _spawned(command, log) as jvm:
            yield jvm


@contextmanager
def running_jvm(folder: Path) -> Iterator[Jvm]:
    """Compiles the Java half into `folder` and runs it. Raises `PeerMissing` without a Java compiler."""
    java, classpath = find_java(), ":".join(str(jar) for jar in sorted(fetch_jars().glob("*.jar")))
    compile_sources(SOURCES, java, classpath, folder)
    with _spawned([java, *LIGHT, "-cp", f"{folder}:{classpath}", "Driver"], folder / "stderr") as jvm:
        yield jvm


@contextmanager
def _spawned(command: list[str], log: Path) -> Iterator[Jvm]:
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8"
        ) as process,
    ):
        try:
            yield Jvm(process, command, log)
        finally:
            process.kill()


def compile_sources(sources: Path, java: str, classpath: str, folder: Path) -> None:
    """Raises `PeerMissing` without a Java compiler."""
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if COMPILER not in modules:
        raise PeerMissing(
            f"the Java client's tests are compiled here, and {java} has no compiler: install a JDK"
        )
    options = ["-proc:none", "-d", str(folder), "-cp", classpath]
    command = [java, LIGHT[0], "-m", f"{COMPILER}/com.sun.tools.javac.Main", *options]
    command += [str(source) for source in sorted(sources.glob("*.java"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
