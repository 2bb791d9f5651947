"""The records of `__consumer_offsets`: bytes that Kafka wrote, round trips, and bytes that are no records."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.seen import SEEN, Seen
from tidelog.groups import records
from tidelog.groups.records import (
    ClassicMemberValue,
    ClassicProtocols,
    ClassicValue,
    CommittedOffset,
    ConsumerValue,
    CurrentValue,
    MemberValue,
    PatternValue,
    TargetValue,
)
from tidelog.protocol.errors import CorruptBatch


class Form(NamedTuple):
    """A kind of value: how it is read and written, and any such value."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    any_value: st.SearchStrategy[Any]


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT, BLOB, ID = st.text(max_size=20), st.binary(max_size=40), st.binary(min_size=16, max_size=16)
OPTIONAL = st.none() | TEXT
TEXTS = st.lists(TEXT, max_size=4).map(tuple)
OWNED = st.dictionaries(ID, st.dictionaries(INT32, INT32, max_size=4), max_size=3)
PROTOCOLS = st.lists(st.tuples(TEXT, BLOB), max_size=3).map(tuple)
CLASSIC_MEMBER = st.builds(
    ClassicMemberValue, TEXT, OPTIONAL, TEXT, TEXT, INT32, INT32, subscription=BLOB, assignment=BLOB
)
EXPIRING = st.builds(
    CommittedOffset,
    INT64,
    st.just(-1),
    TEXT,
    INT64,
    expire_ms=st.integers(0, 2**63 - 1),
    topic_id=st.just(records.NO_ID),
    origin=st.just(b""),
)
LASTING = st.builds(
    CommittedOffset,
    INT64,
    INT32,
    TEXT,
    INT64,
    expire_ms=st.just(-1),
    topic_id=st.just(records.NO_ID) | ID,
    origin=st.just(b""),
)
ORIGINATED = st.builds(
    CommittedOffset,
    INT64,
    INT32,
    TEXT,
    INT64,
    expire_ms=st.just(-1),
    topic_id=ID.filter(lambda topic_id: topic_id != records.NO_ID),
    origin=st.binary(min_size=records.ORIGIN_SIZE, max_size=records.ORIGIN_SIZE),
)
FORMS = {
    records.OFFSET: Form(records.read_offset_value, records.offset_value, EXPIRING | LASTING | ORIGINATED),
    records.CLASSIC: Form(
        records.read_classic_value,
        records.classic_value,
        st.builds(
            ClassicValue,
            TEXT,
            INT32,
            OPTIONAL,
            OPTIONAL,
            INT64,
            members=st.lists(CLASSIC_MEMBER, max_size=3).map(tuple),
        ),
    ),
    records.CONSUMER: Form(
        records.read_consumer_value,
        lambda value: records.consumer_value(*value),
        st.builds(ConsumerValue, INT32, INT64),
    ),
    records.MEMBER: Form(
        records.read_member_value,
        records.member_value,
        st.builds(
            MemberValue,
            OPTIONAL,
            OPTIONAL,
            TEXT,
            TEXT,
            TEXTS,
            OPTIONAL,
            INT32,
            assignor=OPTIONAL,
            classic=st.none() | st.builds(ClassicProtocols, INT32, PROTOCOLS),
        ),
    ),
    records.TARGET: Form(
        records.read_target_value,
        lambda value: records.target_value(*value),
        st.builds(TargetValue, INT32, INT64),
    ),
    records.TARGET_MEMBER: Form(
        records.read_target_member_value,
        records.target_member_value,
        st.dictionaries(ID, st.lists(INT32, max_size=4).map(tuple), max_size=3),
    ),
    records.CURRENT: Form(
        records.read_current_value,
        records.current_value,
        st.builds(CurrentValue, INT32, INT32, st.integers(0, 2), OWNED, OWNED),
    ),
    records.PATTERN: Form(
        records.read_pattern_value, records.pattern_value, st.builds(PatternValue, TEXTS, INT64, INT64)
    ),
}
ANY_FORM = st.sampled_from([*FORMS.values()])
ANY_SEEN = st.sampled_from(SEEN)
each_seen = pytest.mark.parametrize("seen", SEEN, ids=[seen.what for seen in SEEN])


