"""The parsers of options' texts, and the parsed types: selections of partitions, and where reading starts
and ends.

**Invariant:** a parser is a function of the text alone and raises `Unfit`, with what was expected, for an
invalid text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tidelog.client.errors import TopicPartition
from tidelog.spark.positions import PARTITION_MAX

INT_MAX = 2**31 - 1  # of Java's types, which the options of Spark's own source have
LONG_MAX = 2**63 - 1  # the same
LATEST_OFFSET = -1  # as an offset in JSON
EARLIEST_OFFSET = -2

OFFSETS_EXAMPLE = '{"clicks":{"0":23,"1":-2}}'
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DURATION = re.compile(r"([0-9]{1,18})([a-z]*)")
_UNIT_US = {
    "us": 1,
    "ms": 1000,
    "": 1000,
    "s": 10**6,
    "m": 60 * 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}

Value_co = TypeVar("Value_co", covariant=True)
Form = Callable[[str], Value_co]


class Unfit(Exception):
    """An invalid text; the message is what was expected."""


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str


Selection = Assign | Subscribe | SubscribePattern


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; `LATEST_OFFSET` and `EARLIEST_OFFSET` stand for the ends at planning
    time."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """One timestamp for all partitions."""

    timestamp_ms: int


Limit = Edge | AtOffsets | AtTimestamps | AtTimestamp


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Unfit("true or false")
    return text.lower() == "true"


def whole(least: int = -LONG_MAX - 1, most: int = LONG_MAX) -> Form[int]:
    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise Unfit(f"a whole number from {least} to {most}")
        return int(text)

    return read


def choice(*words: str) -> Form[str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise Unfit(" or ".join(words))
        return text.lower()

    return read


def nonempty(what: str) -> Form[str]:
    def read(text: str) -> str:
        if not text:
            raise Unfit(what)
        return text

    return read


def acks(text: str) -> int:
    if text.lower() not in ("all", "-1", "0", "1"):
        raise Unfit("all, 1 or 0")
    return -1 if text.lower() == "all" else int(text)


def duration_ms(text: str) -> int:
    """A duration as Spark writes it; milliseconds without a unit."""
    found = _DURATION.fullmatch(text.lower())
    if found is None or found[2] not in _UNIT_US:
        raise Unfit("a number of us, ms, s, m, min, h or d, such as 15m")
    return int(found[1]) * _UNIT_US[found[2]] // 1000


def group_or_off(text: str) -> str | None:
    """The group's name, an empty string for no group, None for the default."""
    return {"false": "", "true": None}.get(text.lower(), text)


def directories(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise Unfit("directories, separated by commas")
    return found


def topics(text: str) -> Subscribe:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise Unfit("names of topics, separated by commas")
    return Subscribe(names)


def pattern(text: str) -> SubscribePattern:
    try:
        re.compile(text)
    except re.error as problem:
        raise Unfit(f"a regular expression, and there is {problem}") from None
    if not text:
        raise Unfit("a regular expression")
    return SubscribePattern(text)


def assigned(text: str) -> Assign:
    example = 'partitions by topic, e.g. {"clicks":[0,1],"views":[2]}'
    found: dict[TopicPartition, None] = {}
    for topic, partitions in _object(_json(text, example), example).items():
        if not isinstance(partitions, list):
            raise Unfit(example)
        for partition in partitions:
            found[TopicPartition(topic, _number(partition, example, 0, PARTITION_MAX))] = None
    return Assign(tuple(sorted(found)))


def offsets(text: str) -> Edge | AtOffsets:
    if text.lower() in ("earliest", "latest"):
        return Edge(text.lower())
    expected = f"earliest, latest, or an offset for each partition, e.g. {OFFSETS_EXAMPLE}"
    return AtOffsets(_by_partition(text, expected, EARLIEST_OFFSET))


def timestamps(text: str) -> AtTimestamps:
    expected = 'milliseconds for each partition, e.g. {"clicks":{"0":1700000000000}}'
    return AtTimestamps(_by_partition(text, expected, -LONG_MAX - 1))


def _by_partition(text: str, expected: str, least: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, partitions in _object(_json(text, expected), expected).items():
        for partition, value in _object(partitions, expected).items():
            index = int(partition) if _WHOLE.fullmatch(partition) else None
            key = TopicPartition(topic, _number(index, expected, 0, PARTITION_MAX))
            found[key] = _number(value, expected, least, LONG_MAX)
    return dict(sorted(found.items()))


def _json(text: str, expected: str) -> object:
    try:
        read: object = json.loads(text)
    except (ValueError, RecursionError):
        raise Unfit(expected) from None
    return read


def _object(value: object, expected: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Unfit(expected)
    return value


def _number(value: object, expected: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Unfit(expected)
    return value
