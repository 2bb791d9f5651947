"""What the version before level 2 of `tidelog.version` has left behind: three archives, and what is in them.

| archive         | what was done                                                                           |
|-----------------|-----------------------------------------------------------------------------------------|
| `alone-stopped` | one broker with a store of its own; SIGTERM                                             |
| `alone-killed`  | the same; SIGKILL                                                                       |
| `cluster`       | three brokers and ZooKeeper; the third is killed when half of the records are there,    |
|                 | the two others when all are; then ZooKeeper is stopped                                  |

`tests.upgrade.making` has made them, and says how to make them again. Every record can be told from its
place. Notes in the directories name a machine that has been started since: `as_on_this_machine` gives them
the name of this one's last start, which is what a kill without a loss of power would have left.

**Invariant:** all records and offsets that are named here were acknowledged, by all who were in sync.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tidelog.server.process import read_boot_id

DATA = Path(__file__).with_name("data")
ALONE_STOPPED, ALONE_KILLED, CLUSTER = "alone-stopped", "alone-killed", "cluster"
RUNNING = ".tidelog-running"
OTHER_BOOT = "a0000000-0000-4000-8000-000000000000"

RECORDS = 200
"""In each partition."""
TIDES, FLUSHED, SINGLE = "tides", "flushed", "single"
PARTITIONS = {TIDES: 2, FLUSHED: 1, SINGLE: 2}
GROUPS_TOPIC, GROUPS_PARTITIONS = "__consumer_offsets", 5
NODE_IDS = (1, 2, 3)
FIRST_KILLED = 3
SINGLE_ON = 2
"""The broker that has the only replicas of its topic."""
COMMITTED = {"my-group": 17, "orders": 45, "clicks": 150, "carts": 199}
"""Groups, and what each has committed in every partition of TIDES. The first has no member, the second one of
the classic protocol, the third one of the consumer protocol. The hashes of these three are negative: they
were kept in another partition than Kafka's. That of the last is not."""
CLASSIC_GROUP, CONSUMER_GROUP = "orders", "clicks"

SETTINGS = {
    "log.segment.bytes": "8192",
    # The data are as old as they are: nothing may expire.
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "offsets.topic.num.partitions": str(GROUPS_PARTITIONS),
    "auto.create.topics.enable": "false",
}
CLUSTER_SETTINGS = SETTINGS | {
    "zookeeper.session.timeout.ms": "4000",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


def places(*topics: str) -> Iterator[tuple[str, int]]:
    """The partitions of these topics, or of all that have records."""
    return ((topic, index) for topic in topics or PARTITIONS for index in range(PARTITIONS[topic]))


def record(topic: str, partition: int, number: int) -> tuple[bytes, bytes, int]:
    """Key, value and timestamp."""
    name = f"{topic}-{partition}-{number}"
    value = hashlib.sha256(name.encode()).hexdigest()
    return name.encode(), value.encode(), 1_700_000_000_000 + number


def unpack(archive: str, folder: Path) -> None:
    with tarfile.open(DATA / f"{archive}.tar.xz") as packed:
        if hasattr(tarfile, "data_filter"):  # Python since 3.12 asks for one, 3.11.2 does not know any
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(folder)


def as_on_this_machine(folder: Path) -> None:
    """As if this machine had not been started again since."""
    for note in folder.rglob(RUNNING):
        note.write_text(json.dumps(json.loads(note.read_text()) | {"boot": read_boot_id()}))


def log_of(partition: Path) -> bytes:
    """Its segments as one, because replicas begin new ones where they like."""
    return b"".join(segment.read_bytes() for segment in sorted(partition.glob("*.log")))
