"""Who leads a partition: from the facts to the facts as they should be (R7, KIP-966).

| asked of                                  | may lead                                       |
|-------------------------------------------|------------------------------------------------|
| members of the ISR                        | there, not stopping, trusted                   |
| eligible ones, if there is none of those  | there, not stopping, trusted                   |
| other replicas, if there is none of those | there, not stopping, and unclean election is on|

Of several the first in the order of replicas leads; in an unclean election those that are being added come
last. Trust is waived where only flushed bytes count, and where there is no other replica, or none that has
had everything yet.

**Invariant:** who leads had all that was committed, unless an unclean election was asked for. Whoever leaves
the ISR stays eligible only if too few are left in it for anything more to be committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.cluster.image import NOBODY, Image, PartitionFacts, TopicFacts


class Elected(NamedTuple):
    """A partition as the controller wants to have it."""

    topic: TopicFacts
    index: int  # type: ignore[assignment]  # Kafka's word; nobody searches this tuple
    facts: PartitionFacts


def min_insync(replicas: Sequence[int], settings: TopicSettings) -> int:
    """How many replicas must have a record for it to be committed: never more than there are, as in Kafka."""
    return min(settings.min_insync_replicas, len(replicas))


def is_waived(facts: PartitionFacts, settings: TopicSettings) -> bool:
    """Whether a replica may count that was stopped uncleanly: it has lost nothing, or nobody has more."""
    if len(facts.replicas) == 1 or settings.flush_messages == 1:
        return True
    if not facts.adding:
        return False
    before = facts.replicas_before  # the only one, while others are being added and have nothing yet
    return len(before) == 1 and facts.in_sync_replicas == before and not facts.eligible


def is_fit(image: Image, facts: PartitionFacts) -> bool:
    """Whether the leader can go on as it is. One that may have lost its end needs a new epoch, at least: it
    would give the same offsets again."""
    return image.is_able(facts.leader) and image.is_trusted(facts, facts.leader)


def leave(facts: PartitionFacts, stay: list[int], minimum: int) -> tuple[list[int], dict[int, int]]:
    """Who is eligible, and all members, when only those `stay` in the ISR."""
    eligible: list[int] = []
    if len(stay) < minimum:
        former = {*facts.in_sync_replicas, *facts.eligible}
        eligible = [node_id for node_id in facts.replicas if node_id in former and node_id not in stay]
    members = {node_id: facts.members.get(node_id, 0) for node_id in (*stay, *eligible)}
    return eligible, members


def give_up(facts: PartitionFacts, node_id: int) -> PartitionFacts | None:
    """Without a replica whose disk has failed; None if it counts for nothing, or if nobody else has all."""
    others = [other for other in facts.in_sync_replicas if other != node_id]
    eligible = [other for other in facts.eligible if other != node_id]
    is_leader = facts.leader == node_id
    if (not is_leader and others == facts.in_sync_replicas) or not (others or eligible):
        return None
    return replace(
        facts,
        leader=NOBODY if is_leader else facts.leader,
        leader_epoch=facts.leader_epoch + is_leader,
        in_sync_replicas=others,
        eligible=eligible,
        members={other: epoch for other, epoch in facts.members.items() if other != node_id},
    )


def elect(
    image: Image, facts: PartitionFacts, settings: TopicSettings, *, is_unclean: bool = False
) -> PartitionFacts | None:
    """The partition with the best leader that it can have; None if that is as it is now."""
    waived = is_waived(facts, settings)

    def counts(node_id: int) -> bool:
        return image.is_able(node_id) and (waived or image.is_trusted(facts, node_id))

    in_sync = [n for n in facts.replicas if n in facts.in_sync_replicas and counts(n)]
    eligible = [n for n in facts.replicas if n in facts.eligible and counts(n)]
    anybody = [n for n in (*facts.replicas_before, *facts.adding) if image.is_able(n)]
    if in_sync or eligible:
        stay = in_sync or eligible[:1]
        former = _without_distrusted(image, facts, waived)
        left, members = leave(former, stay, min_insync(facts.replicas, settings))
    elif anybody and (is_unclean or settings.is_unclean_election_allowed):
        stay, left, members = anybody[:1], [], {}
    elif facts.leader == NOBODY:
        return None
    else:
        return replace(facts, leader=NOBODY, leader_epoch=facts.leader_epoch + 1)
    leader = stay[0]
    members[leader] = image.brokers[leader].epoch
    return replace(
        facts,
        leader=leader,
        leader_epoch=facts.leader_epoch + 1,
        in_sync_replicas=stay,
        eligible=left,
        members=members,
    )


def _without_distrusted(image: Image, facts: PartitionFacts, waived: bool) -> PartitionFacts:
    def keep(node_ids: list[int]) -> list[int]:
        return [node_id for node_id in node_ids if waived or image.is_trusted(facts, node_id)]

    return replace(facts, in_sync_replicas=keep(facts.in_sync_replicas), eligible=keep(facts.eligible))


def decide_preferred(image: Image, facts: PartitionFacts) -> PartitionFacts | None:
    """The partition led by its first replica; None if that leads, or cannot."""
    preferred = facts.replicas[0]
    if facts.leader in (preferred, NOBODY) or preferred not in facts.in_sync_replicas:
        return None
    if not image.is_able(preferred) or not image.is_trusted(facts, preferred):
        return None
    return replace(facts, leader=preferred, leader_epoch=facts.leader_epoch + 1)
