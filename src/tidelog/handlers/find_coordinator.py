"""FindCoordinator: which broker has a group or a transactional id."""

from __future__ import annotations

from typing import Any

from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.coordinators import Coordinators
from tidelog.broker.data_plane.transactions import Transactions
from tidelog.cluster.facts import NOBODY
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.names import leader_of
from tidelog.handlers.request import Request, Result
from tidelog.protocol.errors import ErrorCode

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_MANY_VERSION = 4
_SHARE_VERSION = 6
_KEY_LENGTH_MAX = 100  # of a key that a message quotes
_CREATION_WAIT_MS = 10_000  # for the topic that keeps groups; then clients are told to try again


def handle_find_coordinator(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the broker that coordinates a group or a transactional id, at the listener that the client
    came in by; the topic that keeps them is made when first asked for. There are no share groups yet: who
    asks for their coordinator is told so.

    *Versions*: 1 adds key types and messages; 4 asks for many at once.
    """
    asked = request.decode()
    key_type = getattr(asked, "key_type", _GROUP)
    keys = asked.coordinator_keys if request.version >= _MANY_VERSION else (asked.key,)

    def answer(created: list[None]) -> bytes:
        return _encode_coordinators(broker, request, key_type, keys)

    kept = _kept(broker, key_type)
    if kept is None or kept.topic_exists or not keys:
        return answer([])
    deadline_ms = broker.clock.uptime_ms + _CREATION_WAIT_MS
    gathering: Gathering[None] = Gathering(broker, deadline_ms, 1, None, answer)
    kept.create_topic(lambda: gathering.put(0, None))
    return gathering.result()


def _kept(broker: Broker, key_type: int) -> Coordinators | Transactions | None:
    if key_type == _GROUP:
        return broker.coordinators
    return broker.transacting.coordinators if key_type == _TRANSACTION else None


def _encode_coordinators(broker: Broker, request: Request, key_type: int, keys: tuple[str, ...]) -> bytes:
    found = [_coordinator(broker, request, key_type, key) for key in keys]
    if request.version < _MANY_VERSION:
        return request.respond(**found[0])
    coordinators = tuple(
        request.make("Coordinator", key=key, **each) for key, each in zip(keys, found, strict=True)
    )
    return request.respond(coordinators=coordinators)


def _coordinator(broker: Broker, request: Request, key_type: int, key: str) -> dict[str, Any]:
    kept = _kept(broker, key_type)
    if kept is None or (isinstance(kept, Transactions) and kept.is_too_long(key)):
        return _nowhere(key_type, key, request.version)
    place = kept.place_of(key)
    reachable = broker.image.addresses(request.client.listener)
    leader = leader_of(broker, *place, reachable) if place is not None else NOBODY
    if leader == NOBODY:
        code = ErrorCode.coordinator_not_available
        kind = "group" if key_type == _GROUP else "transactional id"
        text = f"the coordinator of {kind} {key[:_KEY_LENGTH_MAX]!r} is not available"
        return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}
    host, port = reachable[leader]
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "node_id": leader,
        "host": host,
        "port": port,
    }


def _nowhere(key_type: int, key: str, version: int) -> dict[str, Any]:
    if key_type == _SHARE and version >= _SHARE_VERSION and key.count(":") == 2:
        code = ErrorCode.coordinator_not_available
        text = "share groups: not supported by this version of Tidelog; use a consumer group"
    else:
        code = ErrorCode.invalid_request
        text = f"no coordinator for key {key[:_KEY_LENGTH_MAX]!r} of type {key_type}"
    return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}
