"""Decisions: from the image to operations, guarded by versions where somebody else may have been faster."""

from __future__ import annotations

from tests.cluster.tree import ID, started
from tidelog.cluster.controller import (
    PRODUCER_ID_BLOCK_SIZE,
    decide_first_start,
    decide_producer_ids,
    decide_registration,
    encode_id,
)
from tidelog.cluster.controller import decide_topic as decide
from tidelog.cluster.image import BrokerFacts
from tidelog.cluster.store import Create, Write

BROKER = BrokerFacts(1, "host", 9092, "", 0)


def test_the_first_start_makes_the_cluster_once() -> None:
    tree = started()
    assert tree.image.cluster_id == encode_id(ID) and len(tree.image.cluster_id) == 22
    assert decide_first_start(tree.image, bytes(16)) == []


def test_each_registration_raises_the_broker_epoch() -> None:
    tree = started()
    assert tree.image.broker_epoch == tree.image.brokers[1].epoch == 1
    tree.apply(decide_registration(tree.image, BROKER, True))
    assert tree.image.broker_epoch == tree.image.brokers[1].epoch == 2


def test_a_registration_is_ephemeral_and_guards_the_epoch() -> None:
    tree = started()
    operations = decide_registration(tree.image, BrokerFacts(2, "other", 1, "", 0), True)
    assert isinstance(operations[0], Write) and operations[0].version == 1
    assert isinstance(operations[1], Create) and operations[1].is_ephemeral


def test_after_a_crash_the_partitions_one_leads_get_a_new_epoch() -> None:
    tree = started()
    tree.apply(decide("a", ID, {}, [[1], [2]]))
    tree.apply(decide_registration(tree.image, BROKER, was_clean=True))
    assert [p.leader_epoch for p in tree.image.topics["a"].partitions.values()] == [0, 0]
    tree.apply(decide_registration(tree.image, BROKER, was_clean=False))
    assert [p.leader_epoch for p in tree.image.topics["a"].partitions.values()] == [1, 0]


def test_producer_ids_are_taken_a_block_at_a_time_under_the_version_seen() -> None:
    tree = started()
    for number in range(3):
        (write,) = decide_producer_ids(tree.image)
        assert isinstance(write, Write) and write.version == number
        tree.apply([write])
        assert tree.image.next_producer_id == (number + 1) * PRODUCER_ID_BLOCK_SIZE
