"""A plan in a file, in the format of kafka-reassign-partitions.

`{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}`

**Invariant:** an invalid entry is named, and then nothing of the file is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.cli.cluster_layout import Place
from tidelog.cli.failure import BadWord

STDIN = "-"
_VERSION = 1
_SHAPE = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'


def read_plan(path: Path) -> dict[Place, tuple[int, ...]]:
    """The planned replicas of each partition."""
    found = _load(path)
    partitions = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(partitions, list):
        raise BadWord(f"--file {path}: not a plan; write {_SHAPE}")
    if found.get("version", _VERSION) != _VERSION:
        raise BadWord(f"--file {path}: version {found['version']!r} is not supported; write {_VERSION}")
    plan: dict[Place, tuple[int, ...]] = {}
    for number, entry in enumerate(partitions, 1):
        place, replicas = _parse(entry, f"--file {path}: entry {number}")
        if place in plan:
            raise BadWord(f"--file {path}: entry {number}: {place[0]}-{place[1]} appears twice")
        plan[place] = replicas
    if not plan:
        raise BadWord(f"--file {path}: no partitions in it")
    return plan


def plan_json(plan: Mapping[Place, Sequence[int]]) -> dict[str, Any]:
    """A plan as JSON for `read_plan` and Kafka's tool."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(plan.items())
    ]
    return {"version": _VERSION, "partitions": partitions}


def _load(path: Path) -> Any:
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else path.read_bytes()
        return json.loads(data)
    except OSError as error:
        raise BadWord(f"--file {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadWord(f"--file {path}: not JSON: {error}") from None


def _parse(entry: Any, where: str) -> tuple[Place, tuple[int, ...]]:
    facts: dict[str, Any] = entry if isinstance(entry, dict) else {}
    topic, number, replicas = facts.get("topic"), facts.get("partition"), facts.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise BadWord(f"{where}: no topic; write {_SHAPE}")
    if number is None or not _is_number(number):
        raise BadWord(f"{where}: {topic}: {number!r} is not a partition")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise BadWord(f"{where}: {topic}-{number}: no list of replicas; write broker ids such as [1, 2, 3]")
    if len(set(replicas)) < len(replicas):
        raise BadWord(f"{where}: {topic}-{number}: a broker appears in {replicas} twice")
    return (topic, int(number)), tuple(replicas)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
