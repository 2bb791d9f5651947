"""A log directory that a broker has written, and ways to damage it: for the checker and its command."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.chaos.files import batches_of, segments
from tidelog.testing.process import BrokerProcess

SETTINGS = {
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "512",
    "log.retention.ms": "-1",
    "num.partitions": "2",
}
RECORDS = 600
FIRST = "00000000000000000000"


def write_directory(home: Path) -> Path:
    """A log directory with one topic, `checked`, of several segments; its broker has stopped cleanly."""
    with BrokerProcess(home, SETTINGS) as broker:
        fill(broker.bootstrap_servers)
        assert broker.stop() == 0
    return home / "data"


def fill(bootstrap_servers: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 20,
            "log_level": 0,
        }
    )
    for number in range(RECORDS):
        producer.produce("checked", f"{number}" + "x" * 50, partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def tear(partition: Path) -> int:
    """Cut the last batch of the partition; where it begins."""
    log = segments(partition)[-1]
    position = batches_of(log)[-1].position
    log.write_bytes(log.read_bytes()[:-4])
    return position
