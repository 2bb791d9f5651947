"""Records that a replica must have and cannot read (R17).

**Invariant:** every read that meets damage comes by `Damaged.note`; of each place the operator hears once.
"""

from __future__ import annotations

from tidelog.base.events import error
from tidelog.base.limits import DAMAGE_TOLD_MAX
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.outbox import Outbox
from tidelog.log.format.names import base_in_name
from tidelog.log.replica import note_damage
from tidelog.log.scan import Damage
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import Partition, Role

_CORRUPT = int(ErrorCode.corrupt_message)
_STORAGE = int(ErrorCode.kafka_storage_error)


class Damaged:
    def __init__(self, outbox: Outbox, statements: Statements) -> None:
        self._outbox = outbox
        self._statements = statements
        self._told: dict[tuple[str, int, str], None] = {}

    def note(self, partition: Partition, problem: CorruptBatch) -> int:
        """A read met damage: the error for the reader. A consumer that a follower cannot serve goes back
        to the leader by KAFKA_STORAGE_ERROR; at the leader it stops."""
        place = f"{problem.file} at {problem.position}" if isinstance(problem, Damage) else str(problem)
        key = (partition.topic, partition.index, place)
        if key not in self._told:
            if len(self._told) >= DAMAGE_TOLD_MAX:
                self._told.clear()
            self._told[key] = None
            name, directory = f"{partition.topic}-{partition.index}", partition.directory.path
            self._outbox.tell(error("log damaged", partition=name, directory=directory, problem=str(problem)))
        if isinstance(problem, Damage) and (base_offset := base_in_name(problem.file)) is not None:
            note_damage(partition.log, base_offset)
        if partition.role is not Role.LEADER:
            self._statements.give_up_log(partition, place)
            return _STORAGE
        self._statements.give_up(partition, place)  # to a member that can read it
        return _CORRUPT
