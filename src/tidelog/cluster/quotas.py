"""Quotas of clients, as facts in the tree and decisions about them (KIP-546, KIP-599, KIP-612).

An entity is who a quota is for: a user, a client id, both, or an address; a name of None stands for all
that have no quota of their own. Each has a node under `/config/quotas`, named after it, with a number for
each key.

**Invariant:** of one entity, all that was asked for is changed or nothing; the number of entities is bounded,
because every broker keeps all of them in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import isnan
from typing import NamedTuple

from tidelog.base.limits import (
    QUOTA_ENTITIES_CHANGED_MAX,
    QUOTA_ENTITIES_MAX,
    QUOTA_NAME_LENGTH_MAX,
)
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import QUOTA_CONFIG, config_path, escape_name, unescape_name
from tidelog.cluster.store import Create, Delete, Operation, Write
from tidelog.protocol.errors import ErrorCode, Problem

USER, CLIENT_ID, IP = "user", "client-id", "ip"
KINDS = (USER, CLIENT_ID, IP)
PRODUCER_RATE, CONSUMER_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
_OF_CLIENTS = (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE, MUTATION_RATE)
_WHOLE = (PRODUCER_RATE, CONSUMER_RATE, CONNECTION_RATE)  # numbers without a fraction
_NEAR = 1e-6  # to a whole number, as Kafka compares
_LONG_END, _INT_END = 2.0**63, 2.0**31

# The kinds of an entity, in the order of their names, each with a name, or with None for all others.
Entity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[str, float]


class QuotaChange(NamedTuple):
    """What is wanted of one entity, as it was sent; of a kind that is named twice the last name counts."""

    entity: Mapping[str, str | None]
    values: Sequence[tuple[str, float | None]]  # None removes


class QuotaDecision(NamedTuple):
    operations: list[Operation]
    rows: list[tuple[Mapping[str, str | None], Problem | None]]  # of each entity, once, what is wrong


def ordered(entity: Mapping[str, str | None]) -> Entity:
    """The same entity however its kinds were listed."""
    return tuple((kind, entity[kind]) for kind in sorted(entity))


def name_of(entity: Entity) -> str:
    """The name of its node."""
    return "+".join(kind if name is None else f"{kind}:{escape_name(name)}" for kind, name in entity)


def entity_of(name: str) -> Entity:
    """The entity of a node's name."""
    parts = (part.partition(":") for part in name.split("+"))
    return tuple((kind, unescape_name(text) if colon else None) for kind, colon, text in parts)


def levels(user: str, client_id: str) -> list[tuple[Entity, tuple[str, str]]]:
    """The entities whose quota may be that of a client, the first that has one; each with the user and the
    client id of all who share it."""
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    return [
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    ]


def entities_of(image: Image) -> dict[Entity, dict[str, float]]:
    found = image.configs[QUOTA_CONFIG]
    return {
        entity_of(name): {key: float(text) for key, text in fields.items()} for name, fields in found.items()
    }


