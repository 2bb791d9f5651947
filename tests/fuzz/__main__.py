"""Fuzz every target for its part of the inputs, two at a time, and leave the tally in `tests/SOAK.md`.

Each target runs in a process of its own, with bounds on memory and on the time that one input may take. What
breaks one is kept in `crashes/<target>/`, and the target goes on with what is left of its inputs; the exit
code is 1 then. Only a run at full count with all targets is recorded.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.targets import CRASHES, TARGETS
from tests.soak import FuzzTally, choose_seed, record_fuzzing

ROOT = Path(__file__).parent.parent.parent
FULL_RUNS = 10_000_000
PROCESSES = 2
INPUT_SIZE_MAX = 4_096
INPUT_SECONDS_MAX = 30  # by the clock, also on a busy machine
MEMORY_MB_MAX = 1_024
TARGET_SECONDS_MAX = 2 * 60 * 60
CRASHES_MAX = 5  # of one target and run; more would be the same again

_EXECUTED = re.compile(rb"stat::number_of_executed_units: (\d+)")
_MEMORY = re.compile(rb"stat::peak_rss_mb: +(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=FULL_RUNS, help="inputs of all targets together")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is given")
    words = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed (it needs Linux and Python below 3.14); nothing was fuzzed")
        return 1
    names = words.targets or list(TARGETS)
    if strangers := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {strangers[0]}; there are {', '.join(TARGETS)}")
    tallies = fuzz_all(shares(names, words.runs), choose_seed())
    if len(names) == len(TARGETS) and words.runs >= FULL_RUNS:
        record_fuzzing(tallies)
    found = sum(tally.crashes for tally in tallies)
    print(f"fuzz: {sum(tally.inputs for tally in tallies):,} inputs, {found} new crashes")
    return 0 if all(tally.outcome == "passed" for tally in tallies) else 1


def shares(names: list[str], runs: int) -> dict[str, int]:
    """The inputs of each target; rounded up, so that together they are not fewer than asked for."""
    parts = sum(TARGETS[name].parts for name in names)
    return {name: -(-runs * TARGETS[name].parts // parts) for name in names}


def fuzz_all(counts: dict[str, int], seed: int) -> list[FuzzTally]:
    slowest_first = sorted(counts, key=lambda name: counts[name] / TARGETS[name].speed, reverse=True)
    with ThreadPoolExecutor(PROCESSES) as pool:
        futures = {name: pool.submit(fuzz, name, counts[name], seed) for name in slowest_first}
        return [futures[name].result() for name in counts]


def fuzz(target: str, runs: int, seed: int) -> FuzzTally:
    """Run one target until it has had its inputs."""
    print(f"fuzz: {target} with {runs:,} inputs", flush=True)
    started = time.monotonic()
    inputs = memory_mb = 0
    crashes: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for name, content in TARGETS[target].seeds().items():
            (corpus / name).write_bytes(content)
        while inputs < runs and len(crashes) < CRASHES_MAX:
            report = run(target, Path(folder), runs - inputs, seed + len(crashes))
            executed = int((_EXECUTED.findall(report) or [b"0"])[-1])
            inputs += executed
            memory_mb = max([memory_mb, *map(int, _MEMORY.findall(report))])
            found = [path for path in keep_crashes(target, Path(folder)) if path not in crashes]
            crashes += found
            if found or not executed:
                print(report[-4_000:].decode(errors="replace"), flush=True)
            if not found:  # it is done, or an input that it begins with breaks it each time
                break
        corpus_count = len(list(corpus.iterdir()))
    outcome = "passed" if inputs >= runs and not crashes else "failed"
    seconds = time.monotonic() - started
    tally = FuzzTally(target, outcome, inputs, round(seconds), corpus_count, len(crashes), memory_mb, seed)
    print(f"fuzz: {target} {outcome}: {inputs:,} inputs in {seconds:.0f} s, {corpus_count} kept", flush=True)
    return tally


def run(target: str, folder: Path, runs: int, seed: int) -> bytes:
    """One process of libFuzzer; what it printed."""
    (folder / "found").mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.run", target, str(folder / "corpus")]
    command += [f"-runs={runs}", f"-seed={seed % 2**31 or 1}", f"-max_len={INPUT_SIZE_MAX}"]
    command += [f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MB_MAX}", "-print_final_stats=1"]
    command += [f"-max_total_time={TARGET_SECONDS_MAX}", f"-artifact_prefix={folder}/found/"]
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    with open(folder / "report", "w+b") as report:
        subprocess.run(
            command, check=False, cwd=ROOT, env=environment, stdout=report, stderr=subprocess.STDOUT
        )
        report.seek(0)
        return report.read()


def keep_crashes(target: str, folder: Path) -> list[Path]:
    kept = []
    for found in sorted((folder / "found").iterdir()):
        keeping = CRASHES / target / f"{found.name}.bin"
        keeping.parent.mkdir(parents=True, exist_ok=True)
        keeping.write_bytes(found.read_bytes())
        found.unlink()
        kept.append(keeping)
        print(
            f"fuzz: {keeping.relative_to(ROOT)} breaks {target}; the test of crashes shows what", flush=True
        )
    return kept


if __name__ == "__main__":
    sys.exit(main())
