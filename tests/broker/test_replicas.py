"""Following: what a leader said is carried out once."""

from __future__ import annotations

from pathlib import Path

from tests.log.making import make_batch
from tests.wire.harness import Harness
from tidelog.broker.partitions import Checkpoint
from tidelog.cluster.image import PartitionFacts
from tidelog.replication.follower import Cut


def test_a_cut_that_waited_is_not_carried_out_again_on_what_came_since(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create_topic("t", 1)
    replicas, partition = harness.broker.replicas, harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.append_own(make_batch(10), harness.broker.now_ms)
    partition.append_own(make_batch(10), harness.broker.now_ms)
    partition.become_follower(PartitionFacts(2, 1, [2], [2, 1], 9))
    fetcher = replicas._fetcher(2)
    fetcher.add(partition)
    partition.log.recovery_point = partition.log.end_offset  # so that cuts wait for a checkpoint
    for _ in range(2):  # the leader is asked again meanwhile, and says the same
        replicas._cut(fetcher, [(partition, Cut(10))])
    partition.log.recovery_point = 0
    replicas._cut(fetcher, [(partition, Cut(10))])
    assert (partition.log.end_offset, replicas.cut_count) == (10, 1)
    partition.append_own(make_batch(10), harness.broker.now_ms)  # as what is replicated
    checkpoints = [effect for effect in harness.broker.effects if isinstance(effect, Checkpoint)]
    assert checkpoints
    for checkpoint in checkpoints:
        harness.broker.on_checkpointed(checkpoint, None)
    assert (partition.log.end_offset, replicas.cut_count) == (20, 1)
