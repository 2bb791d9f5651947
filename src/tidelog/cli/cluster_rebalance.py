"""Plans: replicas and leaders balanced over brokers, or moved off some brokers, with the fewest copies.

Replicas first: those on brokers that must be emptied go to the least loaded ones, partitions in too few racks
are spread, then the cheapest chains of moves go from brokers with many to brokers with few (successive
shortest paths, with brokers as the nodes). Then leaders, which may be any of a partition's replicas: that
copies nothing, unless brokers must swap replicas for it.

**Invariant:** the same facts make the same plan; racks come before balance, balance before few copies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from tidelog.cli.cluster_evenness import even_out
from tidelog.cli.cluster_layout import Assignment, Hop, Layout, Place

Plan = dict[Place, tuple[int, ...]]


def plan_rebalance(before: Assignment, racks: Mapping[int, str]) -> Plan:
    """New replicas, the preferred leader first, for each partition that should change."""
    layout = Layout(before, racks)
    for place in layout.places:
        layout.settle(place)
        layout.spread_out(place)
    mover = _Mover(layout)
    even_out(layout.counts, mover.step)
    mover.only_free = False
    even_out(layout.counts, mover.step)
    leaders = _Leaders(layout)
    even_out(leaders.counts, leaders.step)
    even_out(leaders.counts, leaders.step_or_swap)
    return _plan(layout, leaders)


def plan_departure(before: Assignment, racks: Mapping[int, str]) -> Plan:
    """New replicas for the partitions that have replicas on other brokers than these; nothing else moves."""
    layout = Layout(before, racks)
    for place in layout.places:
        layout.settle(place)
    even_out(layout.counts, _Mover(layout).step)
    return _plan(layout, _Leaders(layout))


def copies(before: Assignment, plan: Assignment) -> int:
    """The number of replicas to copy."""
    return sum(len(set(plan[place]) - set(before[place])) for place in plan)


def _plan(layout: Layout, leaders: _Leaders) -> Plan:
    plan: Plan = {}
    for place in sorted(layout.places):
        held, home, leader = layout.held[place], layout.home[place], leaders.of[place]
        stayed = [broker for broker in home if broker in held]
        ordered = (leader, *(b for b in [*stayed, *sorted(held - set(home))] if b != leader))
        if ordered != home:
            plan[place] = ordered
    return plan


class _Mover:
    """Moves one replica at a time, by the cheapest chain; `only_free`: only replicas that move anyway."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.only_free = True

    def step(self, givers: Collection[int], takers: Collection[int]) -> bool:
        # If no move is free, a single direct move is the cheapest chain.
        hop = None if self.only_free else self._direct(givers, takers)
        return self._apply([hop] if hop is not None else self._chain(givers, takers))

    def _direct(self, givers: Collection[int], takers: Collection[int]) -> Hop | None:
        count = self._layout.count
        for giver in sorted(givers, key=count, reverse=True):
            for taker in sorted(takers, key=count):
                if (hop := self._layout.direct_hop(giver, taker)) is not None:
                    return hop
        return None

    def _chain(self, givers: Collection[int], takers: Collection[int]) -> list[Hop]:
        """Bellman-Ford: moving a replica back to its original broker has a negative cost."""
        brokers = self._layout.brokers
        edges = [hop for broker in brokers for hop in self._layout.hops(broker, self.only_free).values()]
        costs = dict.fromkeys(brokers, math.inf) | dict.fromkeys(givers, 0.0)
        arrivals: dict[int, Hop] = {}
        for _ in brokers:
            for hop in edges:
                cost = costs[hop.giver] + hop.cost
                if cost < costs[hop.taker] and hop.taker not in givers:
                    costs[hop.taker] = cost
                    arrivals[hop.taker] = hop
        reached = [taker for taker in sorted(takers, key=self._layout.count) if taker in arrivals]
        if not reached:
            return []
        return _walk_back(arrivals, min(reached, key=lambda taker: costs[taker]))

    def _apply(self, chain: list[Hop]) -> bool:
        """Apply the whole chain, its end first; or nothing, if it has a partition twice that must not move
        twice."""
        done: list[Hop] = []
        for hop in chain:
            if not self._layout.may_move(hop.place, hop.giver, hop.taker):
                for undone in reversed(done):
                    self._layout.move(undone.place, undone.taker, undone.giver)
                return False
            self._layout.move(hop.place, hop.giver, hop.taker)
            done.append(hop)
        return bool(chain)


