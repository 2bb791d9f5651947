"""What replicas have on their disks, compared byte for byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.chaos.machines import Machines


def differing_replicas(machines: Machines) -> list[str]:
    """Partitions whose replicas are not the same, once all brokers have stopped; they are stopped for it."""
    partitions = machines.truth.partitions()
    for broker in machines.brokers.values():
        assert broker.stop() == 0
    differing = []
    for each in partitions:
        name = f"{each.topic}-{each.partition}"
        found = {node_id: digest(machines.data(node_id) / name) for node_id in each.replicas}
        if len(set(found.values())) > 1:
            differing.append(f"{name}: {found}")
    return differing


def digest(partition: Path) -> str:
    """Of all segments as one, because replicas begin new ones where they like."""
    whole = hashlib.sha256()
    for segment in sorted(partition.glob("*.log")):
        whole.update(segment.read_bytes())
    return whole.hexdigest()
