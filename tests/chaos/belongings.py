"""What the process of a broker has at a moment, seen from outside: memory, descriptors, folders, and what
its own metrics page says that it keeps.

**Invariant:** two of `Belongings` that are equal name the same things; nothing in them depends on the clock.
"""

from __future__ import annotations

import http.client
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.server.wire_client import PATIENCE_S, WireClient
from tests.wire.harness import DESCRIBE_PRODUCERS, parts

# Gauges of the machine and of time, and the sizes of logs that are still written.
_PASSED_OVER = ("process_", "tidelog_disk_", "kafka_log_log_", "kafka_log_logcleaner")
_SHARE = "_percent"
_INODE = re.compile(r":\[\d+\]$")


@dataclass(frozen=True)
class Belongings:
    descriptors: Counter[str]  # by what they lead to; all sockets together, and all pipes
    folders: frozenset[str]  # of partitions
    gauges: dict[str, float]  # but those that are 0
    series: frozenset[str]  # all that the page has, gauges or not

    def beside(self, other: Belongings) -> str:
        """What the other has not, or has otherwise."""
        told = []
        if self.descriptors != other.descriptors:
            more, fewer = self.descriptors - other.descriptors, other.descriptors - self.descriptors
            told.append(f"descriptors: {dict(more)} more, {dict(fewer)} fewer")
        if self.folders != other.folders:
            told.append(f"folders: {sorted(self.folders ^ other.folders)[:20]}")
        for name in sorted(self.gauges.keys() | other.gauges.keys()):
            mine, theirs = self.gauges.get(name, 0), other.gauges.get(name, 0)
            if mine != theirs:
                told.append(f"{name}: {mine}, not {theirs}")
        if self.series != other.series:
            told.append(f"series: {sorted(self.series ^ other.series)[:20]}")
        return "\n".join(told)


def belongings_of(pid: int, data: Path, probe_port: int) -> Belongings:
    descriptors = descriptors_of(pid)  # before the page is read, or its own connection were one of them
    gauges, series = _page(probe_port)
    folders = frozenset(path.name for path in data.iterdir() if path.is_dir())
    return Belongings(descriptors, folders, gauges, frozenset(series))


def memory_mb(pid: int) -> float:
    """Resident, without the pages of files: those come and go with the machine's other work."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) / 1_024


def producer_count(port: int, topic: str) -> int:
    """Producers that the broker remembers of partition 0, as DescribeProducers tells."""
    with WireClient(port) as client:
        asked = parts(DESCRIBE_PRODUCERS, 0).TopicRequest(name=topic, partition_indexes=(0,))
        answer = client.ask(DESCRIBE_PRODUCERS, 0, topics=(asked,))
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == 0, partition
    return len(partition.active_producers)


def descriptors_of(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[_INODE.sub("", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
        except FileNotFoundError:
            continue  # closed between the two
    return found


def _page(probe_port: int) -> tuple[dict[str, float], set[str]]:
    connection = http.client.HTTPConnection("127.0.0.1", probe_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    gauges, series = {}, set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = f"{sample.name}{sorted(sample.labels.items())}"
            series.add(name)
            if sample.value and family.type == "gauge" and not _is_passed_over(family.name):
                gauges[name] = sample.value
    return gauges, series


def _is_passed_over(name: str) -> bool:
    return name.startswith(_PASSED_OVER) or name.endswith(_SHARE)
