"""A place in a topic as people write it: earliest, latest, OFFSET, -N (the last N) or @TIMESTAMP.

`tidelog consume --from` begins there, `tidelog topic trim --before` ends there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tidelog.cli.failure import BadWord, Failure
from tidelog.client.cluster import EARLIEST, LATEST, Cluster
from tidelog.client.errors import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """`number` is the offset, the count from the end, or the timestamp in ms; 0 for the two ends."""

    kind: Literal["earliest", "latest", "offset", "last", "timestamp"]
    number: int = 0


def parse_start(word: str, option: str = "--from") -> Start:
    """The meaning of the word after --from, or another option that takes the same words."""
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
    cluster: Cluster, topic: str, partitions: list[int], start: Start, option: str = "--from"
) -> dict[int, int]:
    """The offset to begin at, by partition."""
    ends = limits_of(cluster, topic, partitions)
    if start.kind == "timestamp":
        return _offsets_at(cluster, topic, ends, start.number)
    offsets = {}
    for number, (low, high) in ends.items():
        if start.kind == "offset" and not low <= start.number <= high:
            raise Failure(
                f"{option} {start.number}: partition {number} of {topic!r} holds offsets {low} to {high}"
            )
        offsets[number] = {
            "earliest": low,
            "latest": high,
            "offset": start.number,
            "last": max(low, high - start.number),
        }[start.kind]
    return offsets


def limits_of(cluster: Cluster, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition."""
    places = [TopicPartition(topic, number) for number in partitions]
    first, end = (cluster.list_offsets(dict.fromkeys(places, which)) for which in (EARLIEST, LATEST))
    return {place.partition: (first[place].offset, end[place].offset) for place in places}


def _offsets_at(
    cluster: Cluster, topic: str, ends: dict[int, tuple[int, int]], timestamp_ms: int
) -> dict[int, int]:
    """The first record not older than the timestamp; the end where all are older."""
    found = cluster.list_offsets({TopicPartition(topic, number): timestamp_ms for number in ends})
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
        raise BadWord(f"{option} {word}: write @milliseconds or @2026-01-31T12:00:00 (UTC)") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
