"""A record of a group together with its decoded value, encoded for the journal and decoded from it.

**Invariant:** the decoded value of an entry equals what its bytes say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.base.decision import Entry
from tidelog.groups import records
from tidelog.groups.records import (
    CLASSIC,
    CONSUMER,
    CURRENT,
    MEMBER,
    OFFSET,
    PATTERN,
    TARGET,
    TARGET_MEMBER,
    CommittedOffset,
)

_new = tuple.__new__  # of a named tuple, at a third of the cost of calling its class
OF_MEMBERS = (MEMBER, TARGET_MEMBER, CURRENT, PATTERN)


class Fact(NamedTuple):
    """The latest value of one key; None if the key was deleted."""

    kind: int
    group_id: str
    name: str  # of the topic, member or pattern; empty if there is none
    partition: int
    value: Any


class _Form(NamedTuple):
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


_FORMS = {
    OFFSET: _Form(records.offset_value, records.read_offset_value),
    CLASSIC: _Form(records.classic_value, records.read_classic_value),
    CONSUMER: _Form(lambda value: records.consumer_value(*value), records.read_consumer_value),
    MEMBER: _Form(records.member_value, records.read_member_value),
    TARGET: _Form(lambda value: records.target_value(*value), records.read_target_value),
    TARGET_MEMBER: _Form(records.target_member_value, records.read_target_member_value),
    CURRENT: _Form(records.current_value, records.read_current_value),
    PATTERN: _Form(records.pattern_value, records.read_pattern_value),
}


def offset_entry(group_id: str, topic: str, partition: int, value: CommittedOffset | None) -> Entry:
    key = records.offset_key(group_id, topic, partition)
    content = records.offset_value(value) if value is not None else None
    return _new(Entry, (key, content, _new(Fact, (OFFSET, group_id, topic, partition, value))))


def write_entry(kind: int, group_id: str, value: Any, name: str = "") -> Entry:
    """An entry of any kind but an offset."""
    if kind in OF_MEMBERS:
        key = records.member_key(kind, group_id, name)
    else:
        key = records.group_key(kind, group_id)
    content = _FORMS[kind].write(value) if value is not None else None
    return _new(Entry, (key, content, _new(Fact, (kind, group_id, name, -1, value))))


def read_entry(entry: Entry) -> Fact | None:
    """The decoded entry; None for a kind that Tidelog does not know. CorruptBatch for malformed bytes."""
    if entry.fact is not None:
        assert isinstance(entry.fact, Fact)
        return entry.fact
    key = records.read_key(entry.key)
    kind = OFFSET if key.kind == records.OFFSET_0 else key.kind
    form = _FORMS.get(kind)
    if form is None:
        return None
    value = form.read(entry.value) if entry.value is not None else None
    return Fact(kind, key.group_id, key.name, key.partition, value)
