"""What every fuzzed broker has, and what it may ask of its store.

The topics have the same ids in every life, so that a seed which names one by its id finds it. Of changes to
the store small ones go through, up to a count, so that no input makes ten thousand folders; what is larger
is lost, and what deletes a topic that the other inputs need or changes the broker's own settings is refused,
as may happen to anything that is asked of a store.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.cluster.paths import TOPICS as TOPIC_NODES
from tidelog.cluster.store import Action, Create, Delete, Multi, Refused, Unknown

TOPICS = {
    "t": {"segment.bytes": "1048576"},
    "compacted": {"cleanup.policy": "compact"},
    "squeezed": {"compression.type": "lz4"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
PARTITION_COUNT = 2
OPERATIONS_MAX = 12  # of one change of the store
CREATED_MAX = 300  # nodes, of which most are partitions
_OWN_SETTINGS = "/config/brokers"
_NUMBERS_BEFORE = 100
FIRST_TOPIC_ID = (_NUMBERS_BEFORE + 1).to_bytes(16, "big")


class Numbered:
    """Random bytes that are the same every time."""

    def __init__(self) -> None:
        self._number = _NUMBERS_BEFORE

    def __call__(self, size: int) -> bytes:
        self._number += 1
        return self._number.to_bytes(size, "big")


class Modesty:
    """Says which changes of the store may be made."""

    def __init__(self) -> None:
        self._created_count = 0
        self._standing: tuple[str, ...] = ()

    def protect(self, topic_ids: Iterable[bytes]) -> None:
        """From now on these topics stay."""
        self._standing = tuple(f"{TOPIC_NODES}/{topic_id.hex()}" for topic_id in topic_ids)

    def objection(self, action: Action) -> Refused | Unknown | None:
        """The answer to what may not be done. One that is too large is lost: it would only come again."""
        if not isinstance(action, Multi) or not self._standing:
            return None
        self._created_count += sum(isinstance(operation, Create) for operation in action.operations)
        if len(action.operations) > OPERATIONS_MAX or self._created_count > CREATED_MAX:
            return Unknown("too much")
        for place, operation in enumerate(action.operations):
            is_deletion = isinstance(operation, Delete) and operation.path.startswith(self._standing)
            if is_deletion or operation.path.startswith(_OWN_SETTINGS):
                return Refused(place, "not this one")
        return None
