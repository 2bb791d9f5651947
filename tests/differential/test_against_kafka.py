"""The same request to Apache Kafka 4.3.1 and to Tidelog: the answers are the same, field by field.

All tests are in one file, because they share two brokers whose state must stay alike.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.accepted import ACCEPTED
from tests.differential.case import Case
from tests.differential.generated import requests
from tests.differential.hostile import READING, damaged_frames, hostile_frames
from tests.differential.pair import Pair
from tests.differential.scenarios import SCENARIOS
from tests.differential.sides import ANSWER_SECONDS_MAX
from tests.soak import Tally, is_soak, record


def api_name(api_key: int) -> str:
    return SCENARIOS[api_key].__name__


EACH_API = pytest.mark.parametrize("api_key", SCENARIOS, ids=api_name)
EXAMPLES, SOAK_EXAMPLES = 25, 1_000
UNANSWERED, SILENCE_SECONDS = "null for records", 2.0  # the one frame that Kafka leaves without an answer
GENERATE = settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],  # the brokers' state moves on: nothing can be tried again
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def versions_of(pair: Pair, api_key: int) -> range:
    versions = pair.served_by_both().get(api_key)
    if versions is None:
        pytest.skip("not served by both")
    return versions


def test_every_api_that_both_serve_has_a_scenario(pair: Pair) -> None:
    assert sorted(pair.served_by_both().keys() - SCENARIOS.keys()) == []


@EACH_API
def test_scenarios_are_answered_as_by_kafka(pair: Pair, api_key: int) -> None:
    for version in versions_of(pair, api_key):
        SCENARIOS[api_key](Case(pair, api_key, version))
    pair.verdict()


def test_hostile_frames_end_as_with_kafka(pair: Pair) -> None:
    for frame in hostile_frames(pair.served_by_both()):
        pair.reconnect()
        for side in (pair.kafka, pair.tidelog):
            side.send(frame.data)
            if not frame.is_whole:
                side.end_sending()
        patience = SILENCE_SECONDS if frame.what == UNANSWERED else ANSWER_SECONDS_MAX
        replies = (pair.kafka.receive(patience), pair.tidelog.receive())
        pair.compare(frame.what, frame.api_key, frame.version, replies, frame.data[:100].hex())
    pair.reconnect()
    pair.verdict()


@pytest.mark.parametrize("api_key", READING, ids=api_name)
def test_damaged_requests_end_as_with_kafka(pair: Pair, api_key: int, drawn_seed: int) -> None:
    versions = versions_of(pair, api_key)
    drawn = st.sampled_from(versions).flatmap(
        lambda version: st.tuples(st.just(version), damaged_frames(api_key, version))
    )

    @seed(drawn_seed)
    @GENERATE
    @given(drawn)
    def ask(asked: tuple[int, bytes]) -> None:
        version, frame = asked
        replies = pair.exchange(frame)
        pair.compare("damaged", api_key, version, replies, frame.hex())

    ask()
    pair.verdict()


@EACH_API
def test_generated_requests_are_answered_as_by_kafka(pair: Pair, api_key: int, drawn_seed: int) -> None:
    ask_generated(pair, api_key, versions_of(pair, api_key), drawn_seed, EXAMPLES)
    pair.verdict()


def ask_generated(pair: Pair, api_key: int, versions: range, drawn_seed: int, count: int) -> None:
    drawn = st.sampled_from(versions).flatmap(
        lambda version: st.tuples(st.just(version), requests(api_key, version))
    )

    @seed(drawn_seed)
    @settings(GENERATE, max_examples=count)
    @given(drawn)
    def ask(asked: tuple[int, Any]) -> None:
        version, entity = asked
        pair.ask("generated", api_key, version, entity)

    ask()


@pytest.mark.soak
def test_many_generated_requests_are_answered_as_by_kafka(pair: Pair, drawn_seed: int) -> None:
    """Of every API in turn; in a soak, thousands."""
    outcome = "failed"
    before = pair.asked_count
    try:
        for api_key, versions in pair.served_by_both().items():
            ask_generated(pair, api_key, versions, drawn_seed + 1, SOAK_EXAMPLES if is_soak() else 2)
        pair.verdict()
        outcome = f"passed: {pair.asked_count - before:,} requests"
    finally:
        record("generated requests beside Kafka's", Tally(outcome, 0, 0, 0, 0, drawn_seed))


def test_every_accepted_difference_is_still_there(pair: Pair, request: pytest.FixtureRequest) -> None:
    """Comes last: a row that nothing needs any more would hide what is yet to come."""
    if request.config.getoption("keyword") or request.config.getoption("markexpr"):
        pytest.skip("only the whole suite can tell")
    unused = [row.reason for place, row in enumerate(ACCEPTED) if not pair.used[place]]
    assert unused == []
