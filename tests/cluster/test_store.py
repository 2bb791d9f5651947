"""The words for what came of a request to the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.harness import CREATE_TOPICS, Harness, parts, seconds
from tidelog.cluster.store import Done, Outcome, Refused, Unknown, reason_of

INCREMENTAL_ALTER_CONFIGS = 44
TOPIC, SET = 2, 0


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Unknown("the store does not answer"), "the store does not answer"),
        (Refused(2, "BadVersionError"), "BadVersionError"),
        (Done(), "the store answered Done"),
    ],
)
def test_the_reason_is_told_without_the_value_that_carries_it(outcome: Outcome, words: str) -> None:
    assert reason_of(outcome) == words


def test_a_client_hears_the_reason_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t")
    monkeypatch.setattr(harness.store, "perform", lambda action: Unknown("away"))
    part = parts(CREATE_TOPICS, 7)
    topic = part.CreatableTopic(name="u", num_partitions=1, replication_factor=-1, assignments=(), configs=())
    made = harness.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=seconds(1), validate_only=False)
    part = parts(INCREMENTAL_ALTER_CONFIGS, 1)
    entry = part.AlterableConfig(name="retention.ms", config_operation=SET, value="5")
    resource = part.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(entry,))
    altered = harness.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
    told = [made.topics[0].error_message, altered.responses[0].error_message]
    assert told == ["The store has not confirmed the change: the store does not answer"] * 2