def bytes_of(seen: Seen) -> tuple[bytes, bytes]:
    return bytes.fromhex(seen.key), bytes.fromhex(seen.value)


def form_of(seen: Seen) -> Form:
    return FORMS[records.read_key(bytes.fromhex(seen.key)).kind]


def read(what: str) -> Any:
    (seen,) = (seen for seen in SEEN if seen.what == what)
    return form_of(seen).read(bytes.fromhex(seen.value))


def written_key(key: records.Key) -> bytes:
    if key.kind == records.OFFSET:
        return records.offset_key(key.group_id, key.name, key.partition)
    if key.kind in (records.MEMBER, records.TARGET_MEMBER, records.CURRENT, records.PATTERN):
        return records.member_key(key.kind, key.group_id, key.name)
    return records.group_key(key.kind, key.group_id)


@each_seen
def test_what_kafka_wrote_is_read_and_written_again_to_the_same_bytes(seen: Seen) -> None:
    key, value = bytes_of(seen)
    form = form_of(seen)
    assert written_key(records.read_key(key)) == key
    assert form.write(form.read(value)) == value


def test_every_kind_of_record_was_seen() -> None:
    assert {records.read_key(bytes.fromhex(seen.key)).kind for seen in SEEN} == {*FORMS}


def test_kafka_s_offsets_are_understood() -> None:
    kept = read("an offset with metadata")
    assert (kept.offset, kept.leader_epoch, kept.expire_ms) == (4, -1, -1)
    assert kept.metadata == "kept by héron\0"  # as confluent-kafka sends it
    assert len(kept.topic_id) == 16 and kept.topic_id != records.NO_ID
    assert read("an offset without metadata").metadata == ""
    expiring = read("an offset with a time to expire")
    assert (expiring.offset, expiring.metadata) == (5, "e")
    assert expiring.expire_ms - expiring.commit_ms == 24 * 60 * 60 * 1000


def test_kafka_s_classic_groups_are_understood() -> None:
    assert read("an empty classic group")[:4] == ("", 0, None, None)
    group = read("a classic group with a static member")
    (member,) = group.members
    assert (group.protocol_type, group.generation, group.protocol_name) == ("consumer", 1, "range")
    assert (group.leader_id, member.instance_id, member.client_id) == (member.member_id, "i-1", "two")
    assert (member.client_host, member.session_timeout_ms) == ("/127.0.0.1", 45_000)
    assert member.rebalance_timeout_ms == 300_000 and b"rec5-t" in member.assignment
    assert read("a classic group that has lost its members").members == ()


def test_kafka_s_consumer_groups_are_understood() -> None:
    group = read("a consumer group")
    assert group.epoch == 2 and group.metadata_hash != 0
    assert read("a consumer group without topics") == ConsumerValue(3, 0)
    member = read("a member")
    assert (member.client_id, member.topics, member.classic) == ("three", ("rec5-t",), None)
    named = read("a static member with a pattern and an assignor")
    assert (named.instance_id, named.topics, named.pattern, named.assignor) == (
        "i-2",
        (),
        "(^rec5-.*)",
        "range",
    )
    classic = read("a member that speaks the classic protocol").classic
    assert classic.session_timeout_ms == 45_000
    assert [name for name, _ in classic.protocols] == ["range", "roundrobin"]


def test_kafka_s_assignments_are_understood() -> None:
    assert read("a target").epoch == 2 and read("a target").assigned_ms > 0
    assert read("a target of a group just upgraded") == TargetValue(1, 0)
    ((topic_id, partitions),) = read("a member's part in the target").items()
    assert partitions == (0, 1)
    assert read("a member with partitions") == CurrentValue(2, 0, 0, {topic_id: {0: 2, 1: 2}}, {})
    assert read("a member without partitions") == CurrentValue(1, 0, 0, {}, {})
    assert read("a static member that left for a while")[:3] == (-2, 1, 0)
    assert read("a pattern").topics == ("rec5-t",)


