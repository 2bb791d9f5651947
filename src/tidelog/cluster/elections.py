"""Election of a partition's leader: from its facts to the facts as they should be (R7, KIP-966).

| candidates                                      | may lead                                             |
|-------------------------------------------------|------------------------------------------------------|
| members of the ISR                              | if available, not stopping, and counting             |
| eligible replicas, if no ISR member may lead    | if available, not stopping, and counting             |
| if no member counts: all members                | the longest log, once all have reported its end      |
| in an unclean election: the available replicas  | the longest log, once all of these have reported     |

Of several candidates the first in the order of replicas leads. A member counts if it has all committed
records (`Image.counts`). Without a leader, replicas write the end of their log into the partition's node.

**Invariant:** the leader has all committed records, unless no member has them or an unclean election was
requested. While too few members count to commit anything more, every member stays listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.base.config import TopicSettings
from tidelog.cluster.facts import FLUSHED, NOBODY, NOWHERE, TORN_STAMP, Answer, PartitionFacts
from tidelog.cluster.image import Image


def min_insync(replicas: Sequence[int], settings: TopicSettings) -> int:
    """How many replicas must have a record for it to be committed: at most all, as in Kafka."""
    return min(settings.min_insync_replicas, len(replicas))


def is_fit(image: Image, facts: PartitionFacts) -> bool:
    """Whether the leader may go on. A leader that may have lost the end of its log needs a new epoch, because
    it would allocate the same offsets again."""
    return image.is_able(facts.leader) and image.is_trusted(facts, facts.leader)


def leave(facts: PartitionFacts, stay: list[int], minimum: int) -> tuple[list[int], dict[int, int]]:
    """The eligible replicas, and all members, when only `stay` remain in the ISR."""
    eligible: list[int] = []
    if len(stay) < minimum:
        former = {*facts.in_sync_replicas, *facts.eligible}
        eligible = [node_id for node_id in facts.replicas if node_id in former and node_id not in stay]
    members = {node_id: facts.stamp(node_id) for node_id in (*stay, *eligible)}
    return eligible, members


def state(facts: PartitionFacts, node_id: int, stamp: int) -> PartitionFacts | None:
    """The partition with a member's statement about its log; None if the store has it, or the replica is no
    member."""
    if node_id not in facts.listed or facts.stamp(node_id) == stamp:
        return None
    answers = {other: each for other, each in facts.answers.items() if other != node_id}
    return replace(facts, members=facts.members | {node_id: stamp}, answers=answers)


def give_up(facts: PartitionFacts, node_id: int, stamp: int) -> PartitionFacts | None:
    """The partition without this leader, whose log cannot be used, and with its statement."""
    stated = state(facts, node_id, stamp)
    if facts.leader == node_id:
        return (stated or facts).without_leader()
    return stated


def give_up_log(facts: PartitionFacts, node_id: int, stamp: int) -> PartitionFacts | None:
    """The partition with the statement of a follower that will cut its log and fetch it again. The leader
    leads under a new epoch: an earlier fetch could have the follower admitted to the ISR before the cut."""
    stated = state(facts, node_id, stamp)
    if stated is None or facts.leader == NOBODY:
        return stated
    return replace(stated, leader_epoch=stated.leader_epoch + 1)


def elect(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """The partition with the best possible leader; None if that is the present state."""
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


# Recovery: no available member counts.


def is_unclean(facts: PartitionFacts, settings: TopicSettings) -> bool:
    return facts.is_unclean or settings.is_unclean_election_allowed


def asked(image: Image, facts: PartitionFacts, settings: TopicSettings) -> list[int]:
    """The replicas that must report the end of their log before the partition gets a leader."""
    if facts.leader != NOBODY or not image.has_recovery:
        return []
    counting = [node_id for node_id in facts.listed if image.counts(facts, node_id)]
    if is_unclean(facts, settings):
        is_led_soon = any(map(image.is_able, counting))
        return [] if is_led_soon else [n for n in facts.replicas if image.is_able(n)]
    # An unavailable member that counts may have more records, unless all committed records are flushed.
    awaited = [n for n in counting if facts.flush != FLUSHED or image.is_able(n)]
    return facts.listed if settings.recovers_balanced and not awaited else []


def answered(image: Image, facts: PartitionFacts) -> dict[int, Answer]:
    """The answers still valid: after a new registration a broker may have another log."""
    epochs = image.broker_epochs
    return {
        n: each for n, each in facts.answers.items() if n in epochs and epochs[n].epoch == each.broker_epoch
    }


def _recovered(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """The partition led by the longest reported log; None while too few have answered."""
    unclean = is_unclean(facts, settings)
    if not image.has_recovery:
        return _recovered_unasked(image, facts, settings)
    wanted, minimum = asked(image, facts, settings), min_insync(facts.replicas, settings)
    answers = {n: each for n, each in answered(image, facts).items() if n in wanted}
    # If all committed records are flushed some answers suffice, so unavailable replicas are ignored.
    ignored = [n for n in answers if facts.flush == FLUSHED and not image.is_able(n)]
    open_logs = {n: each for n, each in answers.items() if each.end_offset != NOWHERE and n not in ignored}
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
    # The epoch of a store that was restored from a backup may be lower than those in the logs.
    newest = max(facts.leader_epoch, *(each.leader_epoch for each in open_logs.values()))
    return _led(image, replace(facts, leader_epoch=newest), [longest], *left)


def _recovered_unasked(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """Before all brokers support recovery: led by the first replica, if unclean, or by the only member, which
    may have failed to report that it recovered alone (`recovered_alone`)."""
    if is_unclean(facts, settings):
        first = [n for n in (*facts.replicas_before, *facts.adding) if image.is_able(n)][:1]
        return _led(image, facts, first, [], {}) if first else None
    only = facts.listed[0] if facts.listed else NOBODY
    if not image.is_able(only) or not settings.recovers_alone:
        return None
    return recovered_alone(facts, only, image.brokers[only].epoch)


def answer(
    image: Image, facts: PartitionFacts, settings: TopicSettings, node_id: int, own: Answer
) -> PartitionFacts | None:
    """The partition with this replica's log end; None if it is not asked for, or known already."""
    if node_id not in asked(image, facts, settings) or facts.answers.get(node_id) == own:
        return None
    return replace(facts, answers=facts.answers | {node_id: own})


def recovered_alone(facts: PartitionFacts, node_id: int, epoch: int) -> PartitionFacts | None:
    """The partition led by its only member under a new epoch: no other replica has more. The epoch is new
    because the member may have lost its log end and would allocate the same offsets again. None if there are
    other members, or the member may have lost any record."""
    is_alone = {*facts.listed} == {node_id} and facts.leader in (node_id, NOBODY)
    if not is_alone or facts.stamp(node_id) < TORN_STAMP:
        return None
    led = replace(facts.without_leader(), leader=node_id)
    return replace(led, in_sync_replicas=[node_id], eligible=[], members={node_id: epoch})


def decide_preferred(image: Image, facts: PartitionFacts) -> PartitionFacts | None:
    """The partition led by its first replica; None if that leads already, or cannot."""
    preferred = facts.replicas[0]
    if facts.leader in (preferred, NOBODY) or preferred not in facts.in_sync_replicas:
        return None
    if not image.is_able(preferred) or not image.is_trusted(facts, preferred):
        return None
    return replace(facts, leader=preferred, leader_epoch=facts.leader_epoch + 1)
