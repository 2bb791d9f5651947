"""Hints at the right leader inside an error (KIP-951), so that a client need not ask for metadata first."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.broker import Broker
from tidelog.cluster.facts import PartitionFacts
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchedPartition
from tidelog.protocol.produce import ProducedPartition
from tidelog.protocol.wire import Endpoints
from tidelog.replication.partition import Partition

_HINTED = (int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch))


def hint_leader(
    outcome: ProducedPartition | FetchedPartition, partition: Partition | PartitionFacts | None, wanted: bool
) -> None:
    if wanted and partition is not None and outcome.error_code in _HINTED:
        outcome.leader_id = partition.leader_id if isinstance(partition, Partition) else partition.leader
        outcome.leader_epoch = partition.leader_epoch


def endpoints_for(
    broker: Broker,
    listener: str,
    topics: Sequence[tuple[str | bytes, Sequence[ProducedPartition | FetchedPartition]]],
) -> Endpoints:
    """Where the leaders that the outcomes hint at are, for clients of a listener."""
    ids = {
        outcome.leader_id: None for _, outcomes in topics for outcome in outcomes if outcome.leader_epoch >= 0
    }
    brokers = broker.image.brokers
    known = [brokers[node_id] for node_id in ids if node_id in brokers]
    return tuple(
        (facts.node_id, *facts.listeners[listener], facts.rack or None)
        for facts in known
        if listener in facts.listeners
    )
