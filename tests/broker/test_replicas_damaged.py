"""A replica that cannot read its log, once another broker leads: damaged segments are fetched again (R17)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.test_statements import stated
from tests.log.making import make_batch
from tests.wire.harness import Harness
from tidelog.cluster.facts import LOST_STAMP, BrokerEpoch, PartitionFacts
from tidelog.log.format.names import LOG_SUFFIX, file_name
from tidelog.log.scan import Damage
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

SEGMENTS = [0, 20, 40]
DAMAGE = Damage(file_name(20, LOG_SUFFIX), 61, "magic 7 is not 2")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A leader of three segments, of two batches each, that has met damage in the second one."""
    made = Harness(tmp_path)
    made.create_topic("t", 1, segment_bytes="1024")
    partition = made.partition("t")
    for _ in range(6):
        partition.append_own(make_batch(10, value=bytes(30)), made.broker.clock.now_ms)
    assert partition.log.bases == SEGMENTS
    for node_id in (7, 8):
        made.broker.image.broker_epochs[node_id] = BrokerEpoch(1, 1)
    made.broker.lookups.damaged.note(partition, DAMAGE)
    return made


def led_by_another(partition: Partition) -> PartitionFacts:
    """What the store has once the leader has resigned and another member leads."""
    facts = partition.facts
    assert facts is not None
    return replace(
        facts,
        leader=7,
        leader_epoch=facts.leader_epoch + 2,
        in_sync_replicas=[1, 7, 8],
        replicas=[1, 7, 8],
        members={1: LOST_STAMP, 7: 1, 8: 1},
        version=facts.version + 2,
    )


def assign(harness: Harness, facts: PartitionFacts) -> None:
    harness.broker.image.topics["t"].partitions[0] = facts
    harness.broker.replicas.assign(harness.partition("t"), facts)


def test_a_leader_that_resigned_for_damage_fetches_its_segment_again(harness: Harness) -> None:
    partition, harness.holds_checkpoints = harness.partition("t"), True
    facts = led_by_another(partition)
    assign(harness, facts)
    harness.settle()
    assert partition.log.end_offset == 60, "the checkpoint comes first"
    assert harness.broker.replicas.cuts.is_pending(partition), "nothing is fetched before the cut"
    harness.write_checkpoints()
    assert (partition.log.end_offset, partition.log.bases) == (20, [0])
    assert not harness.broker.replicas.cuts.is_pending(partition)
    assign(harness, replace(facts, leader=8, leader_epoch=facts.leader_epoch + 1, version=facts.version + 1))
    harness.settle()
    assert partition.log.end_offset == 20, "once"


@pytest.mark.parametrize(
    "members",
    [
        {1: 1, 7: 1, 8: 1},  # it counts
        {1: LOST_STAMP, 7: 1, 8: LOST_STAMP},  # the leader alone would have all records
    ],
)
def test_a_damaged_log_stays_as_long_as_its_records_may_be_needed(
    harness: Harness, members: dict[int, int]
) -> None:
    partition = harness.partition("t")
    members = members | {1: members[1] if members[1] < 0 else harness.broker.standing.epoch}
    assign(harness, replace(led_by_another(partition), members=members))
    harness.settle()
    assert partition.log.end_offset == 60 and not harness.broker.replicas.cuts.is_pending(partition)


def test_a_follower_that_has_fetched_under_an_epoch_cuts_nothing_under_it(harness: Harness) -> None:
    """A fetch on its way could have the leader take it into the ISR."""
    partition = harness.partition("t")
    facts = led_by_another(partition)
    assign(harness, replace(facts, members=facts.members | {1: harness.broker.standing.epoch}))
    assign(harness, replace(facts, version=facts.version + 1))
    harness.settle()
    assert partition.log.end_offset == 60


def follow(harness: Harness, replicas: list[int]) -> Partition:
    """Broker 7 leads, and all replicas count."""
    partition = harness.partition("t")
    partition.log.segments[1].is_damaged = False
    members = dict.fromkeys(replicas, 1) | {1: harness.broker.standing.epoch}
    facts = replace(
        led_by_another(partition), replicas=replicas, in_sync_replicas=replicas, members=members, version=0
    )
    assign(harness, replace(facts, version=1))
    harness.broker.image.topics["t"].partitions[0] = facts  # what the store has
    harness.holds_store = True
    return partition


def test_a_follower_that_meets_damage_states_so_under_a_new_epoch(harness: Harness) -> None:
    """Its leader may have a fetch of it on the way, by which it would be in sync at once."""
    partition = follow(harness, [1, 7, 8])
    assert harness.broker.lookups.damaged.note(partition, DAMAGE) == ErrorCode.kafka_storage_error
    epoch = partition.leader_epoch
    (facts,) = stated(harness)
    assert (facts["leader"], facts["leader_epoch"]) == (7, epoch + 1)
    assert facts["members"] == {"1": LOST_STAMP, "7": 1, "8": 1}


@pytest.mark.parametrize("stamp", [LOST_STAMP, None])
def test_a_follower_that_does_not_count_states_nothing(harness: Harness, stamp: int | None) -> None:
    """It would state it once it has fetched everything, and counts."""
    partition = follow(harness, [1, 7, 8])
    topic = harness.broker.image.topics["t"]
    facts = topic.partitions[0]
    if stamp is None:
        topic.partitions[0] = replace(facts, in_sync_replicas=[7, 8], members={7: 1, 8: 1})
    else:
        topic.partitions[0] = replace(facts, members=facts.members | {1: stamp})
    harness.broker.lookups.damaged.note(partition, DAMAGE)
    assert stated(harness) == []
    topic.partitions[0] = replace(facts, version=facts.version + 1)
    harness.broker.statements.note(partition)
    assert stated(harness) == []


def test_a_follower_of_two_replicas_keeps_its_damaged_log(harness: Harness) -> None:
    partition = follow(harness, [1, 7])
    harness.broker.lookups.damaged.note(partition, DAMAGE)
    assert stated(harness) == []


def test_damage_that_retention_has_removed_costs_nothing(harness: Harness) -> None:
    partition = harness.partition("t")
    partition.log.advance_start(40)
    partition.log.remove_segments(2)
    assert partition.log.bases == [40]
    assign(harness, led_by_another(partition))
    harness.settle()
    assert partition.log.end_offset == 60
