"""CreateTopics and DeleteTopics in every version, and what may not be created or deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    Harness,
    batch_of,
    decode_answer,
    other_connection,
    parts,
    seconds,
)
from tests.wire.requests import NOBODY, fetch_values, produce, produce_values
from tests.wire.test_handlers_partitions import CREATE_PARTITIONS, grow_values
from tidelog.base.limits import PIPELINED_REQUESTS_MAX
from tidelog.cluster.store import Action, Delete, Multi, Outcome, Refused
from tidelog.protocol import produce as produce_codec
from tidelog.protocol import wire
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.messages import encode_response

TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
CREATE_VERSIONS = pytest.mark.parametrize("version", range(2, 8))
CREATE_SHAPES = pytest.mark.parametrize("version", [2, 5, 7])
DELETE_VERSIONS = pytest.mark.parametrize("version", range(1, 7))


def topic_of(version: int, name: str, **fields: Any) -> Any:
    part = parts(CREATE_TOPICS, version)
    assignments = tuple(
        part.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in fields.pop("assignments", ())
    )
    configs = tuple(
        part.CreatableTopicConfig(name=key, value=value) for key, value in fields.pop("configs", {}).items()
    )
    values = {"num_partitions": 1, "replication_factor": 1, "assignments": assignments, "configs": configs}
    return part.CreatableTopic(**{"name": name} | values | fields)


def create(harness: Harness, version: int, *topics: Any, validate_only: bool = False) -> Any:
    return harness.ask(
        CREATE_TOPICS, version, topics=topics, timeout=seconds(5), validate_only=validate_only
    ).topics


@CREATE_VERSIONS
def test_a_topic_is_created_with_its_settings(harness: Harness, version: int) -> None:
    (topic,) = create(
        harness,
        version,
        topic_of(
            version, "t", num_partitions=3, configs={"retention.ms": "1000", "cleanup.policy": "compact"}
        ),
    )
    assert (topic.name, topic.error_code, topic.error_message) == ("t", 0, None)
    facts = harness.broker.image.topics["t"]
    assert len(facts.partitions) == 3
    assert facts.config == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert harness.partition("t", 2).log.settings.retention_ms == 1_000
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        own = {row.name: row.value for row in topic.configs if row.config_source == TOPIC_SOURCE}
        assert own == facts.config
        told = {row.name: (row.value, row.config_source) for row in topic.configs}
        assert told["max.message.bytes"] == ("1048588", DEFAULT_SOURCE)
    if version >= 7:
        assert topic.topic_id.bytes == facts.topic_id


@CREATE_VERSIONS
def test_defaults_and_assignments(harness: Harness, version: int) -> None:
    topics = create(
        harness,
        version,
        topic_of(version, "default", num_partitions=-1, replication_factor=-1),
        topic_of(
            version, "assigned", num_partitions=-1, replication_factor=-1, assignments=[(1, (1,)), (0, (1,))]
        ),
    )
    assert [topic.error_code for topic in topics] == [0, 0]
    assert [len(harness.broker.image.topics[name].partitions) for name in ("default", "assigned")] == [1, 2]


REFUSED: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("there", {}, ErrorCode.topic_already_exists),
    ("", {}, ErrorCode.invalid_topic_exception),
    (".", {}, ErrorCode.invalid_topic_exception),
    ("a b", {}, ErrorCode.invalid_topic_exception),
    ("a/b", {}, ErrorCode.invalid_topic_exception),
    ("\N{SNOWMAN}", {}, ErrorCode.invalid_topic_exception),
    ("x" * 250, {}, ErrorCode.invalid_topic_exception),
    ("x" * 32_767, {}, ErrorCode.invalid_topic_exception),
    ("t", {"num_partitions": 0}, ErrorCode.invalid_partitions),
    ("t", {"num_partitions": -2}, ErrorCode.invalid_partitions),
    ("t", {"num_partitions": 10_001}, ErrorCode.policy_violation),
    ("t", {"num_partitions": 2**31 - 1}, ErrorCode.policy_violation),
    ("t", {"replication_factor": 0}, ErrorCode.invalid_replication_factor),
    ("t", {"replication_factor": 2}, ErrorCode.invalid_replication_factor),
    ("t", {"configs": {"no.such.setting": "1"}}, ErrorCode.invalid_config),
    ("t", {"configs": {"retention.ms": "soon"}}, ErrorCode.invalid_config),
    ("t", {"configs": {"retention.ms": None}}, ErrorCode.invalid_config),
    ("t", {"configs": {"cleanup.policy": None}}, ErrorCode.invalid_config),
    ("t", {"configs": {"k" * 32_767: "v"}}, ErrorCode.invalid_config),
    ("t", {"configs": {"retention.ms": "9" * 32_767}}, ErrorCode.invalid_config),
    ("t", {"assignments": [(0, (1,))]}, ErrorCode.invalid_request),
]
UNASSIGNABLE: list[list[tuple[int, tuple[int, ...]]]] = [
    [(0, (2,))],
    [(0, (1, 1))],
    [(0, ())],
    [(1, (1,))],
    [(0, (1,)), (0, (1,))],
]


@CREATE_SHAPES
@pytest.mark.parametrize(("name", "fields", "error"), REFUSED, ids=range(len(REFUSED)))
def test_what_may_not_be_created_is_refused(
    harness: Harness, version: int, name: str, fields: dict[str, Any], error: ErrorCode
) -> None:
    harness.create_topic("there")
    (topic,) = create(harness, version, topic_of(version, name, **fields))
    assert (topic.name, topic.error_code) == (name, error)
    assert topic.error_message and len(topic.error_message) <= 1_000
    assert list(harness.broker.image.topics) == ["there"]


@CREATE_SHAPES
@pytest.mark.parametrize("assignments", UNASSIGNABLE, ids=range(len(UNASSIGNABLE)))
def test_an_assignment_that_cannot_be_is_refused(harness: Harness, version: int, assignments: Any) -> None:
    asked = topic_of(version, "t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    (topic,) = create(harness, version, asked)
    assert topic.error_code == ErrorCode.invalid_replica_assignment


@CREATE_VERSIONS
def test_a_name_given_twice_is_refused_and_the_others_are_not(harness: Harness, version: int) -> None:
    topics = create(harness, version, *(topic_of(version, name) for name in ("twice", "once", "twice")))
    assert {topic.name: topic.error_code for topic in topics} == {
        "twice": ErrorCode.invalid_request,
        "once": ErrorCode.none,
    }


def test_tens_of_thousands_of_names_are_looked_at_once_each(harness: Harness) -> None:
    """Not once for each of the others: that would be minutes, and this test would run into its limit."""
    topics = create(harness, 7, *(topic_of(7, f"{n} ") for n in range(40_000)), validate_only=True)
    assert {topic.error_code for topic in topics} == {ErrorCode.invalid_topic_exception}


@CREATE_VERSIONS
def test_a_trial_creates_nothing(harness: Harness, version: int) -> None:
    (topic,) = create(harness, version, topic_of(version, "t"), validate_only=True)
    assert topic.error_code == 0
    assert harness.broker.image.topics == {}


def test_the_longest_name_can_be_created_written_and_deleted(harness: Harness) -> None:
    name = "x" * 249
    harness.create_topic(name, partitions=2)
    assert produce(harness, 9, name, batch_of()).error_code == 0
    (answer,) = delete(harness, 5, name)
    assert answer.error_code == 0
    assert len(harness.removals) == 2


def test_creation_answers_late_when_the_store_does(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(CREATE_TOPICS, 7, topics=(topic_of(7, "t"),), timeout=seconds(1), validate_only=False)
    assert harness.answers() == []
    harness.advance(1_000)
    (topic,) = harness.answer(CREATE_TOPICS, 7).topics
    assert topic.error_code == ErrorCode.request_timed_out
    harness.release_store()
    assert "t" in harness.broker.image.topics
    assert harness.answers() == []


def test_a_request_that_finds_the_waiting_room_full_does_no_harm_later(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    for _ in range(PIPELINED_REQUESTS_MAX):
        harness.send(FETCH, 12, **fetch_values(harness, 12, {"t": [(0, 0)]}, max_wait_ms=1_000))
    with pytest.raises(MalformedRequest, match="pending"):
        harness.send(CREATE_TOPICS, 7, topics=(topic_of(7, "n"),), timeout=seconds(1), validate_only=False)
    harness.release_store()
    harness.advance(1_000)
    assert len(harness.answers()) == PIPELINED_REQUESTS_MAX
    assert harness.broker.waiting.count == 0


def delete(harness: Harness, version: int, *names: str | None, ids: tuple[UUID | None, ...] = ()) -> Any:
    part = parts(DELETE_TOPICS, version)
    wanted = ids or (None,) * len(names)
    if version >= 6:
        topics = tuple(
            part.DeleteTopicState(name=name, topic_id=uuid) for name, uuid in zip(names, wanted, strict=True)
        )
        return harness.ask(DELETE_TOPICS, version, topics=topics, timeout=seconds(1)).responses
    return harness.ask(DELETE_TOPICS, version, topic_names=names, timeout=seconds(1)).responses


@DELETE_VERSIONS
def test_a_topic_is_deleted_and_can_be_made_again_empty(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    assert produce(harness, 9, "t", batch_of(3)).error_code == 0
    gone, absent = sorted(delete(harness, version, "t", "absent"), key=lambda row: -row.error_code)[::-1]
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (absent.name, absent.error_code) == ("absent", ErrorCode.unknown_topic_or_partition)
    assert produce(harness, 9, "t", batch_of()).error_code == ErrorCode.unknown_topic_or_partition
    harness.create_topic("t")
    assert produce(harness, 9, "t", batch_of()).base_offset == 0


def test_a_topic_that_grows_while_it_is_deleted_is_deleted(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = harness.create_topic("t")
    topic = harness.broker.image.topics_by_id[topic_id]
    perform = harness.store.perform

    def as_zookeeper(action: Action) -> Outcome:
        """It deletes no node that has others below it."""
        if isinstance(action, Multi) and Delete(topic.path()) in action.operations:
            doomed = {each.path for each in action.operations}
            below = [path for path in harness.store.nodes if path.startswith(f"{topic.path()}/")]
            if not doomed.issuperset(below):
                return Refused(action.operations.index(Delete(topic.path())), "NotEmptyError")
        return perform(action)

    monkeypatch.setattr(harness.store, "perform", as_zookeeper)
    harness.holds_store = True
    harness.send(CREATE_PARTITIONS, 3, **grow_values(3, ("t", 2)))
    part = parts(DELETE_TOPICS, 6)
    asked = (part.DeleteTopicState(name="t", topic_id=None),)
    with other_connection(harness):
        harness.send(DELETE_TOPICS, 6, topics=asked, timeout=seconds(1))
        harness.release_store()
        (gone,) = harness.answer(DELETE_TOPICS, 6).responses
    assert (gone.error_code, gone.error_message) == (0, None)
    assert not [path for path in harness.store.nodes if path.startswith(topic.path())]


def test_a_topic_that_another_request_deletes_first_is_told_as_that(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    part = parts(DELETE_TOPICS, 6)
    values = {"topics": (part.DeleteTopicState(name="t", topic_id=None),), "timeout": seconds(1)}
    harness.send(DELETE_TOPICS, 6, **values)
    with other_connection(harness):
        harness.send(DELETE_TOPICS, 6, **values)
        harness.release_store()
        (row,) = harness.answer(DELETE_TOPICS, 6).responses
    words = "The topic was deleted meanwhile."
    assert (row.error_code, row.error_message) == (ErrorCode.unknown_topic_or_partition, words)


def test_deletion_by_id(harness: Harness) -> None:
    topic_id = UUID(bytes=harness.create_topic("t"))
    both, nobody = delete(harness, 6, "t", None, ids=(topic_id, NOBODY))
    assert both.error_code == ErrorCode.invalid_request
    assert (nobody.error_code, nobody.topic_id) == (ErrorCode.unknown_topic_id, NOBODY)
    (gone,) = delete(harness, 6, None, ids=(topic_id,))
    assert (gone.error_code, gone.name, gone.topic_id) == (0, "t", topic_id)
    assert harness.broker.image.topics == {}


@DELETE_VERSIONS
def test_deletion_can_be_forbidden(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path / "other", delete_topic_enable="false")
    harness.create_topic("t")
    (answer,) = delete(harness, version, "t")
    assert answer.error_code == ErrorCode.topic_deletion_disabled
    assert "t" in harness.broker.image.topics


@DELETE_VERSIONS
def test_a_topic_named_twice_is_not_deleted(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    assert [row.error_code for row in delete(harness, version, "t", "t")] == [ErrorCode.invalid_request]
    assert "t" in harness.broker.image.topics


def test_a_deletion_that_names_nothing_is_refused(harness: Harness) -> None:
    (answer,) = delete(harness, 6, None)
    assert answer.error_code == ErrorCode.invalid_request


def test_partitions_are_counted_over_the_whole_request(harness: Harness) -> None:
    topics = (topic_of(7, f"t{place}", num_partitions=6_000) for place in range(2))
    first, second = create(harness, 7, *topics, validate_only=True)
    assert (first.error_code, second.error_code) == (0, ErrorCode.policy_violation)


def test_a_fetch_that_waits_hears_of_the_deletion(harness: Harness) -> None:
    harness.create_topic("t")
    harness.send(FETCH, 12, **fetch_values(harness, 12, {"t": [(0, 0)]}, max_wait_ms=10_000))
    assert harness.answers() == []
    harness.send(DELETE_TOPICS, 5, topic_names=("t",), timeout=seconds(1))
    fetched, _ = harness.answers()
    assert int.from_bytes(fetched[4:8], "big") + 1 == harness._correlation_id


def test_an_fsync_that_ends_after_the_deletion_is_harmless(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="1")
    harness.create_topic("other")
    harness.holds_flushes = True
    for _ in range(2):
        harness.send(PRODUCE, 9, **produce_values(harness, 9, {"t": [(0, batch_of())]}))
    assert harness.answers() == []
    harness.send(DELETE_TOPICS, 5, topic_names=("t",), timeout=seconds(1))
    harness.release_flushes()
    assert len(harness.answers()) == 3
    assert not harness.broker.has_failed
    assert produce(harness, 9, "other", batch_of()).error_code == 0
    harness.create_topic("t")
    assert harness.partition("t").log.end_offset == 0


def test_a_topic_that_is_given_by_name_and_by_id_is_not_deleted(harness: Harness) -> None:
    topic_id = UUID(bytes=harness.create_topic("t"))
    part = parts(DELETE_TOPICS, 6)
    states = (
        part.DeleteTopicState(name="t", topic_id=None),
        part.DeleteTopicState(name=None, topic_id=topic_id),
    )
    (row,) = harness.ask(DELETE_TOPICS, 6, topics=states, timeout=seconds(5)).responses
    assert (row.name, row.topic_id, row.error_code) == ("t", topic_id, ErrorCode.invalid_request)
    assert "t" in harness.broker.image.topics


def test_the_factor_is_checked_before_the_count(harness: Harness) -> None:
    (topic,) = create(harness, 7, topic_of(7, "t", num_partitions=0, replication_factor=0))
    assert topic.error_code == ErrorCode.invalid_replication_factor
    assert topic.configs == ()


@CREATE_VERSIONS
def test_an_answer_put_together_of_parts_is_what_kio_writes(harness: Harness, version: int) -> None:
    topics = (
        topic_of(version, "a"),
        topic_of(version, "b", num_partitions=2, configs={"retention.ms": "5"}),
        topic_of(version, "bad name"),
        topic_of(version, "c", num_partitions=130),
        topic_of(version, "d", configs={"retention.ms": "5"}),
    )
    harness.send(CREATE_TOPICS, version, topics=topics, timeout=seconds(5), validate_only=False)
    (frame,) = harness.answers()
    correlation_id = int.from_bytes(frame[4:8], "big")
    answer = decode_answer(CREATE_TOPICS, version, frame, correlation_id)
    assert {topic.name for topic in answer.topics if topic.error_code == 0} == {"a", "b", "c", "d"}
    assert encode_response(CREATE_TOPICS, version, correlation_id, answer) == frame


def test_a_deleted_topic_leaves_nothing_in_the_caches_of_its_name(harness: Harness) -> None:
    topic_id = harness.create_topic("fleeting")
    for version in (9, 13):
        produce(harness, version, "fleeting", batch_of())

    def kept() -> list[object]:
        frames = [key for by_topic in produce_codec._frames for key in by_topic]
        return [key for key in (*frames, *wire._names) if key in ("fleeting", b"fleeting", topic_id)]

    assert kept()
    delete(harness, 6, "fleeting")
    assert kept() == []
