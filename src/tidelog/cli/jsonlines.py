"""Records as JSON lines, in the same format for output of `consume` and input of `produce`.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": {"base64": "/w=="}, "headers": [["name", "value"]]}

Bytes that are UTF-8 are a string, others are `{"base64": …}`; null is null.

**Invariant:** `bytes_of(text_of(x)) == x` for every x.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from tidelog.cli.failure import BadWord
from tidelog.client.errors import TopicPartition
from tidelog.protocol.records import Record

Json = Any
Headers = list[tuple[str, str | bytes | None]]


@dataclass(slots=True)
class OutgoingRecord:
    """A record to produce; partition -1: the partitioner chooses; timestamp 0: now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)
    partition: int = -1
    timestamp: int = 0


def text_of(content: bytes | None) -> Json:
    """Bytes in JSON."""
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def bytes_of(text: Json, where: str) -> bytes | None:
    """The bytes of a `text_of` value."""
    if text is None:
        return None
    if isinstance(text, str):
        return text.encode("utf-8")
    if isinstance(text, dict) and list(text) == ["base64"] and isinstance(text["base64"], str):
        try:
            return base64.b64decode(text["base64"], validate=True)
        except binascii.Error:
            raise BadWord(f"{where}: not base64: {text['base64']!r}") from None
    raise BadWord(f'{where}: must be a string, null or {{"base64": "…"}}, not {json.dumps(text)}')


def json_of(place: TopicPartition, record: Record) -> dict[str, Json]:
    """A consumed record as a JSON object."""
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "headers": [[name, text_of(value)] for name, value in record.headers],
    }


def record_of(line: bytes, where: str) -> OutgoingRecord:
    """The record in a JSON line; fields that only the broker decides are ignored."""
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise BadWord(f"{where}: not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadWord(f'{where}: must be an object such as {{"key": "k", "value": "v"}}')
    return OutgoingRecord(
        key=bytes_of(parsed.get("key"), f"{where}, key"),
        value=bytes_of(parsed.get("value"), f"{where}, value"),
        headers=_headers(parsed.get("headers"), where),
        partition=_whole_number(parsed.get("partition"), -1, f"{where}, partition"),
        timestamp=_whole_number(parsed.get("timestamp"), 0, f"{where}, timestamp"),
    )


def _headers(parsed: Json, where: str) -> Headers:
    if parsed is None:
        return []
    pairs = list(parsed.items()) if isinstance(parsed, dict) else parsed
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise BadWord(f'{where}, headers: must be [["name", "value"], …] or {{"name": "value"}}')
    return [(name, bytes_of(value, f"{where}, header {name!r}")) for name, value in pairs]


def _is_pair(pair: Json) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)


def _whole_number(parsed: Json, default: int, where: str) -> int:
    if parsed is None:
        return default
    if not isinstance(parsed, int) or isinstance(parsed, bool) or parsed < 0:
        raise BadWord(f"{where}: must be a whole number, 0 or more, not {json.dumps(parsed)}")
    return parsed