@given(ANY_FORM, st.data())
def test_what_is_written_is_read(form: Form, data: st.DataObject) -> None:
    value = data.draw(form.any_value)
    assert form.read(form.write(value)) == value


@given(st.sampled_from([*FORMS]), TEXT, TEXT, INT32)
def test_a_key_that_is_written_is_read(kind: int, group_id: str, name: str, partition: int) -> None:
    key = records.Key(kind, group_id, name, partition)
    found = records.read_key(written_key(key))
    assert written_key(found) == written_key(key) and found[:2] == key[:2]
    if kind == records.OFFSET:
        assert found == key


@each_seen
def test_a_record_that_ends_early_is_corrupt(seen: Seen) -> None:
    key, value = bytes_of(seen)
    form = form_of(seen)
    for size in range(len(key)):
        with pytest.raises(CorruptBatch):
            records.read_key(key[:size])
    for size in range(len(value)):
        with pytest.raises(CorruptBatch):
            form.read(value[:size])


@pytest.mark.parametrize("kind", [*FORMS])
@pytest.mark.parametrize("version", [-1, 5, 0x7FFF])
def test_a_version_that_nobody_knows_is_corrupt(kind: int, version: int) -> None:
    with pytest.raises(CorruptBatch, match="version"):
        FORMS[kind].read(version.to_bytes(2, "big", signed=True) + bytes(40))


@given(ANY_SEEN, st.data())
def test_changed_bytes_are_read_or_corrupt(seen: Seen, data: st.DataObject) -> None:
    key, value = bytes_of(seen)
    for read_it, content in ((records.read_key, bytearray(key)), (form_of(seen).read, bytearray(value))):
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        try:
            read_it(bytes(content))
        except CorruptBatch:
            pass


@given(ANY_FORM, st.integers(0, 4), st.binary(max_size=80))
def test_any_bytes_are_read_or_corrupt(form: Form, version: int, content: bytes) -> None:
    try:
        form.read(version.to_bytes(2, "big") + content)
    except CorruptBatch:
        pass


@pytest.mark.parametrize("kind", [records.CONSUMER, records.TARGET])
def test_a_number_of_the_wrong_size_is_corrupt(kind: int) -> None:
    with pytest.raises(CorruptBatch, match="8 bytes"):
        FORMS[kind].read(bytes.fromhex("00000000000201000400000001"))


def test_a_topic_id_of_the_wrong_size_is_corrupt() -> None:
    value = bytes.fromhex("00040000000000000001ffffffff0100000000000000010100020102")
    with pytest.raises(CorruptBatch, match="16 bytes"):
        records.read_offset_value(value)


def test_partitions_without_as_many_epochs_are_corrupt() -> None:
    owned = "02" + "ab" * 16 + "0300000000000000010100050200000002"
    with pytest.raises(CorruptBatch, match="2 partitions with 1 epochs"):
        records.read_current_value(bytes.fromhex("0000000000020000000100" + owned + "0100"))


def test_older_versions_of_kafka_s_records_are_read() -> None:
    old = bytes.fromhex("0000000000000000000700016d0000000000000009")
    assert records.read_offset_value(old) == CommittedOffset(7, -1, "m", 9, -1, records.NO_ID)
    member = "000161000162000163000027100000000000000000"
    group = records.read_classic_value(bytes.fromhex("000000017000000003ffffffff00000001" + member))
    assert group.members == (ClassicMemberValue("a", None, "b", "c", 10_000, 10_000, b"", b""),)


def test_the_letters_of_kafka_s_ids_are_kept() -> None:
    """Member ids are base64, with characters that names of topics do not have."""
    key = next(bytes.fromhex(seen.key) for seen in SEEN if seen.what == "a member")
    assert {*records.read_key(key).name} <= {*string.ascii_letters, *string.digits, *"+/-_"}
