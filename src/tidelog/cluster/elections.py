"""Who leads a partition: from the facts to the facts as they should be (R7, KIP-966).

| asked of                                  | may lead                                                |
|-------------------------------------------|---------------------------------------------------------|
| members of the ISR                        | there, not stopping, count                              |
| eligible ones, if there is none of those  | there, not stopping, count                              |
| if no member counts: all members          | the longest log, once all have said where theirs end    |
| in an unclean election: replicas there    | the longest log, once all of those have                 |

Of several that count the first in the order of replicas leads. A member counts if it has all that was
committed (`Image.counts`). Without a leader, replicas write into the partition where their logs end.

**Invariant:** who leads had all that was committed, unless no member has or an unclean election was asked
for. While too few count for anything more to be committed, every member stays listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.cluster.image import (
    FLUSHED,
    NOBODY,
    NOWHERE,
    TORN_STAMP,
    Answer,
    Image,
    PartitionFacts,
    TopicFacts,
)


class Elected(NamedTuple):
    """A partition as the controller wants to have it."""

    topic: TopicFacts
    index: int  # type: ignore[assignment]  # Kafka's word; nobody searches this tuple
    facts: PartitionFacts


def min_insync(replicas: Sequence[int], settings: TopicSettings) -> int:
    """How many replicas must have a record for it to be committed: never more than there are, as in Kafka."""
    return min(settings.min_insync_replicas, len(replicas))


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
    members = {node_id: facts.stamp(node_id) for node_id in (*stay, *eligible)}
    return eligible, members


def state(facts: PartitionFacts, node_id: int, stamp: int) -> PartitionFacts | None:
    """With what a member says of its log; None if the store has it, or does not count on that replica."""
    if node_id not in facts.listed or facts.stamp(node_id) == stamp:
        return None
    answers = {other: each for other, each in facts.answers.items() if other != node_id}
    return replace(facts, members=facts.members | {node_id: stamp}, answers=answers)


def give_up(facts: PartitionFacts, node_id: int, stamp: int) -> PartitionFacts | None:
    """Without a leader if it was this one, whose log cannot be used; and with what it says of that."""
    stated = state(facts, node_id, stamp)
    if facts.leader == node_id:
        return (stated or facts).without_leader()
    return stated


def elect(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """The partition with the best leader that it can have; None if that is as it is now."""
    able = [n for n in facts.replicas if image.is_able(n) and image.counts(facts, n)]
    in_sync = [n for n in able if n in facts.in_sync_replicas]
    eligible = [n for n in able if n in facts.eligible]
    if in_sync or eligible:
        stay = in_sync or eligible[:1]
        return _led(image, facts, stay, *leave(facts, stay, min_insync(facts.replicas, settings)))
    if facts.leader != NOBODY:
        return facts.without_leader()
    return _recovered(image, facts, settings)


def _led(
    image: Image, facts: PartitionFacts, stay: list[int], eligible: list[int], members: dict[int, int]
) -> PartitionFacts:
    return replace(
        facts,
        leader=stay[0],
        leader_epoch=facts.leader_epoch + 1,
        in_sync_replicas=stay,
        eligible=eligible,
        members=members | {stay[0]: image.brokers[stay[0]].epoch},
        answers={},
        is_unclean=False,
    )


# Recovery: no member counts that is there.


def is_unclean(facts: PartitionFacts, settings: TopicSettings) -> bool:
    return facts.is_unclean or settings.is_unclean_election_allowed


def asked(image: Image, facts: PartitionFacts, settings: TopicSettings) -> list[int]:
    """The replicas that must say where their logs end for the partition to get a leader."""
    if facts.leader != NOBODY or not image.has_recovery:
        return []
    counting = [node_id for node_id in facts.listed if image.counts(facts, node_id)]
    if is_unclean(facts, settings):
        is_led_soon = any(map(image.is_able, counting))
        return [] if is_led_soon else [n for n in facts.replicas if image.is_able(n)]
    # One that counts and is not there may have more than the others, unless some of them have all.
    awaited = [n for n in counting if facts.flush != FLUSHED or image.is_able(n)]
    return facts.listed if settings.recovers_balanced and not awaited else []


def answered(image: Image, facts: PartitionFacts) -> dict[int, Answer]:
    """What still holds: a broker that has registered since may have another log."""
    epochs = image.broker_epochs
    return {
        n: each for n, each in facts.answers.items() if n in epochs and epochs[n].epoch == each.broker_epoch
    }


def _recovered(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """Led by the longest log of those asked, once enough have answered; None if it must wait."""
    unclean = is_unclean(facts, settings)
    if unclean and not image.has_recovery:
        first = [n for n in (*facts.replicas_before, *facts.adding) if image.is_able(n)][:1]
        return _led(image, facts, first, [], {}) if first else None
    wanted, minimum = asked(image, facts, settings), min_insync(facts.replicas, settings)
    answers = {n: each for n, each in answered(image, facts).items() if n in wanted}
    open_logs = {n: each for n, each in answers.items() if each.end_offset != NOWHERE}
    if unclean:
        is_enough = len(answers) == len(wanted)
    else:
        needed = min(minimum, len(wanted)) if facts.flush == FLUSHED else len(wanted)
        has_some = any(facts.stamp(node_id) >= TORN_STAMP for node_id in open_logs)
        is_enough = has_some and len(open_logs) >= needed
    if not open_logs or not is_enough:
        return None
    longest = max(open_logs, key=lambda n: (*open_logs[n][1:], -facts.replicas.index(n)))
    if not image.is_able(longest):
        return None
    left: tuple[list[int], dict[int, int]] = ([], {}) if unclean else leave(facts, [longest], minimum)
    return _led(image, facts, [longest], *left)


def answer(
    image: Image, facts: PartitionFacts, settings: TopicSettings, node_id: int, own: Answer
) -> PartitionFacts | None:
    """With where this replica's log ends; None if nobody asks, or it has said so."""
    if node_id not in asked(image, facts, settings) or facts.answers.get(node_id) == own:
        return None
    return replace(facts, answers=facts.answers | {node_id: own})


def recovered_alone(facts: PartitionFacts, node_id: int, epoch: int) -> PartitionFacts | None:
    """Led by its only member, under a new epoch: nobody else has more. It may have lost its end, and would
    give the same offsets again. None if there are others, or it may have lost anything."""
    is_alone = {*facts.listed} == {node_id} and facts.leader in (node_id, NOBODY)
    if not is_alone or facts.stamp(node_id) < TORN_STAMP:
        return None
    led = replace(facts.without_leader(), leader=node_id)
    return replace(led, in_sync_replicas=[node_id], eligible=[], members={node_id: epoch})


def decide_preferred(image: Image, facts: PartitionFacts) -> PartitionFacts | None:
    """The partition led by its first replica; None if that leads, or cannot."""
    preferred = facts.replicas[0]
    if facts.leader in (preferred, NOBODY) or preferred not in facts.in_sync_replicas:
        return None
    if not image.is_able(preferred) or not image.is_trusted(facts, preferred):
        return None
    return replace(facts, leader=preferred, leader_epoch=facts.leader_epoch + 1)
