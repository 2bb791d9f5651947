"""The topic that keeps groups, and what is kept for topics that go and come.

Whoever makes or grows it, however long it is left alone: what was committed is found again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.shards import (
    commit,
    committed,
    delete_topic,
    finish_work,
    groups_broker,
    hold_work,
    restart,
)
from tests.wire.group_requests import GROUP
from tests.wire.harness import METADATA, START_MS, Harness, batch_of
from tests.wire.requests import metadata_values, produce
from tests.wire.test_handlers_partitions import grow
from tidelog.broker.data_plane.shard import Shard
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.groups.facts import offset_entry
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import build_batch

DAY_MS = 24 * 60 * 60 * 1_000


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return groups_broker(tmp_path / "data")


# Topics that go and come.


def test_a_topic_made_anew_begins_anew_although_the_old_one_went_while_a_shard_loaded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        delete_topic(harness)
        harness.create_topic("t")
    finish_work(harness)
    harness.advance(1_000)
    shard = harness.broker.coordinators.find(GROUP)
    assert isinstance(shard, Shard) and len(shard.machine.offsets) == 0
    assert committed(harness) == -1
    restart(harness)
    assert committed(harness) == -1


def test_a_topic_made_after_a_shard_has_loaded_begins_anew_too(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        delete_topic(harness)
    finish_work(harness)
    harness.create_topic("t")
    assert committed(harness) == -1


def test_a_topic_made_anew_begins_anew_although_the_broker_was_killed_when_the_old_one_went(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        delete_topic(harness)
        harness.start()
    finish_work(harness)
    harness.create_topic("t")
    assert committed(harness) == -1
    restart(harness)
    shard = harness.broker.coordinators.find(GROUP)
    assert isinstance(shard, Shard) and len(shard.machine.offsets) == 0


def test_a_topic_that_went_while_a_shard_loaded_is_not_forgotten_by_a_tick(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, 41)
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
        delete_topic(harness)
        harness.advance(1_000)
    finish_work(harness)
    shard = harness.broker.coordinators.find(GROUP)
    assert isinstance(shard, Shard) and len(shard.machine.offsets) == 0
    harness.advance(1_000)
    assert not harness.broker.coordinators._deleted


def test_a_broker_without_groups_keeps_no_word_of_deleted_topics(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    harness.create_topic("t")
    delete_topic(harness)
    harness.advance(1_000)
    assert not harness.broker.coordinators._deleted


def test_commits_to_topics_that_are_still_there_outlive_the_loading(harness: Harness) -> None:
    commit(harness, 41)
    harness.create_topic("u")
    delete_topic(harness, "u")
    restart(harness)
    assert committed(harness) == 41


# What Kafka left behind.


def test_a_transaction_that_nobody_can_end_does_not_keep_a_partition_from_its_group(harness: Harness) -> None:
    commit(harness, 5)
    value = CommittedOffset(9, 0, "", START_MS, -1, NO_ID)
    entry = offset_entry(GROUP, "t", 0, value)
    batch = build_batch(
        [(entry.key, entry.value, (), START_MS)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    harness.partition(GROUPS_TOPIC).append_own(batch, START_MS)
    restart(harness)
    assert committed(harness, is_stable=False) == 5
    assert commit(harness, 6) == ErrorCode.none
    assert committed(harness) == 6


# The topic that keeps groups.


@pytest.mark.parametrize("version", [4, 13])
def test_metadata_makes_the_groups_topic_as_groups_need_it(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path / "data")
    harness.ask(METADATA, version, **metadata_values(version, [GROUPS_TOPIC], may_create=True))
    topic = harness.broker.image.topics[GROUPS_TOPIC]
    assert (len(topic.partitions), topic.config["cleanup.policy"]) == (50, "compact")
    harness.create_topic("t")
    assert commit(harness, 5) == ErrorCode.none


def test_the_groups_topic_keeps_its_partitions(harness: Harness) -> None:
    commit(harness, 5)
    for dry in (True, False):
        refused = grow(harness, 3, (GROUPS_TOPIC, 51), dry=dry)
        assert refused == {GROUPS_TOPIC: ErrorCode.invalid_topic_exception}
    assert committed(harness) == 5


def test_retention_leaves_a_groups_topic_alone_that_somebody_else_has_made(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    harness.create_topic(GROUPS_TOPIC, cleanup_policy="delete", retention_ms="1000", segment_ms="60000")
    harness.create_topic("t", retention_ms="1000", segment_ms="60000")
    commit(harness, 5, "old")
    produce(harness, 9, "t", batch_of())
    harness.advance(DAY_MS)
    commit(harness, 6, "new")
    produce(harness, 9, "t", batch_of())
    for _ in range(3):
        harness.advance(10 * 60_000)
    assert harness.partition("t").log.start_offset > 0  # retention has been at work
    assert harness.partition(GROUPS_TOPIC).log.start_offset == 0
    restart(harness)
    assert (committed(harness, "old"), committed(harness, "new")) == (5, 6)
