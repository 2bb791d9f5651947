"""Reassignment of replicas: from a partition's facts to the facts as they should be (R11, KIP-455).

While replicas are reassigned, `replicas` has the target first, then the leaving replicas.

| step     | if                                               | then                                         |
|----------|--------------------------------------------------|----------------------------------------------|
| begin    | a target is requested                            | `adding` and `removing` are the differences  |
|          |                                                  | from the original replicas                   |
| replace  | another target is requested before completion    | as begin, from the original replicas         |
| complete | all of the target are in sync, trusted, available| the leaving replicas are removed             |
| cancel   | the target is withdrawn                          | the original replicas, and no others         |

Each step raises the leader epoch: a replica that was removed, has lost its log and was added again must
not be mistaken for the earlier one. A leaving leader hands over to a replica in sync.

**Invariant:** no replica enters an ISR here. A replica leaves the ISR only if enough others have all
committed records, as many as `min.insync.replicas` requires; otherwise the step is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog.base.config import TopicSettings
from tidelog.cluster.elections import elect, is_fit, min_insync
from tidelog.cluster.facts import NOBODY, PartitionChange, PartitionFacts, TopicFacts
from tidelog.cluster.image import Image
from tidelog.protocol.errors import ErrorCode, Problem

SettingsOf = Callable[[TopicFacts], TopicSettings]


_NOT_MOVING = Problem(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
_TOO_FEW = Problem(
    ErrorCode.invalid_replica_assignment,
    "Too few of the remaining replicas are in sync, or none of them is online to lead.",
)


def target_problem(
    image: Image, facts: PartitionFacts, target: Sequence[int], may_resize: bool
) -> Problem | None:
    """The problem with a target, independent of the partition's state; None if there is none."""
    problem = "" if target else "an empty replica list."
    for node_id in sorted(target, reverse=True):
        if not image.is_known(node_id):
            problem = f"broker {node_id}, but no such broker is registered."
        elif target.count(node_id) > 1:
            problem = f"the broker {node_id} more than once."
    if problem:
        reason = f"The manual partition assignment includes {problem}"
        return Problem(ErrorCode.invalid_replica_assignment, reason)
    count = len(facts.replicas_after)
    if not may_resize and len(target) != count:
        reason = f"The replication factor is changed from {count} to {len(target)}"
        return Problem(ErrorCode.invalid_replication_factor, reason)
    return None


def decide_move(
    image: Image, facts: PartitionFacts, target: Sequence[int], settings: TopicSettings
) -> PartitionFacts | Problem | None:
    """Begin a reassignment, or replace the target of the present one; complete at once if possible. None if
    nothing changes."""
    before = facts.replicas_before
    adding = sorted(node_id for node_id in target if node_id not in before)
    removing = sorted(node_id for node_id in before if node_id not in target)
    replicas = [*target, *removing]
    if (replicas, adding, removing) == (facts.replicas, facts.adding, facts.removing):
        return None
    moved = _with_replicas(image, facts, replicas, settings)
    if moved is None:
        return _TOO_FEW
    moved = replace(moved, adding=adding, removing=removing)
    completed = decide_completion(image, moved, settings)
    return moved if completed is None else replace(completed, leader_epoch=moved.leader_epoch)


def decide_cancellation(
    image: Image, facts: PartitionFacts, settings: TopicSettings
) -> PartitionFacts | Problem:
    """Restore the original replicas."""
    if not facts.is_moving:
        return _NOT_MOVING
    cancelled = _with_replicas(image, facts, facts.replicas_before, settings)
    return cancelled if cancelled is not None else _TOO_FEW


def decide_completion(image: Image, facts: PartitionFacts, settings: TopicSettings) -> PartitionFacts | None:
    """The partition without the leaving replicas; None while some of the target are not in sync."""
    kept = _kept_members(image, facts)
    after = facts.replicas_after
    is_ready = all(n in facts.in_sync_replicas and n in kept and image.is_able(n) for n in after)
    if not facts.is_moving or not is_ready:
        return None
    return _with_replicas(image, facts, after, settings)


def _kept_members(image: Image, facts: PartitionFacts) -> list[int]:
    """Members that have all committed records."""
    return [node_id for node_id in facts.listed if image.counts(facts, node_id)]


def _with_replicas(
    image: Image, facts: PartitionFacts, replicas: list[int], settings: TopicSettings
) -> PartitionFacts | None:
    """The partition with those replicas under a new epoch, not moving; other replicas leave the ISR. None if
    too few replicas would have all committed records, or none could lead."""
    in_sync = [node_id for node_id in facts.in_sync_replicas if node_id in replicas]
    eligible = [node_id for node_id in facts.eligible if node_id in replicas]
    stay = [*in_sync, *eligible]
    if len(stay) < len(facts.in_sync_replicas) + len(facts.eligible):
        kept = [node_id for node_id in _kept_members(image, facts) if node_id in stay]
        if not in_sync or len(kept) < min_insync(replicas, settings):
            return None
    changed = replace(
        facts,
        replicas=replicas,
        in_sync_replicas=in_sync,
        eligible=eligible,
        members={node_id: facts.members[node_id] for node_id in stay if node_id in facts.members},
        adding=[],
        removing=[],
        answers={},
    )
    if facts.leader in (NOBODY, *replicas):
        return replace(changed, leader_epoch=facts.leader_epoch + 1)
    elected = elect(image, changed, settings)
    return elected if elected is not None and elected.leader in stay else None


def decide_due(
    image: Image, topics: Iterable[TopicFacts], settings_of: SettingsOf
) -> Iterator[PartitionChange]:
    """Every partition of these topics whose leader cannot go on, or whose replicas have moved."""
    for topic in topics:
        settings: TopicSettings | None = None
        for index, facts in topic.partitions.items():
            is_led = is_fit(image, facts)
            if is_led and not facts.is_moving:
                continue
            settings = settings or settings_of(topic)
            decide = decide_completion if is_led else elect
            decided = decide(image, facts, settings)
            if decided is not None:
                yield PartitionChange(topic, index, decided)
