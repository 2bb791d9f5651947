"""Answers as plain nested data, with what must differ between two brokers taken out of it.

What is taken out: ports, cluster ids, ids of topics, sessions, members and producers, paths, the broker's
clock, free space, how long a client is throttled, and the wording of messages (that there is one, is
compared). Entries of arrays are put in the order of their keys: Kafka's own is that of its hash maps.

**Invariant:** whatever is not named here is compared as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.differential.entities import CORRELATION_ID, NOBODY
from tests.differential.sides import Reply, Silence

FETCH, API_VERSIONS, INIT_PRODUCER_ID, DESCRIBE_LOG_DIRS = 1, 18, 22, 35
END_TXN, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 26, 65, 66
SOMETHING = "(something)"
# The end of an id that a coordinator has given to a member, or all of it.
_MADE_UP = re.compile(r"(?<=-)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SHORT_ID = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass
class Names:
    """What one broker calls the things that both have under their own names."""

    port: int
    topics: dict[UUID, UUID]  # its id of a topic -> the id it has in requests
    directory: bytes
    canonical_directory: bytes
    session_ids: dict[int, int]
    members: dict[str, str]  # its id of a member of a group -> the id it has in requests
    producers: dict[int, int]  # its id of a transactional producer -> the id it has in requests


class Undecodable(Exception):
    """An answer that is not what its version says."""


def decode(api_key: int, version: int, frame: bytes) -> Any:
    """The answer by kio; ApiVersions of an unknown version is answered in version 0 (KIP-511)."""
    if int.from_bytes(frame[:4], "big") != CORRELATION_ID:
        raise Undecodable(f"correlation id {int.from_bytes(frame[:4], 'big')}")
    schema = load_response_schema(api_key, version)
    position = 4
    if schema.__flexible__ and api_key != API_VERSIONS:
        if frame[4] != 0:
            raise Undecodable("tags in the header")
        position = 5
    entity, size = entity_reader(schema)(frame[position:], 0)
    if size != len(frame) - position:
        raise Undecodable(f"{len(frame) - position - size} bytes too many")
    return entity


def plain(api_key: int, version: int, reply: Reply, names: Names) -> Any:
    if isinstance(reply, Silence):
        return reply.value
    data = _plain(decode(api_key, version, reply), api_key, names)
    return _in_any_directory(data) if api_key == DESCRIBE_LOG_DIRS else data


def _in_any_directory(answer: dict[str, Any]) -> dict[str, Any]:
    """Which of its directories a partition goes to is a broker's own choice; that it is in one is not."""
    partitions = [
        {"topic": topic["name"], **partition}
        for result in answer["results"]
        for topic in result.pop("topics")
        for partition in topic["partitions"]
    ]
    return answer | {"partitions": _ordered(partitions)}


def _plain(value: Any, api_key: int, names: Names) -> Any:
    if is_dataclass(value):
        return {
            field.name: _field(api_key, field.name, getattr(value, field.name), names)
            for field in fields(value)
            if field.name != "throttle_time"
        }
    if isinstance(value, tuple):
        return _ordered([_plain(part, api_key, names) for part in value])
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000)
    if isinstance(value, UUID):
        return str(value if value == NOBODY else names.topics.get(value, SOMETHING))
    if isinstance(value, str):
        value = names.members.get(value) or _MADE_UP.sub(SOMETHING, value)
        return value.replace(names.directory.decode(), names.canonical_directory.decode())
    return value


Normalise = Callable[[Any, Names], Any]


def _presence(value: Any, _: Names) -> Any:
    """Only whether there is one."""
    return value if value is None else SOMETHING


def _sign(value: Any, _: Names) -> Any:
    """Only whether it is a number of something, or the -1 that stands for nothing."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, datetime):
        number = number.timestamp()
    return SOMETHING if number is not None and number >= 0 else value


def _port(value: Any, names: Names) -> Any:
    return SOMETHING if value == names.port else value


def _session(value: Any, names: Names) -> Any:
    return names.session_ids.get(value, SOMETHING if value else 0)


def _member(value: Any, names: Names) -> Any:
    is_short = isinstance(value, str) and _SHORT_ID.fullmatch(value) and value not in names.members
    return SOMETHING if is_short else value


def _producer(value: Any, names: Names) -> Any:
    return names.producers.get(value, SOMETHING if value >= 0 else value)


def _sorted(value: Any, _: Names) -> Any:
    """A set that is told as a list."""
    return value if value is None else tuple(sorted(value))


_EVERYWHERE: Mapping[str, Normalise] = {
    "error_message": _presence,
    "batch_index_error_message": _presence,
    "documentation": _presence,
    "cluster_id": _presence,
    "port": _port,
    "member_id": _member,
    "leader": _member,
    "subscribed_topic_names": _sorted,
    "log_append_time": _presence,
    "finalized_features_epoch": _sign,
    "total_bytes": _sign,
    "usable_bytes": _sign,
}
_IN_ONE_API: Mapping[tuple[int, str], Normalise] = {
    (INIT_PRODUCER_ID, "producer_id"): _sign,
    (FETCH, "session_id"): _session,
    (END_TXN, "producer_id"): _producer,
    (DESCRIBE_TRANSACTIONS, "producer_id"): _producer,
    (DESCRIBE_TRANSACTIONS, "transaction_start_time"): _sign,
    (LIST_TRANSACTIONS, "producer_id"): _producer,
}


def _field(api_key: int, name: str, value: Any, names: Names) -> Any:
    normalise = _IN_ONE_API.get((api_key, name)) or _EVERYWHERE.get(name)
    return _plain(value if normalise is None else normalise(value, names), api_key, names)


KEYS = (
    "transactional_id",
    "group_id",
    "member_id",
    "resource_type",
    "resource_name",
    "name",
    "topic",
    "topic_name",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "key",
    "api_key",
    "node_id",
    "broker_id",
    "log_dir",
    "user",
    "feature",
    "batch_index",
    "producer_id",
    "mechanism",
)


def label_of(entry: Any) -> str:
    """What tells an entry of an array from its neighbours."""
    named = [str(entry[key]) for key in KEYS if entry.get(key) is not None]
    return ",".join(named) or str(entry.get("topic_id"))


def _ordered(entries: list[Any]) -> list[Any]:
    if not entries or not isinstance(entries[0], dict):
        return entries
    return sorted(entries, key=lambda entry: (label_of(entry), repr(entry)))
