"""Offsets as stored in Spark's checkpoints: the position of each partition, and the parameters of a replay.

The format is the JVM connector's, `{"clicks": {"0": 12, "1": 7}}`, with one more name that no topic has:

    {"": {"ids": {"clicks": "k3V…"}, "split": {"minPartitions": 8}, "from": {"clicks": {"1": 5}},
          "gone": {"p9a…": {"0": 9}}, "group": "spark-kafka-source-1f0c"},
     "clicks": {"0": 12, "1": 7}}

`ids` are the topics' ids in Kafka's text form; `split` is the division of a batch that ends here; `from` is
its start where that is not the previous offset: in a query's first batch, in partitions that are new, or
whose records were deleted beyond that offset; `gone` are the positions in partitions that are missing, by
the id of their topic; `group` is the generated name of the consumer group that shows the query's progress.
Empty fields are omitted.

**Invariant:** equal positions give equal text: names are sorted, partitions too, by number. Invalid
text raises `BadPositions` with the place and the problem.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tidelog.client.errors import TopicPartition

PARTITION_MAX = 2**31 - 1  # of the four bytes that the protocol has for it
OFFSET_MAX = 2**63 - 1  # of eight
TOPIC_ID_SIZE = 16
BESIDE_THE_TOPICS = ""  # the name of the object with everything but offsets
NO_TOPIC_ID = bytes(TOPIC_ID_SIZE)
_SHOWN_MAX = 80  # characters of a text that a message quotes
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")

Json = dict[str, dict[str, Any]]
Key = TypeVar("Key", bound="TopicPartition | PastPartition | str")
Value = TypeVar("Value")


class BadPositions(ValueError):
    """Offsets that Tidelog or the JVM connector did not write, or that are damaged."""


class PastPartition(NamedTuple):
    """A partition of a topic that is gone, or was created again under the same name."""

    topic_id: bytes
    partition: int


class Split(NamedTuple):
    """The division of a batch's ranges into tasks."""

    min_partitions: int | None = None
    max_records_per_partition: int | None = None


UNSPLIT = Split()
_SPLIT_NAMES = ("minPartitions", "maxRecordsPerPartition")  # in the order of Split


@dataclass(frozen=True, slots=True)
class Positions:
    """The next offset to read of each partition; `starts` are this batch's starts where they differ, `gone`
    the next offsets of partitions that are missing."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    split: Split = UNSPLIT
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    group: str | None = None
    gone: Mapping[PastPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topics = {partition.topic for partition in self.offsets}
        known = {topic: self.topic_ids[topic] for topic in self.topic_ids if topic in topics}
        named = {topic: topic_id for topic, topic_id in known.items() if topic_id != NO_TOPIC_ID}
        begun = {partition: self.starts[partition] for partition in self.starts if partition in self.offsets}
        object.__setattr__(self, "offsets", _sealed(self.offsets))
        object.__setattr__(self, "topic_ids", _sealed(named))
        object.__setattr__(self, "starts", _sealed(begun))
        object.__setattr__(self, "gone", _sealed(self.gone))

    def __reduce__(self) -> tuple[Callable[..., Positions], tuple[object, ...]]:
        return Positions, (
            dict(self.offsets),
            dict(self.topic_ids),
            self.split,
            dict(self.starts),
            self.group,
            dict(self.gone),
        )

    def to_json_dict(self) -> Json:
        """The object whose JSON is the unique text of these positions."""
        beside: dict[str, Any] = {
            "ids": {topic: format_topic_id(topic_id) for topic, topic_id in self.topic_ids.items()},
            "split": {name: n for name, n in zip(_SPLIT_NAMES, self.split, strict=True) if n is not None},
            "from": _by_topic(self.starts),
            "gone": _by_topic(
                {(format_topic_id(topic_id), n): at for (topic_id, n), at in self.gone.items()}
            ),
            "group": self.group,
        }
        filled = {name: part for name, part in beside.items() if part}
        return ({BESIDE_THE_TOPICS: filled} if filled else {}) | _by_topic(self.offsets)

    @classmethod
    def from_json_dict(cls, written: object) -> Positions:
        topics = dict(_object(written, "offsets"))
        beside = _object(topics.pop(BESIDE_THE_TOPICS, {}), 'what stands under ""')
        for name in beside:
            if name not in ("ids", "split", "from", "gone", "group"):
                raise BadPositions(f'{_shown(name)} under "" is unknown: a newer Tidelog may have written it')
        ids = _object(beside.get("ids", {}), "ids")
        return cls(
            _read_offsets(topics, "offset"),
            {_read_topic(topic): _read_id(topic, text) for topic, text in ids.items()},
            _read_split(_object(beside.get("split", {}), "split")),
            _read_offsets(_object(beside.get("from", {}), "from"), "first offset"),
            _read_group(beside.get("group")),
            _read_gone(_object(beside.get("gone", {}), "gone")),
        )

    def begun_at(self, first: Positions) -> Positions:
        """The end of a query's first batch, with its start: Spark does not store that anywhere else."""
        begun = {
            partition: first.offsets[partition] for partition in self.offsets if partition in first.offsets
        }
        return replace(self, starts={**begun, **self.starts})

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls, text: str) -> Positions:
        try:
            written = json.loads(text)
        except (ValueError, RecursionError):
            raise BadPositions(f"offsets are {_shown(text)}: expected JSON") from None
        return cls.from_json_dict(written)


