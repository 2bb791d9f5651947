"""A partition that is led by broker 1, without a broker around it."""

from __future__ import annotations

from tidelog.cluster.facts import BrokerEpoch, BrokerFacts, PartitionFacts
from tidelog.cluster.image import Image
from tidelog.replication.partition import Partition


def image_of(*node_ids: int) -> Image:
    """A cluster with those brokers, each under its first epoch."""
    image = Image()
    for node_id in node_ids:
        image.brokers[node_id] = BrokerFacts(node_id, "127.0.0.1", 9092, "", 1)
        image.broker_epochs[node_id] = BrokerEpoch(1, 1)
    return image


def lead(partition: Partition, leader_epoch: int, node_ids: tuple[int, ...] = (1,), version: int = 0) -> None:
    """Let broker 1 lead the partition, with all those in sync."""
    members = dict.fromkeys(node_ids, 1)
    facts = PartitionFacts(1, leader_epoch, list(node_ids), list(node_ids), version, [], members)
    partition.become_leader(1, image_of(*node_ids), facts, 0)
