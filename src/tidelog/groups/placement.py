"""Which partition of `__consumer_offsets` keeps a group, now and before level 2 of `tidelog.version`.

Before that level the sign bit of a hash was cleared (`hash & 0x7FFFFFFF`) where Kafka takes the absolute
value. The results differ for negative hashes, in a regular way: with n partitions, a group that is now in
partition p was in p or in (2^31 - p) mod n. So groups move between the two partitions of a pair.

**Invariant:** the partner of a partition's partner is the partition itself.
"""

from __future__ import annotations

from tidelog.base.hashing import java_hash, partition_of_name

_HASHES = 2**31


def place_of(group_id: str, partition_count: int) -> int:
    return partition_of_name(group_id, partition_count)


def former_place_of(group_id: str, partition_count: int) -> int:
    return java_hash(group_id) % _HASHES % partition_count


def partner_of(index: int, partition_count: int) -> int:
    """The partition that may have kept groups of this one before level 2."""
    return (_HASHES - index) % partition_count
