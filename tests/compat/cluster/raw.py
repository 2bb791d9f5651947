"""One request to one broker, whoever is the controller: clients would go there by themselves."""

from __future__ import annotations

from typing import Any

from tests.differential.entities import build, frame_of, parts, request
from tests.differential.plain import decode
from tests.differential.sides import Side, Silence
from tidelog.testing import Broker

CREATE_TOPICS, DELETE_TOPICS, METADATA, CREATE_PARTITIONS = (19, 7), (20, 6), (3, 12), (37, 3)
DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, ALTER_CONFIGS, ELECT_LEADERS = (60, 1), (32, 4), (44, 1), (43, 2)
FIND_COORDINATOR, PRODUCE, FETCH = (10, 4), (0, 9), (1, 12)
Api = tuple[int, int]
"""Its key, and a version that names topics instead of giving their ids."""


def ask(broker: Broker, api: Api, /, **values: Any) -> Any:
    """The broker's answer as kio's entity."""
    side = Side(f"broker {broker.id}", broker.port)
    try:
        side.send(frame_of(*api, request(*api, **values)))
        reply = side.receive()
        assert not isinstance(reply, Silence), f"{side.name}: {reply.value}"
        return decode(*api, reply)
    finally:
        side.close()


def part(api: Api, name: str, /, **values: Any) -> Any:
    """A part of a request, by kio's name of it."""
    return build(getattr(parts(*api), name), **values)
