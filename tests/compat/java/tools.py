"""Apache Kafka itself, run by Java: its brokers, its files and its dump tool.

The jars are fetched by Maven once into `bench/.peers/`, shared with the benchmarks.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.peers.kafka import STORE, Kafka, fetch_jars, find_java
from bench.peers.process import Site
from confluent_kafka import KafkaError, KafkaException

from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent

NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
)
DUMP_SECONDS_MAX = 240
QUICK_TO_START = "-XX:TieredStopAtLevel=1"  # it lives for seconds
NOT_A_COMPLAINT = "SLF4J: "
# Said of every segment that does not begin at 0, Kafka's own included: the tool starts counting at -1.
ARTEFACT = re.compile(
    r"^Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n(?! )", re.MULTILINE
)
COMPLAINTS_IN_OUTPUT = ("isvalid: false", "invalid bytes at the end")
PARTITION_METADATA = "partition.metadata"
INDEX_SUFFIXES = (".index", ".timeindex")
DUMPED_SUFFIXES = (".log", *INDEX_SUFFIXES, ".txnindex", ".snapshot")


@dataclass(frozen=True)
class Dump:
    """What `DumpLogSegments` printed, and what of it is a complaint."""

    lines: tuple[str, ...]
    complaints: tuple[str, ...]

    def fields(self, name: str) -> list[str]:
        """The value of every field of that name, in the order of printing."""
        parts = (line.partition(f"{name}: ") for line in self.lines)
        return [after.split(" ", 1)[0] for _, found, after in parts if found]


def apache_kafka() -> Kafka:
    """Ready to run. Raises `PeerMissing` with the reason where it cannot be had."""
    STORE.parent.mkdir(exist_ok=True)
    with (STORE.parent / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Kafka()


def dump(files: Sequence[Path], *options: str) -> Dump:
    """Kafka's `DumpLogSegments` over the files."""
    command = [find_java(), QUICK_TO_START, "-cp", f"{fetch_jars()}/*"]
    command += ["org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_SECONDS_MAX, check=False)
    lines = tuple(done.stdout.splitlines())
    errors = ARTEFACT.sub("", done.stderr).splitlines()
    complaints = [line for line in errors if not line.startswith(NOT_A_COMPLAINT)]
    complaints += [line for line in lines if any(words in line for words in COMPLAINTS_IN_OUTPUT)]
    if done.returncode != 0:
        complaints.append(f"exit status {done.returncode}")
    return Dump(lines, tuple(complaints))


def producers_at_the_end(folder: Path) -> list[str]:
    """What the newest snapshot says of each producer, in the words of Kafka's tool."""
    dumped = dump(files_of(folder, ".snapshot")[-1:])
    assert dumped.complaints == ()
    return sorted(line for line in dumped.lines if line.startswith("producerId: "))


def epochs(folder: Path) -> list[str]:
    """The lines of `leader-epoch-checkpoint`: an epoch and its first offset."""
    return (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]


def files_of(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def replace_partition(ours: Path, theirs: Path) -> None:
    """Puts the files of `theirs` in place of those of `ours`, which keeps its own topic id."""
    kept = (ours / PARTITION_METADATA).read_bytes()
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    (ours / PARTITION_METADATA).write_bytes(kept)


@contextmanager
def running_kafka(site: Site, topics: Sequence[str] = ()) -> Iterator[str]:
    """Serves the site's folder; yields the bootstrap address once it leads the topics; stops it cleanly."""
    java, *words = site.command
    broker = replace(site, command=[java, QUICK_TO_START, *words]).spawn()
    try:
        broker.wait_ready()
        bootstrap = f"{broker.host}:{broker.port}"
        for topic in topics:
            eventually(partial(_leads, Confluent(bootstrap), topic), f"Kafka does not lead {topic}")
        yield bootstrap
    except BaseException:
        broker.kill()
        raise
    else:
        broker.stop()


def _leads(client: Confluent, topic: str) -> bool:
    """A Kafka that has just started answers before it has taken up its partitions."""
    try:
        client.edges(topic)
    except KafkaException as error:
        if error.args[0].code() in NOT_YET:
            return False
        raise
    return True
