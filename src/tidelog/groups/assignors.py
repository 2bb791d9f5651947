"""The assignors of the consumer protocol: which member gets which partitions of its subscribed topics.

`range` gives each subscriber of a topic one contiguous range, in the order of the members: static ones by
instance id, then the others by member id. Topics with equal partition counts and the same subscribers get
equal ranges, so that a member can join them.

`uniform` balances the members over all topics, and stays close to the previous target. Topics with the same
subscribers form a pool, whose partitions are interchangeable: the first step decides only *how many*
partitions of each pool a member gets; the member then keeps that many of its present partitions. A group
whose members all have the same subscription has a single pool, and moves the fewest possible partitions.

**Invariant:** each partition of a subscribed topic goes to exactly one of its subscribers; the answer depends
only on the arguments, and not on the order of the members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from typing import NamedTuple

from tidelog.base.limits import ASSIGNMENT_PASSES_MAX, ASSIGNMENT_STEPS_MAX
from tidelog.groups.records import Target

# Kafka has the same limit; a chain of partly overlapping subscriptions may not be perfectly balanced.


class Subscriber(NamedTuple):
    """A member, as an assignor sees it."""

    topics: tuple[bytes, ...]  # the ids of those it subscribes to; all exist
    instance_id: str | None
    target: Target  # its part of the previous target assignment


# From the members and the partition count of each topic to the target of each member.
Assign = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Target]]


def assign_range(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Target]:
    subscriber_counts: dict[bytes, int] = {}
    for member in members.values():
        for topic_id in member.topics:
            subscriber_counts[topic_id] = subscriber_counts.get(topic_id, 0) + 1
    places = dict.fromkeys(subscriber_counts, 0)  # how many subscribers already have their range
    targets: dict[str, Target] = {}
    for member_id in _in_order(members):
        target = {}
        for topic_id in members[member_id].topics:
            place = places[topic_id]
            places[topic_id] = place + 1
            quota, extra = divmod(counts[topic_id], subscriber_counts[topic_id])
            start = place * quota + min(place, extra)
            end = start + quota + (place < extra)
            if start < end:
                target[topic_id] = tuple(range(start, end))
        targets[member_id] = target
    return targets


def assign_uniform(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Target]:
    order = _in_order(members)
    sharing = _Sharing([members[member_id] for member_id in order], counts)
    if len(sharing.pools) == 1:
        sharing.share_alike(sharing.pools[0])
    elif sharing.pools:
        sharing.hand_out()
        sharing.level_pools()
        sharing.level_chains()
    return dict(zip(order, sharing.targets(), strict=True))


def _in_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members first: their member id changes with each start, their instance id does not."""

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)


class _Pool:
    """The topics with the same subscribers, and how many of their partitions each subscriber has."""

    def __init__(self, topics: list[bytes], subscribers: list[int], size: int) -> None:
        self.topics = topics
        self.subscribers = subscribers
        self.size = size
        self.held = dict.fromkeys(subscribers, 0)

    def move(self, giver: int, taker: int) -> None:
        self.held[giver] -= 1
        self.held[taker] += 1


class _Step(NamedTuple):
    """The last step of a chain of moves: one partition of the pool goes from the giver to the taker."""

    giver: int
    pool: _Pool
    taker: int
    before: _Step | None


