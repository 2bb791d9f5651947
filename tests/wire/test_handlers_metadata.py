"""Metadata, in every version, as kio reads the answers."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    METADATA,
    Harness,
    decode_answer,
    other_connection,
    parts,
    request_frame,
)
from tests.wire.requests import NOBODY, metadata_values
from tidelog.handlers import metadata
from tidelog.handlers.table import dispatch

METADATA_VERSIONS = pytest.mark.parametrize("version", range(14))


@METADATA_VERSIONS
def test_metadata_tells_brokers_and_topics(harness: Harness, version: int) -> None:
    topic_id = harness.create_topic("there", partitions=3)
    answer = harness.ask(METADATA, version, **metadata_values(version, ["there", "absent"]))
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    there, absent = answer.topics
    assert (there.error_code, there.name) == (0, "there")
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in there.partitions] == [
        (index, 1, (1,)) for index in range(3)
    ]
    assert getattr(there, "topic_id", UUID(bytes=topic_id)).bytes == topic_id
    # Versions below 4 cannot forbid creation: the topic was made, and told of.
    expected = ErrorCode.none if version < 4 else ErrorCode.unknown_topic_or_partition
    assert (absent.name, absent.error_code) == ("absent", expected)
    if version >= 2:
        assert answer.cluster_id == harness.broker.image.cluster_id


@METADATA_VERSIONS
def test_metadata_of_all_topics(harness: Harness, version: int) -> None:
    for name in ("a", "b"):
        harness.create_topic(name)
    everything: list[str] | None = [] if version == 0 else None
    answer = harness.ask(METADATA, version, **metadata_values(version, everything))
    assert sorted(topic.name for topic in answer.topics) == ["a", "b"]
    if version > 0:
        none = harness.ask(METADATA, version, **metadata_values(version, []))
        assert none.topics == ()


@METADATA_VERSIONS
def test_metadata_creates_what_is_missing_when_both_sides_allow_it(harness: Harness, version: int) -> None:
    values = metadata_values(version, ["new", "new", "not a name", "", "x" * 250, ".."], may_create=True)
    answer = harness.ask(METADATA, version, **values)
    errors = [topic.error_code for topic in answer.topics]
    assert errors == [0] + 4 * [ErrorCode.invalid_topic_exception]
    assert len(answer.topics[0].partitions) == 1
    assert list(harness.broker.image.topics) == ["new"]


@METADATA_VERSIONS
def test_metadata_creates_nothing_when_the_broker_forbids_it(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path / "other", auto_create_topics_enable="false")
    answer = harness.ask(METADATA, version, **metadata_values(version, ["new"], may_create=True))
    assert answer.topics[0].error_code == ErrorCode.unknown_topic_or_partition
    assert harness.broker.image.topics == {}


@METADATA_VERSIONS
def test_a_topic_asked_for_many_times_is_told_of_once(harness: Harness, version: int) -> None:
    harness.create_topic("there", partitions=50)
    harness.send(METADATA, version, **metadata_values(version, ["there"] * 50_000))
    (frame,) = harness.answers()
    assert len(frame) < 10_000


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id(harness: Harness, version: int) -> None:
    topic_id = harness.create_topic("there")
    part = parts(METADATA, version)
    ids = [UUID(bytes=topic_id), NOBODY]
    topics = tuple(part.MetadataRequestTopic(topic_id=uuid, name=None) for uuid in ids)
    answer = harness.ask(METADATA, version, **metadata_values(version, None) | {"topics": topics})
    there, nobody = answer.topics
    assert (there.error_code, there.name, there.topic_id.bytes) == (0, "there", topic_id)
    assert (nobody.error_code, nobody.topic_id) == (ErrorCode.unknown_topic_id, NOBODY)


def test_metadata_waits_for_the_store_and_answers_late_if_it_is_slow(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(METADATA, 12, **metadata_values(12, ["new"], may_create=True))
    assert harness.answers() == []
    harness.advance(5_000)
    assert harness.answer(METADATA, 12).topics[0].error_code == ErrorCode.unknown_topic_or_partition
    harness.release_store()
    assert harness.answers() == []
    answer = harness.ask(METADATA, 12, **metadata_values(12, ["new"]))
    assert answer.topics[0].error_code == 0


def test_two_clients_that_create_the_same_topic_both_hear_of_it(harness: Harness) -> None:
    harness.holds_store = True
    values = metadata_values(12, ["new"], may_create=True)
    harness.send(METADATA, 12, **values)
    with other_connection(harness) as other:
        harness.send(METADATA, 12, **values)
        harness.release_store()
        assert len(other.output) == 1
        assert harness.answer(METADATA, 12).topics[0].error_code == 0
    (frame,) = harness.answers()
    assert b"new" in frame


def test_asking_for_a_name_that_clashes_creates_nothing(harness: Harness) -> None:
    harness.create_topic("a.b")
    answer = harness.ask(METADATA, 13, **metadata_values(13, ["a_b"], may_create=True))
    assert answer.topics[0].error_code == ErrorCode.unknown_topic_or_partition
    assert "a_b" not in harness.broker.image.topics


@pytest.mark.parametrize("version", [10, 11])
def test_ids_cannot_be_asked_for_before_version_12(harness: Harness, version: int) -> None:
    topic_id = UUID(bytes=harness.create_topic("t"))
    part = parts(METADATA, version)
    topics = (part.MetadataRequestTopic(name=None, topic_id=topic_id),)
    answer = harness.ask(METADATA, version, **metadata_values(version, []) | {"topics": topics})
    assert (answer.brokers, answer.controller_id) == ((), -1)
    (row,) = answer.topics
    assert (row.name, row.topic_id, row.error_code) == ("", topic_id, ErrorCode.invalid_request)


@pytest.mark.parametrize("version", range(8, 14))
def test_whoever_asks_hears_that_everything_is_allowed(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    answer = harness.ask(METADATA, version, **metadata_values(version, ["t"]) | asked)
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    if version <= 10:
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


def test_many_topics_are_described_in_pieces(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them others have their turn; the answer is what it is in one piece."""
    names = [f"topic-{number:02}" for number in range(20)]
    for name in names:
        harness.create_topic(name, partitions=3)
    whole = harness.ask(METADATA, 12, **metadata_values(12, None))
    monkeypatch.setattr(metadata, "METADATA_AT_ONCE_MAX", 8)  # two topics with their partitions
    asked = request_frame(METADATA, 12, 7, **metadata_values(12, None))
    dispatch(harness.broker, harness.client, memoryview(asked))
    room, turn_count = harness.broker.waiting, 0
    while room.count:
        assert harness.answers() == []
        assert room.wake_next()
        turn_count += 1
    (frame,) = harness.answers()
    assert decode_answer(METADATA, 12, frame, 7) == whole
    assert turn_count == 9


def test_a_topic_that_goes_while_others_are_described_does_no_harm(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "METADATA_AT_ONCE_MAX", 1)
    for name in ("first", "second", "third"):
        harness.create_topic(name)
    asked = request_frame(METADATA, 12, 7, **metadata_values(12, None))
    dispatch(harness.broker, harness.client, memoryview(asked))
    harness.broker.image.topics.pop("third")
    harness.broker.waiting.wake()
    (frame,) = harness.answers()
    topics = decode_answer(METADATA, 12, frame, 7).topics
    assert {topic.name for topic in topics} == {"first", "second", "third"}
