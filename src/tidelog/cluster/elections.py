"""Who leads a partition: from the facts to the facts as they should be (R7, KIP-966).

| asked of                                  | may lead                                       |
|-------------------------------------------|------------------------------------------------|
| members of the ISR                        | there, not stopping, trusted                   |
| eligible ones, if there is none of those  | there, not stopping, trusted                   |
| other replicas, if there is none of those | there, not stopping, and unclean election is on|

Of several the first in the order of replicas leads. Trust is waived where only flushed bytes count, and where
there is no other replica.

**Invariant:** who leads had all that was committed, unless an unclean election was asked for. Whoever leaves
the ISR stays eligible only if too few are left in it for anything more to be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.cluster.image import NOBODY, Image, PartitionFacts, TopicFacts

SettingsOf = Callable[[TopicFacts], TopicSettings]


class Elected(NamedTuple):
    topic: TopicFacts
    index: int  # type: ignore[assignment]  # Kafka's word; nobody searches this tuple
    facts: PartitionFacts


def is_waived(facts: PartitionFacts, settings: TopicSettings) -> bool:
    """Whether a replica may count that was stopped uncleanly: it has lost nothing, or nobody has more."""
    return len(facts.replicas) == 1 or settings.flush_messages == 1


def is_fit(image: Image, facts: PartitionFacts) -> bool:
    """Whether the leader can go on as it is. One that may have lost its end needs a new epoch, at least: it
    would give the same offsets again."""
    return image.is_able(facts.leader) and image.is_trusted(facts, facts.leader)


def leave(facts: PartitionFacts, stay: list[int], min_insync: int) -> tuple[list[int], dict[int, int]]:
    """Who is eligible, and all members, when only those `stay` in the ISR."""
    eligible: list[int] = []
    if len(stay) < min_insync:
        former = {*facts.in_sync_replicas, *facts.eligible}
        eligible = [node_id for node_id in facts.replicas if node_id in former and node_id not in stay]
    members = {node_id: facts.members.get(node_id, 0) for node_id in (*stay, *eligible)}
    return eligible, members


def elect(
    image: Image, facts: PartitionFacts, settings: TopicSettings, *, is_unclean: bool = False
) -> PartitionFacts | None:
    """The partition with the best leader that it can have; None if that is as it is now."""
    waived = is_waived(facts, settings)

    def counts(node_id: int) -> bool:
        return image.is_able(node_id) and (waived or image.is_trusted(facts, node_id))

    in_sync = [n for n in facts.replicas if n in facts.in_sync_replicas and counts(n)]
    eligible = [n for n in facts.replicas if n in facts.eligible and counts(n)]
    anybody = [n for n in facts.replicas if image.is_able(n)]
    if in_sync or eligible:
        stay = in_sync or eligible[:1]
        former = _without_distrusted(image, facts, waived)
        left, members = leave(former, stay, settings.min_insync_replicas)
    elif anybody and (is_unclean or settings.is_unclean_election_allowed):
        stay, left, members = anybody[:1], [], {}
    elif facts.leader == NOBODY:
        return None
    else:
        return _leaderless(facts)
    leader = stay[0]
    members[leader] = image.brokers[leader].epoch
    version, epoch = facts.version, facts.leader_epoch + 1
    return PartitionFacts(leader, epoch, stay, facts.replicas, version, left, members)


def _without_distrusted(image: Image, facts: PartitionFacts, waived: bool) -> PartitionFacts:
    def keep(node_ids: list[int]) -> list[int]:
        return [node_id for node_id in node_ids if waived or image.is_trusted(facts, node_id)]

    in_sync, eligible = keep(facts.in_sync_replicas), keep(facts.eligible)
    return PartitionFacts(
        facts.leader, facts.leader_epoch, in_sync, facts.replicas, facts.version, eligible, facts.members
    )


def _leaderless(facts: PartitionFacts) -> PartitionFacts:
    return PartitionFacts(
        NOBODY,
        facts.leader_epoch + 1,
        facts.in_sync_replicas,
        facts.replicas,
        facts.version,
        facts.eligible,
        facts.members,
    )


def decide_elections(
    image: Image, topics: Iterable[TopicFacts], settings_of: SettingsOf
) -> Iterator[Elected]:
    """Every partition of these topics whose leader cannot go on."""
    for topic in topics:
        settings: TopicSettings | None = None
        for index, facts in topic.partitions.items():
            if is_fit(image, facts):
                continue
            settings = settings or settings_of(topic)
            elected = elect(image, facts, settings)
            if elected is not None:
                yield Elected(topic, index, elected)


def decide_preferred(image: Image, facts: PartitionFacts) -> PartitionFacts | None:
    """The partition led by its first replica; None if that leads, or cannot."""
    preferred = facts.replicas[0]
    if facts.leader in (preferred, NOBODY) or preferred not in facts.in_sync_replicas:
        return None
    if not image.is_able(preferred) or not image.is_trusted(facts, preferred):
        return None
    return PartitionFacts(
        preferred,
        facts.leader_epoch + 1,
        facts.in_sync_replicas,
        facts.replicas,
        facts.version,
        facts.eligible,
        facts.members,
    )
