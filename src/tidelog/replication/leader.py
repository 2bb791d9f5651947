"""What a leader knows of its followers, and what follows from it: the ISR and the high watermark (R3–R6).

| what                           | rule                                                                      |
|--------------------------------|---------------------------------------------------------------------------|
| the high watermark may move to | the least end offset among the confirmed ISR and the pending one together |
| it stays where it is           | while too few members are confirmed, or `eligible` is not empty (KIP-966) |
| a follower's end offset counts | if it fetches under a broker epoch that its membership covers             |
| a change of the ISR            | is pending until what the store has is known for sure                     |

Pure: facts, fetches and times go in; what to ask the store for comes out.

**Invariant:** one change is pending at most, and nothing is committed that a member of either ISR lacks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from tidelog.base.forms import PLAINTEXT
from tidelog.base.limits import FOLLOWER_AWAIT_MS_MAX, FOLLOWER_AWAIT_PAUSE_MS
from tidelog.cluster.elections import leave
from tidelog.cluster.facts import FLUSHED, FLUSHING, TORN_STAMP, UNFLUSHED, PartitionFacts
from tidelog.cluster.image import Image

UNKNOWN_OFFSET = -1


class FollowerProgress:
    """One follower as its fetches show it."""

    __slots__ = (
        "asked_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "keeps_up",
        "start_offset",
    )

    def __init__(self, now_ms: int) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.caught_up_ms = now_ms  # when it last had all that the leader had
        self.fetched_ms = now_ms
        self.keeps_up = False  # it has all that there was when it asked before
        self.asked_end_offset = UNKNOWN_OFFSET  # where the leader's log ended at its last fetch

    def note(self, offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int) -> None:
        self.keeps_up = offset >= self.asked_end_offset >= 0
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.keeps_up:
            self.caught_up_ms = self.fetched_ms
        self.end_offset = offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.asked_end_offset = leader_end_offset

    def is_near(self, now_ms: int, lag_max_ms: int, leader_end_offset: int) -> bool:
        """Whether it has everything, or had so a short while ago."""
        return self.end_offset >= leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms


class Leadership:
    """One partition's leadership, from its election until the next."""

    def __init__(
        self, node_id: int, image: Image, facts: PartitionFacts, start_offset: int, now_ms: int
    ) -> None:
        self._node_id = node_id
        self._image = image
        self.facts = facts
        self.pending: PartitionFacts | None = None
        self.start_offset = start_offset  # where the log ended when it began
        self.began_ms = now_ms
        self.followers = {
            node_id: FollowerProgress(now_ms) for node_id in facts.replicas if node_id != self._node_id
        }
        self.awaited: int | None = None  # a follower that is about to join: nothing is committed without it
        self._awaited_ms = 0
        self._await_again_ms = 0
        self._required: list[int] = []
        self._find_required()

    def _find_required(self) -> None:
        union = {*self.facts.in_sync_replicas, *(self.pending.in_sync_replicas if self.pending else ())}
        self._required = [node_id for node_id in self.followers if node_id in union]

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is waited for."""
        return not self._required

    @property
    def in_sync_followers(self) -> list[int]:
        return [node_id for node_id in self.followers if node_id in self.facts.in_sync_replicas]

    def on_facts(self, facts: PartitionFacts, now_ms: int) -> None:
        """What the store has, of the same leadership; what was pending is decided by it."""
        for node_id in facts.in_sync_replicas:
            if node_id in self.followers and node_id not in self.facts.in_sync_replicas:
                self.followers[node_id].caught_up_ms = now_ms
        for node_id in self.in_sync_followers:
            is_lost = facts.stamp(node_id) < 0 <= self.facts.stamp(node_id)
            if is_lost or node_id not in facts.in_sync_replicas:  # perhaps its disk has failed: it must show
                self.followers[node_id].end_offset = UNKNOWN_OFFSET  # what it has
        self.facts = facts
        self.pending = None
        self._find_required()

    def abandon(self) -> None:
        """The store has refused: what was pending has not happened, for sure."""
        self.pending = None
        self._find_required()

    def on_fetch(
        self, node_id: int, broker_epoch: int, offset: int, end_offset: int, now_ms: int
    ) -> FollowerProgress | None:
        """A follower asks for records from `offset` on, so it has all before; None if it is no replica."""
        progress = self.followers.get(node_id)
        if progress is not None:
            progress.note(offset, broker_epoch, end_offset, now_ms)
        return progress

    def renew(self, node_id: int, now_ms: int) -> None:
        """A follower that had everything has fetched until then and found nothing new."""
        progress = self.followers.get(node_id)
        if progress is not None:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
            progress.fetched_ms = max(progress.fetched_ms, now_ms)

    # The high watermark.

    def covers(self, facts: PartitionFacts, node_id: int) -> bool:
        """Whether what a member shows by its fetches counts: its broker is the one that was taken in, or
        has lost nothing since. It may have registered again, and not have heard of it yet."""
        known = self._image.broker_epochs.get(node_id)
        if known is None or not known.trusted_since <= self.followers[node_id].broker_epoch <= known.epoch:
            return False
        return self._image.counts(facts, node_id)

    def counted(self) -> int:
        """Members of the confirmed ISR that an election would count."""
        facts, image = self.facts, self._image
        count = 0
        for node_id in facts.in_sync_replicas:
            count += image.counts(facts, node_id)
        return count

    def least_end_offset(self, own_end_offset: int) -> int:
        """How far all have got who must, if what they say counts."""
        least = own_end_offset
        for node_id in self._required:
            least = min(least, self.followers[node_id].end_offset)
        if self.awaited is not None:
            least = min(least, self.followers[self.awaited].end_offset)
        return least

    def committed(self, own_end_offset: int, min_insync: int) -> int:
        """How far all have got who must; nothing is below it that one of them lacks."""
        if self.facts.eligible or self.counted() < min_insync:
            return UNKNOWN_OFFSET
        facts = self.pending or self.facts
        for node_id in self._required:
            if not self.covers(facts if node_id in facts.members else self.facts, node_id):
                return UNKNOWN_OFFSET
        return self.least_end_offset(own_end_offset)

    # The ISR.

    def propose(
        self,
        now_ms: int,
        lag_max_ms: int,
        min_insync: int,
        end_offset: int,
        high_watermark: int,
        wants_flushed: bool,
    ) -> PartitionFacts | None:
        """The partition as it should be, if that is to change and no change is pending."""
        facts = self.facts
        if self.pending is not None:
            return None
        if wants_flushed and facts.flush == UNFLUSHED:
            # Under a new epoch: a follower that fetches under it knows that only flushed bytes count.
            return replace(facts, flush=FLUSHING, leader_epoch=facts.leader_epoch + 1)
        flush = self._flush(wants_flushed, end_offset)
        near = {n for n, each in self.followers.items() if each.is_near(now_ms, lag_max_ms, end_offset)}
        stay = [n for n in facts.in_sync_replicas if n == self._node_id or (n in near and self._may_stay(n))]
        joining = [n for n in self.followers if n in near - {*stay} and self._may_join(n, high_watermark)]
        proposed = [n for n in facts.replicas if n in stay or n in joining]
        eligible, members = leave(facts, proposed, min_insync)
        members |= {node_id: self.followers[node_id].broker_epoch for node_id in joining}
        if flush == FLUSHED != facts.flush:  # that excuses power cuts to come, none that has been
            doubted = [n for n in members if n not in joining and not self._image.is_trusted(facts, n)]
            members |= {node_id: min(members[node_id], TORN_STAMP) for node_id in doubted}
        same = set(proposed) == set(facts.in_sync_replicas) and eligible == facts.eligible
        same = same and flush == facts.flush
        if same and all(facts.members.get(n) == members[n] for n in proposed):
            return None
        return replace(facts, in_sync_replicas=proposed, eligible=eligible, members=members, flush=flush)

    def _flush(self, is_wanted: bool, end_offset: int) -> int:
        """Whether all that is committed is flushed: what was there when members began to flush is, once all
        of them have shown so by fetches of this leadership. Eligible replicas have promised nothing."""
        if not is_wanted:
            return UNFLUSHED
        is_flushed = not self.facts.eligible and self.least_end_offset(end_offset) >= self.start_offset
        return FLUSHED if is_flushed else self.facts.flush

    def _may_stay(self, node_id: int) -> bool:
        image = self._image
        return image.is_able(node_id) and image.counts(self.facts, node_id)

    def _may_join(self, node_id: int, high_watermark: int) -> bool:
        end_offset = self.followers[node_id].end_offset
        return self._is_registered(node_id) and end_offset >= max(high_watermark, self.start_offset)

    def _is_registered(self, node_id: int) -> bool:
        """Whether a follower's broker is there to stay, and fetches as the one it has registered as."""
        broker = self._image.brokers.get(node_id)
        is_able = broker is not None and not broker.is_stopping
        return broker is not None and is_able and broker.epoch == self.followers[node_id].broker_epoch

    def may_admit(self, node_id: int, high_watermark: int) -> bool:
        """Whether a follower that has just fetched is outside of the ISR and could join."""
        is_open = self.pending is None and self.is_outside(node_id)
        return is_open and self._may_join(node_id, high_watermark)

    def is_outside(self, node_id: int) -> bool:
        """Whether it is not a member, or was taken in before it may have lost something."""
        facts = self.facts
        return node_id not in facts.in_sync_replicas or not self._image.is_trusted(facts, node_id)

    def may_await(self, node_id: int, now_ms: int) -> bool:
        """Whether a follower outside takes all that there is with every fetch, and only lacks what has been
        committed since the last one: under steady writes it would never get in."""
        progress = self.followers[node_id]
        if self.awaited is not None or self.pending is not None or now_ms < self._await_again_ms:
            return False
        keeps_up = progress.keeps_up and progress.end_offset >= self.start_offset
        return keeps_up and self.is_outside(node_id) and self._is_registered(node_id)

    def begin_await(self, node_id: int, now_ms: int) -> None:
        """Let the high watermark wait for one fetch of a follower."""
        self.awaited = node_id
        self._awaited_ms = now_ms
        self._await_again_ms = now_ms + FOLLOWER_AWAIT_PAUSE_MS

    def is_await_over(self, now_ms: int) -> bool:
        """Whether the follower that is waited for takes too long."""
        return self.awaited is not None and now_ms - self._awaited_ms > FOLLOWER_AWAIT_MS_MAX

    def begin_change(self, proposed: PartitionFacts) -> None:
        assert self.pending is None
        self.pending = proposed
        self._find_required()

    def joining(self, proposed: PartitionFacts) -> Iterable[int]:
        """Whose registration the store must check with the change."""
        return [n for n in proposed.in_sync_replicas if proposed.members[n] != self.facts.members.get(n)]

    def followers_start(self, node_ids: Container[int], otherwise: int) -> int:
        """Where the log begins that begins first among the followers on these brokers."""
        starts = [each.start_offset for node_id, each in self.followers.items() if node_id in node_ids]
        return min(starts, default=otherwise)

    def preferred_for(self, rack: str, offset: int, listener: str = PLAINTEXT) -> int | None:
        """The in-sync follower in a consumer's rack that has what it asks for, the most caught-up one that
        has its listener."""
        best: tuple[int, int] | None = None
        for node_id in self.facts.in_sync_replicas:
            broker, progress = self._image.brokers.get(node_id), self.followers.get(node_id)
            if broker is None or broker.rack != rack or listener not in broker.listeners:
                continue
            if progress is None:
                return None  # the leader itself is as near
            if progress.end_offset >= offset >= progress.start_offset:
                best = max(best or (-1, -1), (progress.end_offset, -node_id))
        return -best[1] if best is not None else None

    def has_follower_in(self, rack: str) -> bool:
        """Whether a follower is in a consumer's rack, and this broker is not: `preferred_for` may name it at
        any moment."""
        brokers = self._image.brokers
        own = brokers.get(self._node_id)
        if own is not None and own.rack == rack:
            return False
        return any(node_id in brokers and brokers[node_id].rack == rack for node_id in self.followers)
