"""What a broker says of its replicas in the store: what they have lost, where they end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_replicas import given_up
from tests.wire.harness import Harness
from tidelog.broker.statements import stamp_of
from tidelog.cluster.image import LOST_STAMP, NOBODY, OFFLINE_STAMP, TORN_STAMP, BrokerEpoch, BrokerFacts
from tidelog.cluster.store import Multi, Write
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
    assert harness.broker.damaged.note(partition, CorruptBatch("damage")) == ErrorCode.corrupt_message
    (facts,) = stated(harness)
    assert (facts["leader"], facts["leader_epoch"], facts["isr"]) == (NOBODY, 1, [1, 7])
    assert facts["members"] == {"1": LOST_STAMP, "7": 1}


def test_a_leader_that_is_alone_with_its_damage_leads_on(harness: Harness) -> None:
    harness.holds_store = True
    harness.broker.damaged.note(harness.partition("t"), CorruptBatch("damage"))
    assert stated(harness) == []


def test_every_statement_checks_that_no_later_process_has_begun(harness: Harness) -> None:
    partition = join(harness)
    harness.broker.fail_directory(partition.directory, OSError(5, "Input/output error"))
    harness.advance(100)
    (request,) = given_up(harness)
    assert isinstance(request.action, Multi)
    assert harness.broker.registration.check in request.action.operations


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
