"""Requests that are the controller's, while there is none or while the store is away: answered in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import CREATE_TOPICS, DELETE_TOPICS, Harness, decode_answer, parts, seconds
from tidelog.base.limits import CONTROLLER_WAIT_MS, FORWARD_WAIT_MS
from tidelog.broker.control_plane import forwarding
from tidelog.cluster.facts import NOBODY, encode_fields
from tidelog.cluster.paths import CONTROLLER, CONTROLLER_EPOCH
from tidelog.cluster.store import Create

TIMEOUT_MS = 2_000
TICK_MS = 100


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A broker of a cluster whose store does not answer any more, and that sees no controller."""
    harness = Harness(tmp_path)
    harness.create_topic("old")
    image = harness.broker.image
    image.apply([Create(CONTROLLER_EPOCH, encode_fields(epoch=1))])
    image.controller_id = NOBODY
    harness.broker.kernel.is_sharing = True
    harness.holds_store = True
    return harness


def become_controller(harness: Harness) -> None:
    harness.broker.image.apply([Create(CONTROLLER, encode_fields(id=1, epoch=1))])


def ask_for_topic(harness: Harness, timeout_ms: int = TIMEOUT_MS) -> None:
    topic = parts(CREATE_TOPICS, 7).CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    timeout = seconds(timeout_ms / 1_000)
    harness.send(CREATE_TOPICS, 7, topics=(topic,), timeout=timeout, validate_only=False)


def answer_after(harness: Harness, api_key: int, version: int) -> tuple[int, Any]:
    """How long it took, in steps of a tick, and what came."""
    begun_ms = harness.broker.clock.uptime_ms
    while harness.broker.clock.uptime_ms - begun_ms <= 2 * FORWARD_WAIT_MS:
        harness.advance(TICK_MS)
        frames = harness.answers()
        if frames:
            (frame,) = frames
            answer = decode_answer(api_key, version, frame, int.from_bytes(frame[4:8], "big"))
            return harness.broker.clock.uptime_ms - begun_ms, answer
    raise AssertionError("no answer came")


def test_the_controller_answers_when_the_request_s_time_is_over(harness: Harness) -> None:
    become_controller(harness)
    ask_for_topic(harness)
    took_ms, answer = answer_after(harness, CREATE_TOPICS, 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.request_timed_out]
    assert took_ms == TIMEOUT_MS


@pytest.mark.parametrize(
    ("timeout_ms", "expected_ms"),
    [
        (TIMEOUT_MS, TIMEOUT_MS + CONTROLLER_WAIT_MS),
        (0, CONTROLLER_WAIT_MS),
        (10 * FORWARD_WAIT_MS, FORWARD_WAIT_MS),
    ],
)
def test_without_a_controller_the_same_is_said_a_little_later(
    harness: Harness, timeout_ms: int, expected_ms: int
) -> None:
    ask_for_topic(harness, timeout_ms)
    took_ms, answer = answer_after(harness, CREATE_TOPICS, 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.request_timed_out]
    assert took_ms == expected_ms


def test_a_broker_that_became_the_controller_meanwhile_answers_too(harness: Harness) -> None:
    ask_for_topic(harness)
    become_controller(harness)
    took_ms, answer = answer_after(harness, CREATE_TOPICS, 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.request_timed_out]
    assert took_ms <= TIMEOUT_MS + CONTROLLER_WAIT_MS
    harness.advance(2 * FORWARD_WAIT_MS)
    assert harness.answers() == []


def test_a_broker_that_becomes_the_controller_carries_out_what_waits_for_one(harness: Harness) -> None:
    ask_for_topic(harness, FORWARD_WAIT_MS)
    harness.send(DELETE_TOPICS, 5, topic_names=("old",), timeout=seconds(30))
    harness.advance(TICK_MS)
    assert harness.answers() == []
    become_controller(harness)
    harness.store.put(CONTROLLER_EPOCH, encode_fields(epoch=1))
    harness.release_store()
    harness.advance(TICK_MS)
    asked = (CREATE_TOPICS, 7), (DELETE_TOPICS, 5)
    created, deleted = (
        decode_answer(*api, frame, int.from_bytes(frame[4:8], "big"))
        for api, frame in zip(asked, harness.answers(), strict=True)
    )
    assert [topic.error_code for topic in created.topics] == [ErrorCode.none], created
    assert [topic.error_code for topic in deleted.responses] == [ErrorCode.none]
    assert "new" in harness.broker.image.topics and "old" not in harness.broker.image.topics


def test_what_a_client_that_is_gone_had_asked_for_is_not_carried_out(harness: Harness) -> None:
    ask_for_topic(harness, FORWARD_WAIT_MS)
    harness.broker.waiting.drop(harness.connection)
    become_controller(harness)
    harness.store.put(CONTROLLER_EPOCH, encode_fields(epoch=1))
    harness.release_store()
    harness.advance(TICK_MS)
    assert "new" not in harness.broker.image.topics


def test_a_deletion_is_answered_as_well(harness: Harness) -> None:
    harness.send(DELETE_TOPICS, 5, topic_names=("old",), timeout=seconds(1))
    _, answer = answer_after(harness, DELETE_TOPICS, 5)
    assert [topic.error_code for topic in answer.responses] == [ErrorCode.request_timed_out]


def test_a_request_whose_time_was_over_is_not_carried_out_later(harness: Harness) -> None:
    ask_for_topic(harness)
    answer_after(harness, CREATE_TOPICS, 7)
    become_controller(harness)
    harness.holds_store = False
    harness.advance(2 * FORWARD_WAIT_MS)
    assert "new" not in harness.broker.image.topics


def test_what_is_forwarded_has_a_bound(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a client is told to try again at once; what was answered counts no more."""
    monkeypatch.setattr(forwarding, "FORWARDED_BYTES_MAX", 100)
    for _ in range(5):
        ask_for_topic(harness)
    assert 0 < harness.broker.waiting.count < 5
    codes: list[int] = []
    while len(codes) < 5:
        harness.advance(TICK_MS)
        for frame in harness.answers():
            answer = decode_answer(CREATE_TOPICS, 7, frame, int.from_bytes(frame[4:8], "big"))
            codes.append(answer.topics[0].error_code)
        assert harness.broker.clock.uptime_ms < 10 * FORWARD_WAIT_MS
    assert codes == [ErrorCode.request_timed_out] * 5
    kept = harness.broker.forwarding
    assert kept._unsent_size + kept.asking.sent_size == 0
