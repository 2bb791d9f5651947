"""What a broker says of its replicas in the store: what they have lost, where they end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_replicas import given_up
from tests.wire.harness import Harness
from tidelog.broker.data_plane import statements
from tidelog.broker.data_plane.statements import stamp_of
from tidelog.cluster.facts import LOST_STAMP, NOBODY, OFFLINE_STAMP, TORN_STAMP, BrokerEpoch, BrokerFacts
from tidelog.cluster.store import Action, Multi, Node, Outcome, Write
from tidelog.log.scan import Damage
from tidelog.log.trust import Kept
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import Partition


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    made.create_topic("t", 1)
    return made


def join(harness: Harness, node_id: int = 7) -> Partition:
    """Another broker is a member too."""
    image, partition = harness.broker.image, harness.partition("t")
    image.brokers[node_id] = BrokerFacts(node_id, "h", 1, "", 1)
    image.broker_epochs[node_id] = BrokerEpoch(1, 1)
    facts = image.topics["t"].partitions[0]
    image.topics["t"].partitions[0] = replace(
        facts, in_sync_replicas=[1, node_id], replicas=[1, node_id], members=facts.members | {node_id: 1}
    )
    harness.holds_store = True
    return partition


def stated(harness: Harness) -> list[dict[str, Any]]:
    harness.advance(100)
    found = []
    for request in given_up(harness):
        assert isinstance(request.action, Multi)
        found += [json.loads(each.data) for each in request.action.operations if isinstance(each, Write)]
    return found


def test_a_leader_that_cannot_read_its_log_lets_a_member_lead_that_can(harness: Harness) -> None:
    partition = join(harness)
    assert harness.broker.lookups.damaged.note(partition, CorruptBatch("damage")) == ErrorCode.corrupt_message
    (facts,) = stated(harness)
    assert (facts["leader"], facts["leader_epoch"], facts["isr"]) == (NOBODY, 1, [1, 7])
    assert facts["members"] == {"1": LOST_STAMP, "7": 1}


def test_a_leader_that_is_alone_with_its_damage_leads_on(harness: Harness) -> None:
    harness.holds_store = True
    harness.broker.lookups.damaged.note(harness.partition("t"), CorruptBatch("damage"))
    assert stated(harness) == []


def kept_after(harness: Harness, position: int, problem: str) -> Kept:
    """What is said of the log once that damage was met by a leader of a log that is whole."""
    partition = harness.partition("t")
    partition.kept = Kept.WHOLE
    harness.broker.lookups.damaged.note(partition, Damage("0.log", position, problem))
    return partition.kept


def test_a_leader_gives_up_once_for_a_place(harness: Harness) -> None:
    """Were the others no better, leaders would circle for ever."""
    join(harness)
    assert kept_after(harness, 61, "the checksum does not match") is Kept.LOST
    assert kept_after(harness, 61, "not the batch that was there") is Kept.WHOLE
    assert kept_after(harness, 122, "the checksum does not match") is Kept.LOST


def test_damage_that_nobody_could_take_over_is_given_up_when_somebody_can(harness: Harness) -> None:
    damage = Damage("0.log", 61, "the checksum does not match")
    harness.broker.lookups.damaged.note(harness.partition("t"), damage)
    partition = join(harness)
    harness.broker.lookups.damaged.note(partition, damage)
    assert len(stated(harness)) == 1


def test_every_statement_checks_that_no_later_process_has_begun(harness: Harness) -> None:
    partition = join(harness)
    harness.broker.disks.fail(partition.directory, OSError(5, "Input/output error"))
    harness.advance(100)
    (request,) = given_up(harness)
    assert isinstance(request.action, Multi)
    assert harness.broker.standing.check(harness.broker.image) in request.action.operations


LEVELS, OF_ALL = "/features", "/config/brokers/default"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            (LEVELS, {"epoch": 0, "levels": {"tidelog.version": 1}}),
            {"epoch": 1, "levels": {"tidelog.version": 2}},
        ),
        ((OF_ALL, {"unclean.recovery.strategy": "None"}), {"unclean.recovery.strategy": "Balanced"}),
    ],
)
def test_a_replica_that_was_not_asked_says_where_it_ends_when_it_is(
    harness: Harness, before: tuple[str, dict[str, Any]], after: dict[str, Any]
) -> None:
    path, fields = before
    join(harness)
    take(harness, path, fields)
    image = harness.broker.image
    topic, own = image.topics["t"], image.broker_epochs[1]
    image.broker_epochs |= {1: own._replace(trusted_since=own.epoch + 1), 7: BrokerEpoch(2, 2)}
    facts = topic.partitions[0]
    topic.partitions[0] = replace(facts.without_leader(), version=facts.version + 1)
    harness.broker.hosting.follow([topic.topic_id])
    assert stated(harness) == []
    take(harness, path, after)
    (said,) = stated(harness)
    assert (said["leader"], said["answers"]) == (NOBODY, {"1": [own.epoch, 0, 0]})


def take(harness: Harness, path: str, fields: dict[str, Any]) -> None:
    """As if another broker had written that."""
    image = harness.broker.image
    node = Node(json.dumps(fields).encode(), image.versions.get(path, -1) + 1)
    harness.broker.desk.take((path,), {path: node})


@pytest.mark.parametrize(
    ("kept", "known", "stamp"),
    [
        (Kept.WHOLE, 5, 5),
        (Kept.UNFLUSHED, 5, 5),  # that is said once for all logs, by the registration
        (Kept.TORN, 5, TORN_STAMP),
        (Kept.LOST, 5, LOST_STAMP),
        (Kept.TORN, LOST_STAMP, LOST_STAMP),
        (Kept.WHOLE, LOST_STAMP, LOST_STAMP),  # a leader ends that, not another start
        (Kept.WHOLE, OFFLINE_STAMP - 5, 5),  # a directory that could not be opened, and can again
        (Kept.LOST, OFFLINE_STAMP - 5, LOST_STAMP),
    ],
)
def test_what_an_opening_found_is_said_and_nothing_is_taken_back(
    harness: Harness, kept: Kept, known: int, stamp: int
) -> None:
    partition = harness.partition("t")
    partition.kept = kept
    assert stamp_of(partition, known) == stamp


@pytest.mark.parametrize(("is_lost", "stamp"), [(True, LOST_STAMP), (False, OFFLINE_STAMP - 5)])
def test_a_disk_that_is_only_full_has_lost_nothing(harness: Harness, is_lost: bool, stamp: int) -> None:
    partition = harness.partition("t")
    partition.directory.fail("No space left on device", is_lost)
    partition.become_offline()
    assert stamp_of(partition, 5) == stamp
    assert stamp_of(partition, stamp) == stamp


@pytest.mark.parametrize(
    ("kept", "of_directory", "known", "stamp"),
    [
        (Kept.TORN, Kept.WHOLE, 5, TORN_STAMP),  # the opening failed after the cut
        (Kept.LOST, Kept.WHOLE, 5, LOST_STAMP),
        (Kept.TORN, Kept.WHOLE, LOST_STAMP, LOST_STAMP),
        (Kept.TORN, Kept.WHOLE, OFFLINE_STAMP - 5, TORN_STAMP),
        (Kept.WHOLE, Kept.LOST, 5, LOST_STAMP),  # an older copy, and full as well
        (Kept.WHOLE, Kept.UNFLUSHED, 5, OFFLINE_STAMP - 5),  # that is said once for all logs
    ],
)
def test_a_log_that_cannot_be_opened_keeps_what_is_known_of_its_losses(
    harness: Harness, kept: Kept, of_directory: Kept, known: int, stamp: int
) -> None:
    partition = harness.partition("t")
    partition.directory.fail("No space left on device", is_lost=False)
    partition.become_offline()
    partition.kept, partition.directory.kept = kept, of_directory
    assert stamp_of(partition, known) == stamp


def test_what_is_lost_while_another_statement_is_under_way_is_stated_after_it(harness: Harness) -> None:
    partition, harness.holds_store = harness.partition("t"), True
    partition.kept = Kept.TORN
    harness.broker.statements.note(partition)
    harness.advance(100)
    partition.kept = Kept.LOST
    harness.broker.statements.note(partition)
    harness.release_store()
    harness.advance(100)
    assert harness.broker.image.topics["t"].partitions[0].members == {1: LOST_STAMP}


def test_what_is_stated_is_not_stated_again_because_somebody_asked_meanwhile(harness: Harness) -> None:
    """Else the replica would be lost once more when it is in sync again."""
    partition, harness.holds_store = harness.partition("t"), True
    partition.kept = Kept.LOST
    harness.broker.statements.note(partition)
    harness.advance(100)
    harness.broker.statements.note(partition)
    harness.release_store()
    harness.advance(100)
    assert partition.kept is Kept.WHOLE


def test_a_failed_disk_gives_up_its_partitions_many_in_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "STATED_TOGETHER", 2)
    harness = Harness(tmp_path)
    harness.create_topic("t", 5)
    written: list[int] = []
    perform = harness.store.perform

    def count(action: Action) -> Outcome:
        if isinstance(action, Multi):
            written.append(sum(isinstance(each, Write) for each in action.operations))
        return perform(action)

    monkeypatch.setattr(harness.store, "perform", count)
    harness.broker.disks.fail(harness.partition("t").directory, OSError(5, "Input/output error"))
    for _ in range(6):
        harness.advance(100)
    assert written == [2, 2, 2, 2, 2], "of each the loss, and that its log ends nowhere"
    assert {each.leader for each in harness.broker.image.topics["t"].partitions.values()} == {NOBODY}
