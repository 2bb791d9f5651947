"""Two answers side by side: every place where they differ, and what the reviewed table says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.plain import label_of

MISSING = "(missing)"


@dataclass(frozen=True)
class Difference:
    """`path` has no labels and can be matched; `place` says which entry of an array it is about."""

    api: str
    version: int
    scenario: str
    path: str
    place: str
    kafka: Any
    tidelog: Any
    request: str


def report(differences: Sequence[Difference]) -> str:
    """What differed, told once for all versions in which it did."""
    versions: dict[tuple[str, ...], list[int]] = {}
    requests: dict[tuple[str, ...], str] = {}
    for found in differences:
        values = (_short(found.kafka), _short(found.tidelog))
        told = (found.api, found.scenario, re.sub(r"-\d+-\d+", "", found.place), *values)
        versions.setdefault(told, []).append(found.version)
        requests[told] = _short(found.request)
    lines = []
    for heading, where in versions.items():
        api, scenario, place, kafka, tidelog = heading
        lines.append(
            f"{api} v{','.join(map(str, dict.fromkeys(where)))}, {scenario}: {place or 'the answer'}"
        )
        lines += [f"    Kafka   {kafka}", f"    Tidelog {tidelog}", f"    request {requests[heading]}"]
    return "\n".join(lines)


def _short(value: Any, length: int = 900) -> str:
    text = repr(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


Found = tuple[str, str, Any, Any]


def differing(kafka: Any, tidelog: Any, path: str = "", place: str = "") -> Iterator[Found]:
    """(path, place, Kafka's value, Tidelog's value) of whatever is not the same."""
    if isinstance(kafka, dict) and isinstance(tidelog, dict):
        for name in dict.fromkeys((*kafka, *tidelog)):
            dot = "." if path else ""
            inner = (f"{path}{dot}{name}", f"{place}{dot}{name}")
            yield from differing(kafka.get(name, MISSING), tidelog.get(name, MISSING), *inner)
    elif _is_array(kafka) and _is_array(tidelog):
        theirs, ours = _labelled(kafka), _labelled(tidelog)
        for label in dict.fromkeys((*theirs, *ours)):
            inner = (f"{path}[]", f"{place}[{label}]")
            yield from differing(theirs.get(label, MISSING), ours.get(label, MISSING), *inner)
    elif kafka != tidelog or type(kafka) is not type(tidelog):
        yield path, place, kafka, tidelog


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _labelled(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Entries by their labels; the second of the same label is told apart by a number."""
    labelled: dict[str, dict[str, Any]] = {}
    for entry in entries:
        label = label_of(entry)
        count = sum(known.partition("#")[0] == label for known in labelled)
        labelled[f"{label}#{count + 1}" if count else label] = entry
    return labelled
