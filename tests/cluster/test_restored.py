"""What is written into a store that was restored from a backup (R16)."""

from __future__ import annotations

import json

import pytest

from tests.cluster.tree import ID, Tree, register, started
from tidelog.base.limits import RESTORED_TOGETHER
from tidelog.cluster.facts import NOBODY, TORN_STAMP, BrokerFacts, PartitionFacts, encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import FEATURES
from tidelog.cluster.restored import EPOCH_JUMP, decide_restored
from tidelog.cluster.store import Create, Write

TOPIC = f"/topics/{ID.hex()}"


def led(count: int = 1) -> Tree:
    """Two brokers and a topic, the second replica out of the ISR."""
    tree = started()
    register(tree, BrokerFacts(2, "host", 9093, "rack", 0))
    facts = PartitionFacts(1, 5, [1], [1, 2], 0, members={1: 1}, flush=2)
    partitions = [Create(f"{TOPIC}/{index}", facts.encode()) for index in range(count)]
    tree.apply([Create(TOPIC, encode_fields(name="t", config={})), *partitions])
    return tree


def restored(tree: Tree) -> Image:
    for operations in decide_restored(tree.loaded()):
        tree.apply(operations)
    return tree.loaded()


def test_every_replica_is_listed_and_counts_for_nothing() -> None:
    image = restored(led())
    facts = image.topics["t"].partitions[0]
    assert (facts.leader, facts.in_sync_replicas, facts.eligible) == (NOBODY, [1], [2])
    assert facts.members == {1: TORN_STAMP, 2: TORN_STAMP}
    assert not any(image.counts(facts, node_id) for node_id in (1, 2))


def test_no_number_is_given_a_second_time() -> None:
    tree = led()
    before, after = tree.loaded(), restored(tree)
    assert after.topics["t"].partitions[0].leader_epoch == 5 + EPOCH_JUMP
    assert after.controller_epoch == before.controller_epoch + EPOCH_JUMP
    assert after.next_producer_id >= before.next_producer_id + 1_000_000
    for node_id, known in before.broker_epochs.items():
        assert after.broker_epochs[node_id].epoch == known.epoch + EPOCH_JUMP


def test_the_generation_is_written_last_and_rises_each_time() -> None:
    tree = led(RESTORED_TOGETHER)
    portions = decide_restored(tree.loaded())
    assert [len(portion) for portion in portions] == [RESTORED_TOGETHER, 2, 3]
    assert [each.path for each in portions[-1]][-1] == "/cluster"
    assert (restored(tree).generation, restored(tree).generation) == (1, 2)


@pytest.mark.parametrize("has_levels", [True, False])
def test_an_old_store_is_raised_to_the_level_at_which_partitions_recover(has_levels: bool) -> None:
    tree = led()
    if has_levels:
        tree.apply([Write(FEATURES, json.dumps({"epoch": 0, "levels": {"tidelog.version": 1}}).encode())])
    else:
        del tree.nodes[FEATURES]
    assert restored(tree).has_recovery
