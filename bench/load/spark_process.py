"""The other end of `spark_queries`: starts that process, asks it, and knows what it and its children used.

**Invariant:** the process and its JVM are gone when the block is left.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.peers.process import PeerFailed, kill_tree, tree_cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS_MAX = 30.0
OUTPUT_LINES = 20


class SparkProcess:
    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self._output = output

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        """Raises `PeerFailed` if the query failed or the process is gone."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            print(json.dumps({"do": do} | question), file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(f"Spark ended early\n{self._output_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"Spark: {answer['error']}\n{self._output_tail()}")
        return answer

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self._process.pid)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            kill_tree(self._process.pid)
            self._process.wait()
        self._process.stdout.close()

    def _output_tail(self) -> str:
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-OUTPUT_LINES:])


@contextmanager
def spark_process(folder: Path, module: str = "bench.load.spark_queries") -> Iterator[SparkProcess]:
    """Spark, ready to be asked; what it prints is kept in `folder`."""
    output = folder / "spark.txt"
    with output.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            cwd=ROOT,
        )
    spark = SparkProcess(process, output)
    try:
        spark.answer()
        yield spark
    finally:
        spark.close()
