"""A position in a topic as users write it: earliest, latest, OFFSET, -N (the last N) or @TIMESTAMP.

`tidelog consume --from` begins there, `tidelog topic trim --before` ends there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tidelog.cli.failure import BadWord, Failure
from tidelog.client.cluster import EARLIEST, LATEST, FoundOffset
from tidelog.client.errors import TopicPartition

# Looks up offsets; the function decides which partitions are asked.
Ask = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, FoundOffset]]


@dataclass(frozen=True, slots=True)
class Start:
    """`number` is the offset, the count from the end, or the timestamp in ms; 0 for earliest and latest."""

    kind: Literal["earliest", "latest", "offset", "last", "timestamp"]
    number: int = 0


def parse_start(word: str, option: str = "--from") -> Start:
    """The parsed word of --from, or of another option with the same syntax."""
    if word == "earliest":
        return Start("earliest")
    if word == "latest":
        return Start("latest")
    if re.fullmatch(r"\d{1,18}", word):
        return Start("offset", int(word))
    if re.fullmatch(r"-\d{1,18}", word):
        return Start("last", int(word[1:]))
    if word.startswith("@"):
        return Start("timestamp", _timestamp_ms(word, option))
    raise BadWord(f"{option} {word}: write earliest, latest, an offset, -N for the last N, or @timestamp")


def starting_offsets(
    ask: Ask, topic: str, partitions: Iterable[int], start: Start, option: str = "--from"
) -> dict[int, int]:
    """The offset to begin at, by partition."""
    ends = limits_of(ask, topic, partitions)
    if start.kind == "timestamp":
        return _offsets_at(ask, topic, ends, start.number)
    offsets = {}
    for number, (low, high) in ends.items():
        if start.kind == "offset" and not low <= start.number <= high:
            raise Failure(
                f"{option} {start.number}: partition {number} of {topic!r} has offsets {low} to {high}"
            )
        offsets[number] = {
            "earliest": low,
            "latest": high,
            "offset": start.number,
            "last": max(low, high - start.number),
        }[start.kind]
    return offsets


def limits_of(ask: Ask, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition."""
    first = ask({TopicPartition(topic, number): EARLIEST for number in partitions})
    end = ask(dict.fromkeys(first, LATEST))
    return {place.partition: (first[place].offset, end[place].offset) for place in end}


def _offsets_at(ask: Ask, topic: str, ends: dict[int, tuple[int, int]], timestamp_ms: int) -> dict[int, int]:
    """The first record not older than the timestamp; the end if all are older."""
    found = ask({TopicPartition(topic, number): timestamp_ms for number in ends})
    return {
        place.partition: at.offset if at.offset >= 0 else ends[place.partition][1]
        for place, at in found.items()
    }


def _timestamp_ms(word: str, option: str) -> int:
    if re.fullmatch(r"@\d{1,15}", word):
        return int(word[1:])
    try:
        moment = datetime.fromisoformat(word[1:])
    except ValueError:
        raise BadWord(
            f"{option} {word}: not a time; write @milliseconds or @2026-01-31T12:00:00 (UTC)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
