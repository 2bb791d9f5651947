"""A leader that may have been replaced without knowing: what it says of offsets beyond its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_topics import assign
from tests.wire.harness import FETCH, Harness, batch_of
from tests.wire.requests import fetch, fetch_values, produce
from tidelog.base.limits import FOLLOWER_SILENT_MS_MAX
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts
from tidelog.protocol.errors import ErrorCode

BEYOND, NOT_LEADER = ErrorCode.offset_out_of_range, ErrorCode.not_leader_or_follower


class Follower:
    """Broker 2, which fetches in a session as followers do."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._session = (0, 0)

    def ask(self, **options: Any) -> None:
        session_id, epoch = self._session
        topics: dict[str, list[tuple[int, int]]] = {} if epoch else {"t": [(0, 1)]}
        named: dict[str, Any] = {
            "session_id": session_id,
            "session_epoch": epoch,
            "replica_id": 2,
            "leader_epoch": 1,
        }
        answer = self._harness.ask(FETCH, 16, **fetch_values(self._harness, 16, topics, **named, **options))
        assert answer.error_code == 0
        self._session = (answer.session_id or session_id, epoch + 1)

    def stay(self) -> None:
        """For long enough to be believed."""
        for _ in range(3):
            self.ask()
            self._harness.advance(FOLLOWER_SILENT_MS_MAX // 2)
        self.ask()


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Broker 1 leads a partition of one record; broker 2 is in sync."""
    harness = Harness(tmp_path)
    harness.create_topic("t")
    assert produce(harness, 9, "t", batch_of()).error_code == 0
    harness.broker.image.brokers[2] = BrokerFacts(2, "127.0.0.1", 9093, "", 1)
    harness.broker.image.broker_epochs[2] = BrokerEpoch(1, 1)
    assign(harness, 0, 1, 1, 2, isr=(1, 2))
    return harness


def told(harness: Harness, offset: int) -> ErrorCode:
    """What a consumer is told that says nothing of an epoch."""
    code: ErrorCode = fetch(harness, 11, "t", offset).error_code
    return code


def test_a_leader_whom_all_in_sync_follow_says_that_an_offset_is_beyond_its_end(harness: Harness) -> None:
    Follower(harness).stay()
    assert (told(harness, 1), told(harness, 2)) == (ErrorCode.none, BEYOND)


def test_a_leader_that_hears_of_no_follower_sends_the_reader_to_look_for_another_one(
    harness: Harness,
) -> None:
    follower = Follower(harness)
    assert told(harness, 2) == NOT_LEADER
    follower.stay()
    harness.advance(FOLLOWER_SILENT_MS_MAX + 1)
    assert (told(harness, 1), told(harness, 2)) == (ErrorCode.none, NOT_LEADER)
    follower.ask()  # what it had sent long ago, and is found when the process goes on
    assert told(harness, 2) == NOT_LEADER
    follower.stay()
    assert told(harness, 2) == BEYOND


def test_a_leader_that_is_asked_for_other_partitions_only_may_be_replaced_in_this_one(
    harness: Harness,
) -> None:
    follower = Follower(harness)
    follower.stay()
    follower.ask(forgotten={"t": [0]})
    assert told(harness, 2) == NOT_LEADER


def test_a_leader_that_is_alone_in_sync_cannot_have_been_replaced(harness: Harness) -> None:
    assign(harness, 0, 1, 1, 2, isr=(1,))
    assert told(harness, 2) == BEYOND


def test_what_is_before_the_beginning_is_out_of_range_for_any_leader(harness: Harness) -> None:
    partition = harness.partition("t")
    partition.trim(1)
    assert told(harness, 0) == BEYOND