class _Leaders:
    """The preferred leader of each partition: the original one, if it still has a replica."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.of: dict[Place, int] = {}
        self._led: dict[int, dict[Place, None]] = {broker: {} for broker in layout.brokers}
        orphans = []
        for place in layout.places:
            if layout.home[place][0] in layout.held[place]:
                self._lead(place, layout.home[place][0])
            else:
                orphans.append(place)
        for place in orphans:
            self._lead(place, min(sorted(layout.held[place]), key=lambda broker: len(self._led[broker])))

    def counts(self) -> dict[int, int]:
        return {broker: len(led) for broker, led in self._led.items()}

    def step(self, givers: Collection[int], takers: Collection[int]) -> bool:
        """Hand leadership over along the shortest chain of brokers that share partitions."""
        arrivals: dict[int, Hop] = {}
        queue = list(givers)
        for giver in queue:
            for place in self._led[giver]:
                for taker in sorted(self._layout.held[place]):
                    if taker not in arrivals and taker not in givers:
                        arrivals[taker] = Hop(0, place, giver, taker)
                        queue.append(taker)
            reached = [taker for taker in takers if taker in arrivals]
            if reached:
                for hop in _walk_back(arrivals, min(reached, key=lambda taker: len(self._led[taker]))):
                    self._lead(hop.place, hop.taker)
                return True
        return False

    def step_or_swap(self, givers: Collection[int], takers: Collection[int]) -> bool:
        """`step`, or a swap of replicas where brokers share too few partitions."""
        if self.step(givers, takers) or any(self._swap(giver, taker) for giver in givers for taker in takers):
            return True
        others = [broker for broker in self._layout.brokers if broker not in {*givers, *takers}]
        return any(self._swap_through(giver, other, takers) for giver in givers for other in others)

    def _swap_through(self, giver: int, other: int, takers: Collection[int]) -> bool:
        """Move one leadership to a third broker, and one from there to a taker; nothing if that is
        impossible."""
        swapped = self._swap(giver, other)
        if swapped is None:
            return False
        if self.step([other], takers) or any(self._swap(other, taker) for taker in takers):
            return True
        for hop in reversed(swapped):
            self._layout.move(hop.place, hop.taker, hop.giver)
            if self.of[hop.place] == hop.taker:
                self._lead(hop.place, hop.giver)
        return False

    def _swap(self, giver: int, taker: int) -> tuple[Hop, ...] | None:
        """Move a leading replica; in exchange for a following one, unless the counts stay balanced
        without."""
        layout = self._layout
        for place in self._led[giver]:
            if not layout.may_move(place, giver, taker):
                continue
            there = Hop(1, place, giver, taker)
            if layout.count(giver) > layout.count(taker):
                return self._exchange(there)
            for other in layout.on(taker):
                if self.of[other] != taker and layout.may_move(other, taker, giver):
                    return self._exchange(there, Hop(1, other, taker, giver))
        return None

    def _exchange(self, *hops: Hop) -> tuple[Hop, ...]:
        for hop in hops:
            self._layout.move(hop.place, hop.giver, hop.taker)
        self._lead(hops[0].place, hops[0].taker)
        return hops

    def _lead(self, place: Place, broker: int) -> None:
        if place in self.of:
            del self._led[self.of[place]][place]
        self.of[place] = broker
        self._led[broker][place] = None


def _walk_back(arrivals: Mapping[int, Hop], taker: int) -> list[Hop]:
    """The hops of the path to `taker`, the last one first."""
    chain: list[Hop] = []
    while taker in arrivals and len(chain) <= len(arrivals):
        chain.append(arrivals[taker])
        taker = arrivals[taker].giver
    return chain