def format_topic_id(topic_id: bytes) -> str:
    """A topic id in Kafka's text form: URL-safe base 64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _sealed(values: Mapping[Key, Value]) -> Mapping[Key, Value]:
    return MappingProxyType(dict(sorted(values.items())))


def _by_topic(values: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> Json:
    topics: Json = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[str(partition)] = value
    return topics


def _object(written: object, what: str) -> Mapping[object, object]:
    if not isinstance(written, Mapping):
        raise BadPositions(f"{what}: {_shown(written)} is not an object")
    return written


def _read_offsets(topics: Mapping[object, object], what: str) -> dict[TopicPartition, int]:
    offsets = {}
    for name, partitions in topics.items():
        topic = _read_topic(name)
        for text, value in _object(partitions, f"topic {topic}").items():
            partition = TopicPartition(topic, _read_partition(topic, text))
            offsets[partition] = _read_number(value, f"{what} of {partition}", 0, OFFSET_MAX)
    return offsets


def _read_topic(name: object) -> str:
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name):
        raise BadPositions(f"{_shown(name)} is not a topic name")
    return name


def _read_partition(topic: str, text: object) -> int:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise BadPositions(f"{_shown(text)} is not a partition of {topic}")
    return _read_number(int(text), f"partition of {topic}", 0, PARTITION_MAX)


def _read_split(written: Mapping[object, object]) -> Split:
    for name in written:
        if name not in _SPLIT_NAMES:
            raise BadPositions(f"{_shown(name)} under split is unknown: a newer Tidelog may have written it")
    ceilings = zip(_SPLIT_NAMES, (PARTITION_MAX, OFFSET_MAX), strict=True)
    numbers = [_read_number(written[n], n, 1, top) if n in written else None for n, top in ceilings]
    return Split(*numbers)


def _read_group(written: object) -> str | None:
    if written is not None and (not isinstance(written, str) or not written):
        raise BadPositions(f"group is {_shown(written)}: expected a name")
    return written


def _read_number(value: object, what: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadPositions(f"{what} is {_shown(value)}: expected a whole number from {least} to {most}")
    return value


def _read_id(topic: object, text: object) -> bytes:
    try:
        topic_id = urlsafe_b64decode(f"{text}==") if isinstance(text, str) else b""
    except ValueError:
        topic_id = b""
    if len(topic_id) != TOPIC_ID_SIZE or format_topic_id(topic_id) != text:
        raise BadPositions(f"id of topic {_shown(topic)} is {_shown(text)}: expected 22 letters of base 64")
    return topic_id


def _read_gone(written: Mapping[object, object]) -> dict[PastPartition, int]:
    offsets = {}
    for text, partitions in written.items():
        topic_id = _read_id("that is gone", text)
        for index, value in _object(partitions, f"gone topic {_shown(text)}").items():
            partition = PastPartition(topic_id, _read_partition("a topic that is gone", index))
            offsets[partition] = _read_number(value, f"offset of {_shown(text)}", 0, OFFSET_MAX)
    return offsets


def _shown(value: object) -> str:
    """A shortened value for messages."""
    if isinstance(value, str) and len(value) > _SHOWN_MAX:
        return f"{value[:_SHOWN_MAX]!r}…"
    if isinstance(value, str | bool | float | None) or (type(value) is int and abs(value) <= 2**64):
        return repr(value)
    return {dict: "an object", list: "a list", int: "a huge number"}.get(type(value), type(value).__name__)
