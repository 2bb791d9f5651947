"""Records that a replica must have and cannot read (R17).

**Invariant:** every read that meets damage comes by `Damaged.note`; of each place the operator hears once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.events import error
from tidelog.base.limits import DAMAGE_TOLD_MAX
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import Partition, Role

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

_CORRUPT = int(ErrorCode.corrupt_message)
_STORAGE = int(ErrorCode.kafka_storage_error)


class Damaged:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._told: dict[tuple[str, int, str], None] = {}

    def note(self, partition: Partition, problem: CorruptBatch) -> int:
        """A read met damage: the error for whoever asked. A consumer that a follower cannot serve goes back
        to the leader by KAFKA_STORAGE_ERROR; at the leader it stops."""
        place = (partition.topic, partition.index, str(problem))
        if place not in self._told:
            if len(self._told) >= DAMAGE_TOLD_MAX:
                self._told.clear()
            self._told[place] = None
            name, directory = f"{partition.topic}-{partition.index}", partition.directory.path
            self._broker.events.append(
                error("log damaged", partition=name, directory=directory, problem=str(problem))
            )
        if partition.role is not Role.LEADER:
            return _STORAGE
        self._broker.statements.give_up(partition)  # to a member that can read it
        return _CORRUPT