class _Sharing:
    """One uniform assignment in progress; a member is represented by its index in the order."""

    def __init__(self, members: list[Subscriber], counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._counts = counts
        self._loads = [0] * len(members)  # how many partitions each member has
        self.pools = _pools(members, counts)
        self._free = {topic_id: {*range(counts[topic_id])} for pool in self.pools for topic_id in pool.topics}
        # The previous partitions that each member may keep.
        self._kept_by: list[dict[bytes, list[int]]] = [{} for _ in members]
        self._pools_of: list[list[_Pool]] = [[] for _ in members]
        for pool in self.pools:
            for member in pool.subscribers:
                self._pools_of[member].append(pool)
            self._keep(pool)

    def _keep(self, pool: _Pool) -> None:
        """Keep every partition where the previous target has it, if its member still subscribes to the
        topic."""
        for topic_id in pool.topics:
            free = self._free[topic_id]
            for member in pool.subscribers:
                kept = free.intersection(self._members[member].target.get(topic_id, ()))
                free -= kept
                self._kept_by[member][topic_id] = sorted(kept)
                pool.held[member] += len(kept)
                self._loads[member] += len(kept)

    def share_alike(self, pool: _Pool) -> None:
        """All members have the same subscription: compute the result of `hand_out` and `level_pools` at once.
        Members that already have one partition more than others keep it."""
        held, places = pool.held, pool.subscribers
        quota, extra = divmod(pool.size, len(places))
        above = [place for place in places if held[place] > quota]
        below = [place for place in places if held[place] <= quota]
        luckier = {*above[:extra], *below[: max(extra - len(above), 0)]}
        for place in places:
            held[place] = quota + (place in luckier)

    def hand_out(self) -> None:
        """Give each unassigned partition to the subscriber with the fewest."""
        loads = self._loads
        for pool in self.pools:
            takers = [(loads[member], member) for member in pool.subscribers]
            heapify(takers)
            for _ in range(pool.size - sum(pool.held.values())):
                load, member = takers[0]
                heapreplace(takers, (load + 1, member))
                pool.held[member] += 1
                loads[member] = load + 1

    def level_pools(self) -> None:
        """Balance each pool. One pool may unbalance another, so several passes may be needed."""
        for _ in range(ASSIGNMENT_PASSES_MAX):
            moved = [self._level(pool) for pool in self.pools]
            if not any(moved):
                return

    def _level(self, pool: _Pool) -> bool:
        """Whether anything moved. The most loaded member gives to the least loaded, and only across a
        difference of two or more, so no member is both giver and taker: the two heaps stay independent."""
        loads = self._loads
        givers = [(-loads[member], -member) for member, count in pool.held.items() if count]
        takers = [(loads[member], member) for member in pool.subscribers]
        if not givers or -min(givers)[0] - min(takers)[0] < 2:
            return False
        heapify(givers)
        heapify(takers)
        while -givers[0][0] - takers[0][0] >= 2:
            giver, taker = -givers[0][1], takers[0][1]
            if pool.held[giver] == 0:
                heapreplace(givers, (0, 0))  # the member has no more of this pool to give
                continue
            pool.move(giver, taker)
            loads[giver] -= 1
            loads[taker] += 1
            heapreplace(givers, (-loads[giver], -giver))
            heapreplace(takers, (loads[taker], taker))
        return True

    def level_chains(self) -> None:
        """Move partitions along chains of members, in which each member passes on a partition of another
        pool.

        An assignment is balanced when no chain leads from a member to a member with two fewer. If no chain
        leads from the most loaded member, none starts at the members that it reaches either: they are
        settled.
        """
        loads = self._loads
        is_settled = [False] * len(loads)
        steps_left = ASSIGNMENT_STEPS_MAX
        while steps_left > 0:
            open_members = [member for member, settled in enumerate(is_settled) if not settled]
            if not open_members:
                return
            start = max(open_members, key=loads.__getitem__)
            chain, steps = self._find_chain(start, is_settled)
            steps_left -= steps + len(loads)
            if chain is not None:
                loads[start] -= 1
                loads[chain.taker] += 1
            while chain is not None:
                chain.pool.move(chain.giver, chain.taker)
                chain = chain.before

    def _find_chain(self, start: int, is_settled: list[bool]) -> tuple[_Step | None, int]:
        """The shortest chain to a less loaded member, and the number of steps that the search took. If there
        is none, all members reached are marked as settled."""
        wanted = self._loads[start] - 2
        reached: list[tuple[int, _Step | None]] = [(start, None)]
        seen = {start}
        seen_pools: set[int] = set()
        steps = 0
        for giver, before in reached:
            for pool in self._pools_of[giver]:
                if not pool.held[giver] or id(pool) in seen_pools:
                    continue
                seen_pools.add(id(pool))
                steps += len(pool.subscribers)
                for taker in pool.subscribers:
                    if taker in seen or is_settled[taker]:
                        continue
                    seen.add(taker)
                    step = _Step(giver, pool, taker, before)
                    if self._loads[taker] <= wanted:
                        return step, steps
                    reached.append((taker, step))
        for member, _ in reached:
            is_settled[member] = True
        return None, steps

    def targets(self) -> list[Target]:
        """The concrete partitions: a member keeps as many of its own as the counts allow, then gets
        others."""
        found: list[dict[bytes, list[int]]] = [{} for _ in self._members]
        for pool in self.pools:
            free = self._kept(pool, found)
            start = 0
            for member in pool.subscribers:
                end = start + pool.held[member]
                for topic_id, index in free[start:end]:
                    found[member].setdefault(topic_id, []).append(index)
                start = end
        return [{topic_id: tuple(sorted(parts)) for topic_id, parts in each.items()} for each in found]

    def _kept(self, pool: _Pool, found: list[dict[bytes, list[int]]]) -> list[tuple[bytes, int]]:
        """Assign the partitions that members keep, and subtract them from the counts; return the rest."""
        held, free = pool.held, []
        for topic_id in pool.topics:
            left = list(self._free[topic_id])
            for member in pool.subscribers:
                had = self._kept_by[member][topic_id]
                count = min(len(had), held[member])
                held[member] -= count
                if count:
                    found[member][topic_id] = had[:count]
                left += had[count:]
            free += [(topic_id, index) for index in sorted(left)]
        return free


def _pools(members: list[Subscriber], counts: Mapping[bytes, int]) -> list[_Pool]:
    """The pools with the most partitions per subscriber first: they leave the least choice."""
    alike: dict[tuple[bytes, ...], list[int]] = {}  # members by their subscription
    for place, member in enumerate(members):
        alike.setdefault(member.topics, []).append(place)
    kinds: dict[bytes, list[int]] = {}  # member sets that subscribe to a topic
    for kind, topics in enumerate(alike):
        for topic_id in topics:
            kinds.setdefault(topic_id, []).append(kind)
    pooled: dict[tuple[int, ...], list[bytes]] = {}
    for topic_id in sorted(kinds):
        pooled.setdefault(tuple(kinds[topic_id]), []).append(topic_id)
    groups = list(alike.values())
    pools = [
        _Pool(
            topics,
            sorted(place for kind in key for place in groups[kind]),
            sum(map(counts.__getitem__, topics)),
        )
        for key, topics in pooled.items()
    ]
    return sorted(
        pools, key=lambda pool: (-pool.size / len(pool.subscribers), len(pool.subscribers), pool.topics)
    )


ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
