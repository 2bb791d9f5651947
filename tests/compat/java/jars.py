"""Jars that only some tests need: a newer Kafka client, and Kafka Streams.

Each comes alone: what it needs is among the jars of the Kafka that runs here.
"""

from __future__ import annotations

from pathlib import Path

from bench.peers.artifacts import fetch_artifacts
from bench.peers.kafka import STORE, VERSION

GROUP = "org.apache.kafka"
NEWER_VERSION = "4.4.0"


def newer_clients() -> list[Path]:
    """Raises `PeerMissing`."""
    name = f"kafka-clients-{NEWER_VERSION}"
    return fetch_artifacts(STORE.parent / name, name, [(GROUP, "kafka-clients", NEWER_VERSION)])


def streams() -> list[Path]:
    """Without RocksDB: stores are in memory. Raises `PeerMissing`."""
    name = f"kafka-streams-{VERSION}"
    return fetch_artifacts(STORE.parent / name, name, [(GROUP, "kafka-streams", VERSION)])
