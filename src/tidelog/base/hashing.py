"""Which partition of an internal topic keeps a name: a group, a transactional id, a share group.

**Invariant:** the partition is the one that Kafka chooses, so that each finds what the other has written.
"""

from __future__ import annotations

from functools import lru_cache

from tidelog.base.limits import HASHED_NAMES_KEPT

_INT32_MASK = 0xFFFFFFFF
_SIGN_BIT = 0x80000000


@lru_cache(maxsize=HASHED_NAMES_KEPT)
def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in 32 bits with a sign."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & _INT32_MASK
    return value - 2 * _SIGN_BIT if value & _SIGN_BIT else value


def partition_of_name(name: str, partition_count: int) -> int:
    """Kafka's `Utils.abs(name.hashCode()) % partitionCount`, where the least number, which has no positive
    counterpart, counts as 0."""
    value = java_hash(name)
    return (abs(value) if value != -_SIGN_BIT else 0) % partition_count
