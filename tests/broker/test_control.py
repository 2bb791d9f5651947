"""What the controller sees to by itself, and what it writes for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.differential.entities import milliseconds
from tests.wire.harness import Harness, parts
from tidelog.base.limits import ELECTION_WAIT_MS, STORE_CHANGE_ATTEMPTS_MAX
from tidelog.broker.control_plane import control
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.facts import NOBODY, BrokerEpoch, BrokerFacts, PartitionChange
from tidelog.cluster.store import NOWHERE, Delete, Outcome, Refused, StoreReply
from tidelog.handlers import partition_changes
from tidelog.handlers.elections import PREFERRED, UNCLEAN
from tidelog.protocol.errors import ErrorCode

ELECT_LEADERS = 43
PARTITIONS = 5


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return led_by_another(tmp_path)


def led_by_another(folder: Path, **settings: str) -> Harness:
    """A broker that is in sync with 7, which leads though it is not the first."""
    harness = Harness(folder, **settings)
    harness.create_topic("t", PARTITIONS)
    harness.advance(100)
    image = harness.broker.image
    image.brokers[7], image.broker_epochs[7] = BrokerFacts(7, "h", 1, "", 1), BrokerEpoch(1, 1)
    topic = image.topics["t"]
    for index, facts in topic.partitions.items():
        members = {1: 1, 7: 1}
        led = replace(facts, leader=7, in_sync_replicas=[1, 7], replicas=[1, 7], members=members)
        topic.partitions[index] = led
    return harness


def leaders(harness: Harness) -> Counter[int]:
    return Counter(facts.leader for facts in harness.broker.image.topics["t"].partitions.values())


def test_all_preferred_leaders_are_restored_though_some_at_a_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ELECTIONS_TOGETHER", 2)
    assert leaders(harness) == {7: PARTITIONS}
    harness.advance(300_000)
    assert leaders(harness) == {7: PARTITIONS - 2, 1: 2}
    for _ in range(2):
        harness.advance(100)
    assert leaders(harness) == {1: PARTITIONS}


def test_preferred_leaders_stay_away_if_nobody_is_to_restore_them(tmp_path: Path) -> None:
    harness = led_by_another(tmp_path, auto_leader_rebalance_enable="false")
    harness.advance(300_000)
    harness.advance(100)
    assert leaders(harness) == {7: PARTITIONS}


def test_preferred_leaders_that_the_store_refused_are_restored_after_that(harness: Harness) -> None:
    harness.holds_store = True
    harness.advance(300_000)
    request = harness.held_requests.pop()
    assert not harness.held_requests
    harness.broker.on_store_event(StoreReply(request.ticket, Refused(1, "BadVersionError")))
    harness.release_store()
    assert leaders(harness) == {7: PARTITIONS}
    harness.advance(100)
    assert leaders(harness) == {1: PARTITIONS}


@pytest.mark.parametrize("refusals", [0, 1, STORE_CHANGE_ATTEMPTS_MAX])
def test_any_number_of_leaders_is_elected_when_it_is_asked_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(partition_changes, "ELECTIONS_TOGETHER", 2)
    part = parts(ELECT_LEADERS, 2)
    asked = (part.TopicPartitions(topic="t", partitions=tuple(range(PARTITIONS))),)
    written = harness.broker.control.write_partitions
    sizes: list[int] = []

    def write(wanted: list[PartitionChange], then: OnOutcome) -> None:
        sizes.append(len(wanted))
        if len(sizes) > refusals:
            written(wanted, then)
        else:
            then(Refused(0, "BadVersionError"))

    monkeypatch.setattr(harness.broker.control, "write_partitions", write)
    values = {"election_type": PREFERRED, "topic_partitions": asked}
    answer = harness.ask(ELECT_LEADERS, 2, timeout=milliseconds(20_000), **values)
    codes = Counter(row.error_code for row in answer.replica_election_results[0].partition_result)
    refused = 2 if refusals == STORE_CHANGE_ATTEMPTS_MAX else 0
    expected = Counter({ErrorCode.none: PARTITIONS - refused}) + Counter({ErrorCode.not_controller: refused})
    assert codes == expected
    assert leaders(harness) == Counter({1: PARTITIONS - refused}) + Counter({7: refused})
    assert max(sizes) == 2


def test_a_leader_that_is_asked_for_many_times_is_elected_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_changes, "ELECTIONS_TOGETHER", 2)
    asked = (parts(ELECT_LEADERS, 2).TopicPartitions(topic="t", partitions=(0,) * 5),)
    values = {"election_type": PREFERRED, "topic_partitions": asked}
    answer = harness.ask(ELECT_LEADERS, 2, timeout=milliseconds(20_000), **values)
    rows = answer.replica_election_results[0].partition_result
    assert {row.error_code for row in rows} == {ErrorCode.none}
    assert harness.broker.control.election_count == 1


def test_preferred_leaders_that_the_store_did_not_confirm_in_time_are_reported_late(
    harness: Harness,
) -> None:
    topic = harness.broker.image.topics["t"]
    topic.partitions[0] = replace(topic.partitions[0], leader=1)  # done already, by the same request before
    told = ask_of_a_silent_store(harness, PREFERRED)
    late = ErrorCode.request_timed_out
    assert told == {0: ErrorCode.election_not_needed} | dict.fromkeys(range(1, PARTITIONS), late)
    assert leaders(harness) == {7: PARTITIONS - 1, 1: 1}


def test_a_preferred_leader_that_is_seen_by_the_deadline_is_reported_as_elected(harness: Harness) -> None:
    def lead(index: int) -> None:
        topic = harness.broker.image.topics["t"]
        topic.partitions[index] = replace(topic.partitions[index], leader=1)

    told = ask_of_a_silent_store(harness, PREFERRED, lambda: lead(3))
    late = dict.fromkeys(range(PARTITIONS), ErrorCode.request_timed_out)
    assert told == late | {3: ErrorCode.none}


def test_an_unclean_election_is_over_once_anybody_leads(harness: Harness) -> None:
    topic = harness.broker.image.topics["t"]
    topic.partitions[0] = replace(topic.partitions[0], leader=NOBODY)

    def lead() -> None:
        topic.partitions[0] = replace(topic.partitions[0], leader=7)

    not_needed = dict.fromkeys(range(PARTITIONS), ErrorCode.election_not_needed)
    assert ask_of_a_silent_store(harness, UNCLEAN, lead) == not_needed | {0: ErrorCode.none}


def test_an_unclean_election_is_needed_where_the_leader_has_just_lost_its_log(harness: Harness) -> None:
    topic = harness.broker.image.topics["t"]
    topic.partitions[0] = replace(topic.partitions[0], members={1: 1, 7: -2})
    not_needed = dict.fromkeys(range(PARTITIONS), ErrorCode.election_not_needed)
    assert ask_of_a_silent_store(harness, UNCLEAN) == not_needed | {0: ErrorCode.request_timed_out}


def ask_of_a_silent_store(
    harness: Harness, kind: int, meanwhile: Callable[[], None] = lambda: None
) -> dict[int, ErrorCode]:
    """What is answered of each partition when the time for the store is over."""
    harness.holds_store = True
    asked = (parts(ELECT_LEADERS, 2).TopicPartitions(topic="t", partitions=tuple(range(PARTITIONS))),)
    values = {"election_type": kind, "topic_partitions": asked}
    harness.send(ELECT_LEADERS, 2, timeout=milliseconds(20_000), **values)
    meanwhile()
    harness.advance(ELECTION_WAIT_MS)
    answer = harness.answer(ELECT_LEADERS, 2)
    return {row.partition_id: row.error_code for row in answer.replica_election_results[0].partition_result}


def test_what_is_too_much_for_the_store_is_told_as_that(harness: Harness) -> None:
    told: list[Outcome] = []
    harness.holds_store = True
    harness.broker.control.write([Delete("/topics/x")], told.append)
    harness.settle()
    (request,) = harness.held_requests
    harness.broker.on_store_event(StoreReply(request.ticket, Refused(NOWHERE, "ask for less at a time")))
    assert told == [Refused(NOWHERE, "ask for less at a time")]