def address_of(text: str) -> str | None:
    """An address as connections have it; None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return _short_address_of(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _short_address_of(text: str) -> str | None:
    """With fewer than four parts, of which the last one fills the rest."""
    parts = text.split(".")
    if len(parts) > 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 10 for part in parts):
        return None
    *heads, last = map(int, parts)
    rest = 4 - len(heads)
    if any(head > 255 for head in heads) or last >= 256**rest:
        return None
    return str(ip_address(bytes(heads) + last.to_bytes(rest, "big")))


# Changing them.


def decide_quotas(image: Image, changes: Sequence[QuotaChange]) -> QuotaDecision:
    """The operations for the changes that are allowed, and what is wrong with the others."""
    operations: list[Operation] = []
    rows: list[tuple[Mapping[str, str | None], Problem | None]] = []
    room = QUOTA_ENTITIES_MAX - len(image.configs[QUOTA_CONFIG])
    by_entity: dict[Entity, list[QuotaChange]] = {}
    for change in changes:
        by_entity.setdefault(ordered(change.entity), []).append(change)
    for entity, (change, *others) in by_entity.items():
        problem = _REPEATED if others else _problem(change)
        operation = None if problem else _operation(image, entity, change.values)
        if isinstance(operation, Create) and room <= 0:
            problem = _TOO_MANY
        elif operation is not None and len(operations) >= QUOTA_ENTITIES_CHANGED_MAX:
            problem = _TOO_MANY_AT_ONCE
        elif operation is not None:
            operations.append(operation)
            room -= isinstance(operation, Create)
        rows.append((change.entity, problem))
    return QuotaDecision(operations, rows)


def _invalid(message: str) -> Problem:
    return Problem(ErrorCode.invalid_request, message)


_TOO_MANY = Problem(
    ErrorCode.policy_violation, f"There are {QUOTA_ENTITIES_MAX} entities with quotas, which is the limit"
)
_TOO_MANY_AT_ONCE = Problem(
    ErrorCode.policy_violation, f"At most {QUOTA_ENTITIES_CHANGED_MAX} entities are altered by one request"
)
_EMPTY = _invalid("Invalid empty client quota entity")
_COMBINED = _invalid("An address cannot be combined with a user or a client id")
_REPEATED = _invalid("Ignoring duplicate entity")


def _problem(change: QuotaChange) -> Problem | None:
    entity = change.entity
    if not entity:
        return _EMPTY
    for kind, name in entity.items():
        if kind not in KINDS:
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > QUOTA_NAME_LENGTH_MAX:
            return _invalid(f"The name of a {kind} has more than {QUOTA_NAME_LENGTH_MAX} characters")
    if IP in entity:
        if len(entity) > 1:
            return _COMBINED
        address = entity[IP]
        if address is not None and address_of(address) is None:
            return _invalid(f"{address} is not a valid IP address; names of hosts are not resolved")
    if len({key for key, _ in change.values}) != len(change.values):
        return _REPEATED
    keys = (CONNECTION_RATE,) if IP in entity else _OF_CLIENTS
    for key, value in change.values:
        problem = None if value is None else _value_problem(keys, key, value)
        if problem is not None:
            return problem
    return None


def _value_problem(keys: Sequence[str], key: str, value: float) -> Problem | None:
    if key not in keys:
        return _invalid(f"Invalid configuration key {key}")
    if isnan(value) or value <= 0:
        return _invalid(f"Quota {key} must be greater than 0")
    if key in _WHOLE and value >= (_INT_END if key == CONNECTION_RATE else _LONG_END):
        return _invalid(f"Proposed value for {key} is too large")
    if key in _WHOLE and abs(round(value) - value) > _NEAR:
        return _invalid(f"{key} cannot be a fractional value")
    return None


def _operation(image: Image, entity: Entity, values: Sequence[tuple[str, float | None]]) -> Operation | None:
    """What makes the node as it is wanted; None if it is so already."""
    name = name_of(entity)
    before = image.configs[QUOTA_CONFIG].get(name, {})
    after = dict(before)
    for key, value in values:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = repr(value)
    if after == before:
        return None
    path = config_path(QUOTA_CONFIG, name)
    if not after:
        return Delete(path, image.versions[path])
    if path in image.versions:
        return Write(path, encode_fields(**after), image.versions[path])
    return Create(path, encode_fields(**after))


# Finding them.


class Component(NamedTuple):
    """What a filter wants of one kind."""

    kind: str
    is_any: bool  # with a quota of its own or the others', by whatever name
    name: str | None = None  # or exactly this one, None for all others


def matching(
    entities: Mapping[Entity, Quotas], components: Sequence[Component], is_strict: bool
) -> dict[Entity, Quotas]:
    """The entities that have all that the filter names, and where it is strict nothing else."""
    if is_strict and not components:
        return {}
    return {
        entity: quotas
        for entity, quotas in entities.items()
        if (not is_strict or len(entity) == len(components))
        and all(_has(dict(entity), component) for component in components)
    }


def _has(entity: Mapping[str, str | None], component: Component) -> bool:
    if component.kind not in entity:
        return False
    return component.is_any or entity[component.kind] == component.name
