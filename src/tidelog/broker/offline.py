"""What was on a disk that has failed: whoever else is in sync shall lead it, and wait for this one no longer.

**Invariant:** a replica that cannot be read stays in no ISR that another one is in, whatever becomes of a
single write: it is tried until the store has it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.elections import give_up
from tidelog.cluster.store import Done, Operation, Outcome, Write
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class Offline:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due: dict[Partition, None] = {}  # and the others may not know
        self._asked: dict[Partition, None] = {}  # the store is being told

    def give_up(self, partition: Partition) -> None:
        """Its disk has failed, or it has been elected, or taken for one in sync, since."""
        self._due[partition] = None

    def forget(self, partition: Partition) -> None:
        self._due.pop(partition, None)

    def tick(self) -> None:
        broker = self._broker
        if not self._due or not broker.is_registered:
            return
        for partition in [partition for partition in self._due if partition not in self._asked]:
            del self._due[partition]
            topic = broker.image.topics_by_id.get(partition.topic_id)
            facts = topic.partitions.get(partition.index) if topic is not None else None
            left = give_up(facts, broker.node_id) if facts is not None else None
            if topic is not None and left is not None:
                write: Operation = Write(topic.path(partition.index), left.encode(), left.version)
                self._asked[partition] = None
                broker.change([write], partial(self._on_outcome, partition))

    def _on_outcome(self, partition: Partition, outcome: Outcome) -> None:
        del self._asked[partition]
        if not isinstance(outcome, Done):  # somebody has changed it, or nobody knows: look again
            self._due[partition] = None
