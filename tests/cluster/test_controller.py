"""Decisions: from the image to operations, guarded by versions where somebody else may have been faster."""

from __future__ import annotations

from tests.cluster.tree import ID, register, started
from tidelog.cluster.controller import (
    PRODUCER_ID_BLOCK_SIZE,
    decide_fence,
    decide_first_start,
    decide_producer_ids,
    decide_registration,
    decide_topic_config,
    encode_id,
)
from tidelog.cluster.controller import decide_topic as decide
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts
from tidelog.cluster.store import Create, Delete, Write

BROKER = BrokerFacts(1, "host", 9092, "", 0)


def test_the_first_start_makes_the_cluster_once() -> None:
    tree = started()
    assert tree.image.cluster_id == encode_id(ID) and len(tree.image.cluster_id) == 22
    assert decide_first_start(tree.image, bytes(16)) == []


def test_each_registration_raises_the_broker_epoch() -> None:
    tree = started()
    assert tree.image.broker_epochs[1].epoch == tree.image.brokers[1].epoch == 1
    register(tree, BROKER)
    assert tree.image.broker_epochs[1].epoch == tree.image.brokers[1].epoch == 2


def test_a_start_raises_the_epoch_and_hides_the_last_process_before_it_registers() -> None:
    tree = started()
    write, delete = decide_fence(tree.image, 1)
    assert isinstance(write, Write) and write.version == 1 and isinstance(delete, Delete)
    tree.apply([write, delete])
    assert tree.image.broker_epochs[1] == BrokerEpoch(2, 1, "", False, 1, {"d": 1})
    assert 1 not in tree.image.brokers


def test_a_registration_is_ephemeral_and_guards_the_epoch() -> None:
    tree = started()
    write, delete, create = decide_registration(tree.image, BROKER, True, {"d": 1})
    assert isinstance(write, Write) and write.version == 1
    assert isinstance(delete, Delete) and isinstance(create, Create) and create.is_ephemeral
    assert [type(operation) for operation in decide_fence(tree.image, 2)] == [Create]


def test_after_a_crash_nothing_of_before_is_trusted() -> None:
    tree = started()
    tree.apply(decide(tree.image, "a", ID, {}, [[1]]))
    facts = tree.image.topics["a"].partitions[0]
    register(tree, BROKER)
    assert tree.image.is_trusted(facts, 1) and tree.image.broker_epochs[1].trusted_since == 1
    register(tree, BROKER, is_trusted=False)
    assert not tree.image.is_trusted(facts, 1) and tree.image.broker_epochs[1].trusted_since == 3


def test_producer_ids_are_taken_a_block_at_a_time_under_the_version_seen() -> None:
    tree = started()
    for number in range(3):
        (write,) = decide_producer_ids(tree.image)
        assert isinstance(write, Write) and write.version == number
        tree.apply([write])
        assert tree.image.next_producer_id == (number + 1) * PRODUCER_ID_BLOCK_SIZE


def test_that_a_topic_was_compacted_is_never_forgotten() -> None:
    tree = started()
    tree.apply(decide(tree.image, "a", ID, {}, [[1]]))
    seen = []
    for policy in ("delete", "compact,delete", "delete"):
        tree.apply(decide_topic_config(tree.image.topics["a"], {"cleanup.policy": policy}))
        seen.append(tree.image.topics["a"].was_compacted)
    tree.apply(decide_topic_config(tree.image.topics["a"], {}))
    assert [*seen, tree.image.topics["a"].was_compacted] == [False, True, True, True]
    tree.apply(decide(tree.image, "b", bytes(15) + b"b", {"cleanup.policy": "compact"}, [[1]]))
    assert tree.image.topics["b"].was_compacted
