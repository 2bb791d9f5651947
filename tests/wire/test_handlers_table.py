"""What happens to a frame before its handler has it, and what every answer has in common."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from struct import Struct

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.group_requests import OFFSET_COMMIT, commit_values, serve_groups
from tests.wire.harness import (
    API_VERSIONS,
    FETCH,
    METADATA,
    Harness,
    decode_answer,
    frame_head,
    new_client,
    request_frame,
)
from tests.wire.requests import fetch_values, metadata_values
from tests.wire.samples import sample_frames
from tests.wire.test_handlers_group_offsets import committed, plain
from tests.wire.transaction_requests import WRITE_MARKERS, serve_transactions
from tidelog.broker.clients import Client
from tidelog.broker.clock import Clock
from tidelog.handlers.table import HANDLERS
from tidelog.protocol import apis
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.errors import MalformedRequest

HEADER = Struct(">hhih")
THROTTLED_MS = 1_234


def test_every_api_of_the_table_has_a_handler_of_its_name() -> None:
    assert tuple(HANDLERS) == APIS
    named = [
        handler.__name__.removeprefix("handle_").title().replace("_", "") for handler in HANDLERS.values()
    ]
    assert named == [api.name for api in APIS]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_version_that_is_not_served_closes_the_connection(harness: Harness, api: Api) -> None:
    if api is apis.API_VERSIONS:
        return
    for version in (api.oldest_version - 1, api.newest_version + 1, -(2**15), 2**15 - 1):
        with pytest.raises(MalformedRequest):
            harness.send_frame(HEADER.pack(api.key, version, 1, -1) + bytes(50))


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


def test_the_header_of_a_flexible_request_may_carry_tags(harness: Harness) -> None:
    head = frame_head(METADATA, 12, 5)[:-1] + b"\1\x63\3abc"
    body = request_frame(METADATA, 12, 5, **metadata_values(12, []))[len(frame_head(METADATA, 12, 5)) :]
    harness.send_frame(head + body)
    assert len(harness.answers()) == 1


# The gate.


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_client_that_has_not_authenticated_reaches_no_handler(harness: Harness, api: Api) -> None:
    harness.client.principal = None
    counts = list(harness.broker.served_counts)
    with pytest.raises(MalformedRequest, match="before authentication"):
        harness.send_frame(HEADER.pack(api.key, api.newest_version, 1, -1) + bytes(50))
    assert harness.broker.served_counts == counts and harness.answers() == []


def test_a_repeated_commit_does_not_get_round_the_gate(coordinator: Harness) -> None:
    assert plain(coordinator, 9, {"t": [(0, 1)]}) == [[ErrorCode.none]]
    assert coordinator.client.repeated is not None
    coordinator.client.principal = None
    with pytest.raises(MalformedRequest, match="before authentication"):
        plain(coordinator, 9, {"t": [(0, 2)]})
    coordinator.client = new_client()
    assert committed(coordinator, 0)[0][0] == 1


# The throttle time.


@pytest.fixture
def sampled(tmp_path: Path) -> Harness:
    harness = Harness(
        tmp_path,
        auto_create_topics_enable="false",
        offsets_topic_num_partitions="2",
        transaction_state_log_num_partitions="2",
    )
    serve_groups(harness)
    serve_transactions(harness)
    harness.create_topic("t", partitions=2)
    return harness


def mute(client: Client, throttle_time_ms: int) -> None:
    """By a clock that stands still: all of it is left however long an answer takes."""
    client.mute(Clock(), throttle_time_ms)


def test_every_answer_says_the_throttle_time_of_its_client(sampled: Harness) -> None:
    frames = list(sample_frames(sampled))
    sampled.holds_store = True  # an answer that waits for the store is made at its deadline
    told: set[int] = set()
    for frame in frames:
        api_key, version = HEADER.unpack_from(frame)[:2]
        sampled.client = new_client()
        mute(sampled.client, THROTTLED_MS)
        sampled.send_frame(frame)
        answers = sampled.answers()
        if not answers:
            sampled.advance(5 * 60 * 1_000)
            answers = sampled.answers()
        answer = decode_answer(api_key, version, answers[0], 1)
        if hasattr(answer, "throttle_time"):  # the oldest versions have no room for it
            assert answer.throttle_time == timedelta(milliseconds=THROTTLED_MS), (api_key, version)
            told.add(api_key)
    assert told == {api.key for api in APIS} - {WRITE_MARKERS}  # no version of it has room for it


def test_an_answer_that_waited_says_the_newest_throttle_time(sampled: Harness) -> None:
    sampled.send(FETCH, 12, **fetch_values(sampled, 12, {"t": [(0, 0)]}, max_wait_ms=500))
    assert sampled.answers() == []
    mute(sampled.client, THROTTLED_MS)
    sampled.advance(500)
    assert sampled.answer(FETCH, 12).throttle_time == timedelta(milliseconds=THROTTLED_MS)


def test_a_repeated_commit_says_the_throttle_time_too(coordinator: Harness) -> None:
    for throttle_time_ms in (0, 0, 7, 0):
        coordinator.client.muted_until_ms = 0
        mute(coordinator.client, throttle_time_ms)
        values = commit_values(coordinator, 9, {"t": [(0, 1)]}, metadata=None)
        answer = coordinator.ask(OFFSET_COMMIT, 9, **values)
        assert answer.throttle_time == timedelta(milliseconds=throttle_time_ms)
        assert coordinator.client.repeated is not None
