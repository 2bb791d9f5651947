"""Following: what a leader said is carried out once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import run_job
from tests.log.making import make_batch
from tests.wire.harness import Harness
from tidelog.base.limits import FOLLOWER_AWAIT_MS_MAX
from tidelog.broker.data_plane.checkpoints import Checkpoint
from tidelog.cluster.controller import decide_topic_config
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts, PartitionFacts
from tidelog.cluster.store import Outcome, Refused, StoreReply, StoreRequest, Unknown, Write
from tidelog.protocol.batch import stamp
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import ReceivedPartition
from tidelog.replication.fetcher import Fetcher, Received
from tidelog.replication.follower import BeginAt, Cut
from tidelog.replication.partition import Partition


def test_a_cut_that_waited_is_not_carried_out_again_on_what_came_since(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1)
    replicas, partition = harness.broker.replicas, harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    partition.become_follower(PartitionFacts(2, 1, [2], [2, 1], 9))
    partition.high_watermark = 0
    fetcher = replicas.fetching.fetcher(2)
    fetcher.add(partition)
    partition.log.recovery_point = partition.log.end_offset  # so that cuts wait for a checkpoint
    for _ in range(2):  # the leader is asked again meanwhile, and says the same
        replicas.cuts.plan(fetcher, [(partition, Cut(10))])
    partition.log.recovery_point = 0
    replicas.cuts.plan(fetcher, [(partition, Cut(10))])
    harness.run_cuts()
    assert (partition.log.end_offset, replicas.cuts.count) == (10, 1)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)  # as what is replicated
    checkpoints = [effect for effect in harness.broker.outbox.effects if isinstance(effect, Checkpoint)]
    assert checkpoints
    for checkpoint in checkpoints:
        checkpoint.on_done(None)
    harness.run_cuts()
    assert (partition.log.end_offset, replicas.cuts.count) == (20, 1)


def test_a_failed_disk_is_given_up_again_until_the_store_has_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1)
    broker, partition = harness.broker, harness.broker.partitions.find("t", 0)
    assert partition is not None and partition.facts is not None
    topic = broker.image.topics["t"]
    facts = replace(partition.facts, in_sync_replicas=[broker.node_id, 7], replicas=[broker.node_id, 7])
    topic.partitions[0] = facts
    harness.holds_store = True
    broker.disks.fail(partition.directory, OSError(5, "Input/output error"))
    outcomes: list[Outcome] = [Unknown("lost"), Refused(0, "BadVersionError"), Unknown("lost")]
    for number, outcome in enumerate(outcomes):
        harness.advance(100)
        (asked,) = given_up(harness)
        if number == 0:
            broker.replicas.assign(partition, facts)  # something of the topic has changed
        harness.advance(100)
        assert not given_up(harness), "one at a time"
        broker.on_store_event(StoreReply(asked.ticket, outcome))
        harness.settle()
        (reading,) = harness.held_requests  # what became of it
        broker.on_store_event(StoreReply(reading.ticket, Unknown("lost")))
    harness.advance(100)
    assert given_up(harness)


def given_up(harness: Harness) -> list[StoreRequest]:
    held, harness.held_requests = harness.held_requests, []
    return [
        request
        for request in held
        if any(
            isinstance(each, Write) and "/topics/" in each.path
            for each in getattr(request.action, "operations", ())
        )
    ]


@pytest.mark.parametrize("leader", [1, 7])
def test_what_a_failed_disk_is_elected_for_or_in_sync_with_is_given_up(tmp_path: Path, leader: int) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1)
    broker, partition = harness.broker, harness.broker.partitions.find("t", 0)
    assert partition is not None and partition.facts is not None
    broker.disks.fail(partition.directory, OSError(5, "Input/output error"))
    harness.advance(100)
    harness.holds_store = True
    version = partition.facts.version + 1
    facts = replace(partition.facts, leader=leader, in_sync_replicas=[1, 7], replicas=[1, 7], version=version)
    broker.image.topics["t"].partitions[0] = facts
    broker.replicas.assign(partition, facts)
    harness.advance(100)
    assert given_up(harness)


def test_who_is_not_registered_begins_to_lead_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1)
    broker, partition = harness.broker, harness.broker.partitions.find("t", 0)
    assert partition is not None and partition.facts is not None
    facts = replace(partition.facts, leader_epoch=1, version=partition.facts.version + 1)
    broker.standing.is_registered = False
    broker.replicas.assign(partition, facts)
    assert partition.leader_epoch == 0, "it may be said of another broker with this number"
    same = replace(facts, leader_epoch=0)
    broker.replicas.assign(partition, same)
    assert partition.facts is same, "what it leads it goes on with"
    broker.standing.is_registered = True
    broker.replicas.assign(partition, replace(facts, version=same.version + 1))
    assert partition.leader_epoch == 1


@pytest.mark.parametrize("policy", ["delete", "compact", "compact, then delete"])
def test_a_follower_takes_a_gap_only_if_the_topic_was_ever_compacted(tmp_path: Path, policy: str) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1, cleanup_policy=policy.partition(",")[0])
    broker, partition = harness.broker, harness.partition("t")
    if "then" in policy:
        topic = broker.image.topics["t"]
        broker.desk.change(decide_topic_config(topic, {"cleanup.policy": "delete"}), lambda _: None)
        harness.settle()
        assert not partition.log.settings.is_compacted
    partition.become_follower(PartitionFacts(2, 1, [2], [2, 1], 9))
    fetcher = broker.replicas.fetching.fetcher(2)
    fetcher.add(partition)
    batch = make_batch(3)
    stamp(memoryview(batch), 0, 7, 1)
    answer = ReceivedPartition(0, 0, 0, 0)
    broker.replicas.fetching._take(fetcher, Received(partition, answer, memoryview(batch)))
    reasons = [
        event.fields["reason"] for event in broker.outbox.events if event.name == "replica batch rejected"
    ]
    if policy == "delete":
        assert partition.log.end_offset == 0 and len(reasons) == 1 and "are missing" in str(reasons[0])
    else:
        assert (partition.log.end_offset, reasons) == (10, [])


def follower_asks(harness: Harness, offset: int, last_epoch: int) -> None:
    """Broker 2 fetches from broker 1."""
    asked = FetchPartition(0, 0, offset, last_epoch, 0, 2**20)
    harness.broker.replicas.in_sync.on_fetch(harness.partition("t"), 2, 1, asked)
    harness.broker.replicas.in_sync.admit()


def lead_with_follower(harness: Harness, in_sync: list[int], **settings: str) -> Partition:
    """Broker 1 leads t, which broker 2 has a replica of."""
    harness.create_topic("t", 1, **settings)
    image, partition = harness.broker.image, harness.partition("t")
    image.brokers[2] = BrokerFacts(2, "127.0.0.1", 9093, "", 1)
    image.broker_epochs[2] = BrokerEpoch(1, 1)
    image.versions["/brokers/epochs/2"] = 0
    assert partition.facts is not None
    members = {**partition.facts.members, 2: 1}
    facts = replace(partition.facts, replicas=[1, 2], in_sync_replicas=in_sync, members=members)
    image.topics["t"].partitions[0] = facts
    partition.become_leader(1, image, replace(facts, leader_epoch=1), 0)
    return partition


def test_a_follower_that_keeps_up_joins_a_leader_that_is_alone_under_steady_writes(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = lead_with_follower(harness, [1])
    broker, harness.holds_store = harness.broker, True
    has = 0
    for _ in range(4):  # one more batch between an answer and the next fetch, every time
        partition.append_own(make_batch(), broker.clock.now_ms)
        follower_asks(harness, has, 1 if has else -1)
        has = partition.log.end_offset
    leadership = partition.leadership
    assert leadership is not None and leadership.pending is not None
    assert leadership.pending.in_sync_replicas == [1, 2]
    committed = partition.high_watermark
    partition.append_own(make_batch(), broker.clock.now_ms)
    assert partition.high_watermark == committed, "what comes now waits for the new member"


def test_a_leader_that_is_alone_waits_for_a_follower_only_for_a_while(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = lead_with_follower(harness, [1])
    broker, harness.holds_store = harness.broker, True
    for offset in (0, 1):
        partition.append_own(make_batch(), broker.clock.now_ms)
        follower_asks(harness, offset, 1 if offset else -1)
    leadership = partition.leadership
    assert leadership is not None and leadership.awaited == 2
    partition.append_own(make_batch(), broker.clock.now_ms)
    assert partition.high_watermark == 2
    harness.advance(FOLLOWER_AWAIT_MS_MAX + 100)  # and it asks no more
    assert leadership.awaited is None and partition.high_watermark == 3
    partition.append_own(make_batch(), broker.clock.now_ms)
    assert partition.high_watermark == 4


def test_what_is_written_as_isrs_are_reviewed_puts_no_follower_out_that_had_all_before(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path)
    partition, broker = lead_with_follower(harness, [1, 2]), harness.broker
    fetch = FetchRequest(2, 500, 1, 2**20, 0, 0, 0)
    fetch.topics = [("t", [FetchPartition(0, 1, 0, -1, 0, 2**20)])]
    _, session = broker.sessions.find_follower(fetch, False, 0)
    assert session is not None and partition.leadership is not None
    session.update(fetch)
    follower_asks(harness, 0, -1)
    session.settle(("t", 0), partition)
    harness.holds_store = True
    lag_max_ms = broker.settings.number("replica.lag.time.max.ms")
    for _ in range(4):
        session.used_ms = broker.clock.uptime_ms + lag_max_ms
        harness.advance(lag_max_ms)
    partition.append_own(make_batch(), broker.clock.now_ms)  # as a group does when its time has come
    broker.waiting.on_moved(partition)
    session.used_ms += lag_max_ms
    harness.advance(lag_max_ms)
    assert partition.leadership.pending is None
    harness.advance(lag_max_ms + 1)
    assert partition.leadership.pending is not None, "it has asked for nothing since"


def test_a_fetch_beyond_the_end_of_the_log_shows_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = lead_with_follower(harness, [1, 2])
    follower_asks(harness, 10**12, -1)
    partition.append_own(make_batch(), harness.broker.clock.now_ms)
    assert not partition.maybe_advance() and partition.high_watermark == 0
    follower_asks(harness, 1, 1)
    assert partition.high_watermark == 1


def following(harness: Harness) -> Partition:
    """Broker 2 leads t, which broker 1 has three segments of, flushed to the end."""
    harness.create_topic("t", 1, segment_bytes="1024")
    partition = harness.partition("t")
    for _ in range(6):
        partition.append_own(make_batch(10, value=bytes(30)), harness.broker.clock.now_ms)
    assert len(partition.log.segments) == 3
    partition.want_flush()
    harness.broker.flushing.maybe_begin(partition)
    harness.settle()
    facts = PartitionFacts(2, 1, [2], [2, 1], 9)
    harness.broker.image.topics["t"].partitions[0] = facts
    partition.become_follower(facts)
    harness.broker.replicas.fetching.fetcher(2).add(partition)
    return partition


def plan_cut(harness: Harness, partition: Partition, offset: int) -> None:
    replicas = harness.broker.replicas
    replicas.cuts.plan(replicas.fetching.fetcher(2), [(partition, Cut(offset))])
    harness.settle()


def test_segments_leave_durably_before_the_last_one_is_cut_and_nobody_waits_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path)
    partition = following(harness)
    log, harness.holds_flushes = partition.log, True
    harness.holds_checkpoints = True
    plan_cut(harness, partition, 15)
    assert log.end_offset == 60, "the checkpoint comes first"
    (checkpoint,) = harness.held_checkpoints
    checkpoint.run()
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: pytest.fail("an fsync on the loop"))
        checkpoint.on_done(None)
        harness.settle()
    assert (log.end_offset, len(log.segments)) == (20, 1) and partition.is_cutting
    (held,), harness.held_flushes = harness.held_flushes, []
    run_job(held)
    harness.settle()
    assert log.end_offset == 10 and partition.is_cutting, "then what the last segment has above"
    harness.release_flushes()
    assert not partition.is_cutting and partition.floor is None
    assert harness.broker.replicas.cuts.count == 1


def test_each_cut_has_a_turn_of_its_own(tmp_path: Path) -> None:
    """A cut walks a segment: thousands in one turn would hold the loop for seconds."""
    harness = Harness(tmp_path)
    broker, cuts = harness.broker, harness.broker.replicas.cuts
    harness.create_topic("t", 3)
    fetcher = broker.replicas.fetching.fetcher(2)
    planned: list[tuple[Partition, Cut | BeginAt]] = []
    for index in range(3):
        partition = harness.partition("t", index)
        partition.append_own(make_batch(10), broker.clock.now_ms)
        partition.become_follower(PartitionFacts(2, 1, [2], [2, 1], 9))
        partition.high_watermark = 0
        planned.append((partition, Cut(0)))
    cuts.plan(fetcher, planned)
    ends = []
    for _ in range(3):
        assert broker.has_work
        broker.work()
        ends.append([each.log.end_offset for each, _ in planned])
    assert ends == [[0, 10, 10], [0, 0, 10], [0, 0, 0]]
    harness.settle()
    assert cuts.count == 3


def test_a_cut_waits_for_a_flush_that_is_under_way(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = following(harness)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    harness.holds_flushes = True
    partition.want_flush()
    harness.broker.flushing.maybe_begin(partition)
    plan_cut(harness, partition, 60)
    assert partition.log.end_offset == 70
    harness.release_flushes()
    assert partition.log.end_offset == 60 and not partition.is_cutting
    assert partition.log.recovery_point == 60


def test_who_is_elected_while_its_log_is_cut_leads_when_that_is_durable(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = following(harness)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    harness.holds_flushes = True
    plan_cut(harness, partition, 60)
    assert partition.is_cutting
    facts = PartitionFacts(1, 2, [1], [2, 1], 10, [], {1: harness.broker.standing.epoch})
    harness.broker.image.topics["t"].partitions[0] = facts
    harness.broker.replicas.assign(partition, facts)
    assert partition.error_code == ErrorCode.not_leader_or_follower, "what was cut might come back behind"
    harness.release_flushes()
    assert partition.error_code == 0 and partition.leader_epoch == 2
    assert partition.log.end_offset == 60


def test_a_disk_that_fails_as_the_elected_begins_to_lead_goes_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a cut, in the turn of its flush: nobody else is there to notice."""
    harness = Harness(tmp_path)
    partition = following(harness)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    harness.holds_flushes = True
    plan_cut(harness, partition, 60)
    facts = PartitionFacts(1, 2, [1], [2, 1], 10, [], {1: harness.broker.standing.epoch})
    harness.broker.image.topics["t"].partitions[0] = facts

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Partition, "become_leader", fail)
    harness.release_flushes()
    assert partition.error_code == ErrorCode.kafka_storage_error and partition.directory.failure is not None


def test_a_disk_that_fails_under_a_cut_takes_its_partition_offline(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = following(harness)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    harness.holds_flushes = True
    plan_cut(harness, partition, 60)
    (held,) = harness.held_flushes
    held.on_done(OSError(5, "Input/output error"))
    assert partition.error_code == ErrorCode.kafka_storage_error
    assert not harness.broker.replicas.cuts.is_pending(partition)


def test_an_answer_that_was_asked_for_before_a_cut_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path)
    partition = following(harness)
    partition.append_own(make_batch(10), harness.broker.clock.now_ms)
    harness.holds_flushes = True
    plan_cut(harness, partition, 60)
    assert partition.is_cutting
    late = Received(partition, ReceivedPartition(0, 0, 100, 100), memoryview(make_batch(1)))
    monkeypatch.setattr(Fetcher, "on_answer", lambda fetcher, frame, now_ms: [late])
    harness.broker.replicas.fetching.on_frame(2, memoryview(b""))
    harness.release_flushes()
    assert (partition.is_cutting, partition.log.end_offset) == (False, 60)
