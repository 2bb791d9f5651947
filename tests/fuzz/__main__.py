"""Fuzz every target for its share of the time; what breaks one is kept in `crashes/`: exit code 1."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.targets import TARGETS

FOLDER = Path(__file__).parent
SEEDS = FOLDER / "seeds"
CRASHES = FOLDER / "crashes"
INPUT_SIZE_MAX = 4_096
INPUT_SECONDS_MAX = 10
MEMORY_MB_MAX = 1_024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is given")
    words = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed (it needs Linux and Python below 3.14); nothing was fuzzed")
        return 1
    names = words.targets or list(TARGETS)
    results = {name: fuzz(name, max(1, words.seconds // len(names))) for name in names}
    found = [path for paths in results.values() for path in paths]
    for path in found:
        print(
            f"fuzz: {path.relative_to(FOLDER.parent.parent)} breaks something; the test of crashes shows what"
        )
    print(f"fuzz: {len(found)} new crashes in {', '.join(names)}")
    return 1 if found else 0


def fuzz(target: str, seconds: int) -> list[Path]:
    """Run one target; the inputs that broke it."""
    CRASHES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as corpus:
        for seed in SEEDS.glob(f"{target}-*.bin"):
            (Path(corpus) / seed.name).write_bytes(seed.read_bytes())
        command = [sys.executable, "-m", "tests.fuzz.run", target, corpus]
        command += [f"-max_total_time={seconds}", f"-max_len={INPUT_SIZE_MAX}", "-print_final_stats=1"]
        command += [f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MB_MAX}"]
        command += [f"-artifact_prefix={CRASHES}/{target}-"]
        print(f"fuzz: {target} for {seconds} s", flush=True)
        subprocess.run(command, check=False, cwd=FOLDER.parent.parent)
    return [path.rename(path.with_suffix(".bin")) for path in CRASHES.glob(f"{target}-*") if not path.suffix]


if __name__ == "__main__":
    sys.exit(main())
