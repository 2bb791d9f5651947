"""ApiVersions, Metadata, FindCoordinator and InitProducerId, in every version, as kio reads the answers."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    API_VERSIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    Harness,
    decode_answer,
    frame_head,
    other_connection,
    parts,
    request_frame,
    seconds,
)
from tests.wire.requests import NOBODY, metadata_values
from tidelog.handlers import cluster
from tidelog.handlers.table import APIS, TELEMETRY_APIS, dispatch
from tidelog.protocol.errors import MalformedRequest

METADATA_VERSIONS = pytest.mark.parametrize("version", range(14))
HEADER = Struct(">hhih")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_the_table(harness: Harness, version: int) -> None:
    answer = harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")
    assert answer.error_code == 0
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    table = {api.key: (api.oldest_version if api.key else 0, api.newest_version) for api in APIS}
    assert told == {key: versions for key, versions in table.items() if key not in TELEMETRY_APIS}
    harness.broker.image.client_metrics["all"] = {"metrics": "*"}
    answer = harness.ask(API_VERSIONS, version, client_software_name="x", client_software_version="1")
    assert {row.api_key for row in answer.api_keys} == {*table}, "somebody wants the metrics of clients now"


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(harness: Harness, version: int) -> None:
    harness.send_frame(HEADER.pack(API_VERSIONS, version, 77, -1) + b"whatever comes behind")
    (frame,) = harness.answers()
    answer = decode_answer(API_VERSIONS, 0, frame, 77)
    assert answer.error_code == ErrorCode.unsupported_version
    told = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert told == [(API_VERSIONS, 0, 4)]


@pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.key))
def test_a_version_that_is_not_served_closes_the_connection(harness: Harness, api: object) -> None:
    key, oldest, newest = api[0], api[1], api[2]  # type: ignore[index]
    if key == API_VERSIONS:
        return
    for version in (oldest - 1, newest + 1, -(2**15), 2**15 - 1):
        with pytest.raises(MalformedRequest):
            harness.send_frame(HEADER.pack(key, version, 1, -1) + bytes(50))


@pytest.mark.parametrize("key", [-1, 4, 7, 17, 36, 1_000, 2**15 - 1])
def test_an_unknown_api_closes_the_connection(harness: Harness, key: int) -> None:
    with pytest.raises(MalformedRequest):
        harness.send_frame(HEADER.pack(key, 0, 1, -1) + bytes(50))


def test_a_client_id_that_is_longer_than_the_request_is_refused(harness: Harness) -> None:
    with pytest.raises(MalformedRequest):
        harness.send_frame(HEADER.pack(API_VERSIONS, 0, 1, 500) + b"short")


def test_a_request_that_ends_in_the_middle_is_refused(harness: Harness) -> None:
    frame = request_frame(METADATA, 12, 1, **metadata_values(12, ["topic"]))
    for end in range(len(frame_head(METADATA, 12, 1)), len(frame) - 1):
        with pytest.raises(MalformedRequest):
            harness.send_frame(frame[:end])
    assert harness.answers() == []


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


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_have_no_coordinator(harness: Harness, version: int) -> None:
    answer = harness.ask(
        FIND_COORDINATOR, version, key="writer", key_type=1, coordinator_keys=("writer", "other")
    )
    found = answer.coordinators if version >= 4 else [answer]
    assert [row.error_code for row in found] == (2 if version >= 4 else 1) * [
        ErrorCode.transactional_id_authorization_failed
    ]
    assert all("transactions: not supported" in row.error_message for row in found)
    assert all((row.node_id, row.host, row.port) == (-1, "", -1) for row in found)


def init_values(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1
) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": seconds(60),
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_once(harness: Harness, version: int) -> None:
    answers = [harness.ask(INIT_PRODUCER_ID, version, **init_values()) for _ in range(1_500)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    ids = [answer.producer_id for answer in answers]
    assert len({*ids}) == len(ids)
    harness.start()
    assert harness.ask(INIT_PRODUCER_ID, version, **init_values()).producer_id not in ids


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_is_refused_for_good(harness: Harness, version: int) -> None:
    answer = harness.ask(INIT_PRODUCER_ID, version, **init_values("transaction"))
    assert answer.error_code == ErrorCode.transactional_id_authorization_failed
    empty = harness.ask(INIT_PRODUCER_ID, version, **init_values(""))
    assert empty.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(3, 6))
def test_half_a_producer_identity_is_refused(harness: Harness, version: int) -> None:
    for values in (init_values(None, 5, -1), init_values(None, -1, 5)):
        assert harness.ask(INIT_PRODUCER_ID, version, **values).error_code == ErrorCode.invalid_request


def test_the_header_of_a_flexible_request_may_carry_tags(harness: Harness) -> None:
    head = frame_head(METADATA, 12, 5)[:-1] + b"\1\x63\3abc"
    body = request_frame(METADATA, 12, 5, **metadata_values(12, []))[len(frame_head(METADATA, 12, 5)) :]
    harness.send_frame(head + body)
    assert len(harness.answers()) == 1


@pytest.mark.parametrize("version", [3, 4])
def test_a_client_tells_what_software_it_is(harness: Harness, version: int) -> None:
    assert harness.connection.software == ("unknown", "unknown")
    values = {"client_software_name": "librdkafka", "client_software_version": "2.3.0-rc1"}
    assert harness.ask(API_VERSIONS, version, **values).error_code == 0
    assert harness.connection.software == ("librdkafka", "2.3.0-rc1")
    values = {"client_software_name": "n" * 30_000, "client_software_version": "1"}
    assert harness.ask(API_VERSIONS, version, **values).error_code == 0
    assert len(harness.connection.software[0]) == 128


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"),
    [("", "1"), ("x", ""), ("-x", "1"), ("x-", "1"), ("a b", "1"), ("é", "1"), ("x", "1."), ("x\n", "1")],
)
def test_a_software_name_that_is_none_is_refused(
    harness: Harness, version: int, name: str, software_version: str
) -> None:
    values = {"client_software_name": name, "client_software_version": software_version}
    answer = harness.ask(API_VERSIONS, version, **values)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.invalid_request, ())
    assert (answer.finalized_features_epoch, answer.supported_features) == (-1, ())
    assert harness.connection.software == ("unknown", "unknown")


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


@pytest.mark.parametrize("key_type", [-1, 2, 3])
def test_a_coordinator_of_no_kind_is_an_invalid_request(harness: Harness, key_type: int) -> None:
    answer = harness.ask(FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=("group",))
    assert answer.coordinators[0].error_code == ErrorCode.invalid_request


def test_many_topics_are_described_in_pieces(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them others have their turn; the answer is what it is in one piece."""
    names = [f"topic-{number:02}" for number in range(20)]
    for name in names:
        harness.create_topic(name, partitions=3)
    whole = harness.ask(METADATA, 12, **metadata_values(12, None))
    monkeypatch.setattr(cluster, "METADATA_AT_ONCE_MAX", 8)  # two topics with their partitions
    asked = request_frame(METADATA, 12, 7, **metadata_values(12, None))
    dispatch(harness.broker, harness.connection, memoryview(asked))
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
    monkeypatch.setattr(cluster, "METADATA_AT_ONCE_MAX", 1)
    for name in ("first", "second", "third"):
        harness.create_topic(name)
    asked = request_frame(METADATA, 12, 7, **metadata_values(12, None))
    dispatch(harness.broker, harness.connection, memoryview(asked))
    harness.broker.image.topics.pop("third")
    harness.broker.waiting.wake()
    (frame,) = harness.answers()
    topics = decode_answer(METADATA, 12, frame, 7).topics
    assert {topic.name for topic in topics} == {"first", "second", "third"}
