"""The replicas of each broker while a plan is made: which may move where, and the cost of a move.

A partition's replicas are spread over racks as far as the racks' sizes allow: no rack has two more of them
than another rack with room. Racks count only if every broker has one.

**Invariant:** a partition keeps its number of replicas, and they are on different brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

Place = tuple[str, int]  # topic and partition
Assignment = Mapping[Place, Sequence[int]]


class Hop(NamedTuple):
    """A replica that moves from one broker to another; `cost` is the number of additional copies."""

    cost: int
    place: Place
    giver: int
    taker: int


class Layout:
    """`racks` has the rack, or '', of each broker that may have replicas in the end."""

    def __init__(self, before: Assignment, racks: Mapping[int, str]) -> None:
        self.brokers = sorted(racks)
        self.racks = dict(racks) if all(racks.values()) else dict.fromkeys(racks, "")
        # By number first, so that the first places are of all topics.
        self.places = sorted(before, key=lambda place: (place[1], place[0]))
        self.home = {place: tuple(before[place]) for place in self.places}
        self.held = {place: set(before[place]) for place in self.places}
        everybody = sorted({*racks, *(broker for held in self.held.values() for broker in held)})
        # Per broker: original replicas that stay, replicas that arrive, and original replicas that leave.
        self._stayed: dict[int, dict[Place, None]] = {broker: {} for broker in everybody}
        self._arrived: dict[int, dict[Place, None]] = {broker: {} for broker in everybody}
        self._gone: dict[int, dict[Place, None]] = {broker: {} for broker in everybody}
        self._in_rack = {place: dict.fromkeys(self.racks.values(), 0) for place in self.places}
        for place in self.places:
            for broker in self.held[place]:
                self._stayed[broker][place] = None
                if broker in self.racks:
                    self._in_rack[place][self.racks[broker]] += 1
        self._bounds = cache(self._spread)

    def counts(self) -> dict[int, int]:
        return {broker: self.count(broker) for broker in self.brokers}

    def count(self, broker: int) -> int:
        return len(self._stayed[broker]) + len(self._arrived[broker])

    def on(self, broker: int) -> Iterator[Place]:
        yield from self._arrived[broker]
        yield from self._stayed[broker]

    def may_move(self, place: Place, giver: int, taker: int) -> bool:
        """Whether the partition would stay sufficiently spread over racks."""
        if giver not in self.held[place] or taker in self.held[place]:
            return False
        source, target = self.racks[giver], self.racks[taker]
        if source == target:
            return True
        in_rack = self._in_rack[place]
        bounds = self._bounds(len(self.held[place]))
        return in_rack[source] > bounds[source][0] and in_rack[target] < bounds[target][1]

    def move(self, place: Place, giver: int, taker: int) -> None:
        self.held[place].remove(giver)
        self.held[place].add(taker)
        if giver in self.home[place]:
            del self._stayed[giver][place]
            self._gone[giver][place] = None
        else:
            del self._arrived[giver][place]
        if taker in self.home[place]:
            del self._gone[taker][place]
            self._stayed[taker][place] = None
        else:
            self._arrived[taker][place] = None
        for broker, change in ((giver, -1), (taker, 1)):
            if broker in self.racks:
                self._in_rack[place][self.racks[broker]] += change

    def settle(self, place: Place) -> None:
        """Move replicas off brokers that may have none: first to racks without one, then to the least loaded
        broker."""
        for giver in sorted(self.held[place] - self.racks.keys()):
            free = [broker for broker in self.brokers if broker not in self.held[place]]
            self.move(
                place, giver, min(free, key=lambda broker: (self._crowd(place, broker), self.count(broker)))
            )

    def spread_out(self, place: Place) -> None:
        """Move replicas from racks with too many of this partition to racks with too few."""
        bounds = self._bounds(len(self.held[place]))
        in_rack = self._in_rack[place]
        while True:
            over = [rack for rack in in_rack if in_rack[rack] > bounds[rack][1]]
            under = [rack for rack in in_rack if in_rack[rack] < bounds[rack][0]]
            if not over and not under:
                return
            sources = over or [rack for rack in in_rack if in_rack[rack] > bounds[rack][0]]
            targets = under or [rack for rack in in_rack if in_rack[rack] < bounds[rack][1]]
            givers = [broker for broker in sorted(self.held[place]) if self.racks[broker] in sources]
            takers = [b for b in self.brokers if self.racks[b] in targets and b not in self.held[place]]
            self.move(place, max(givers, key=self.count), min(takers, key=self.count))

    def direct_hop(self, giver: int, taker: int) -> Hop | None:
        """An original replica that moves directly from one broker to another."""
        for place in self._stayed[giver]:
            if taker not in self.home[place] and self.may_move(place, giver, taker):
                return Hop(1, place, giver, taker)
        return None

    def hops(self, giver: int, only_free: bool) -> dict[int, Hop]:
        """The cheapest hop to each broker that could get one of this broker's replicas."""
        found: dict[int, Hop] = {}
        for place in self._arrived[giver]:
            self._note(found, place, giver, self.brokers)
        for taker in self.brokers:
            for place in self._gone[taker]:
                if place in self._stayed[giver]:
                    self._note(found, place, giver, [taker])
        if not only_free:
            missing = [broker for broker in self.brokers if broker not in found]
            for place in self._stayed[giver]:
                if not missing:
                    break
                self._note(found, place, giver, missing)
                missing = [broker for broker in missing if broker not in found]
        return found

    def _note(self, found: dict[int, Hop], place: Place, giver: int, takers: Collection[int]) -> None:
        home = self.home[place]
        for taker in takers:
            cost = (taker not in home) - (giver not in home)
            if (taker not in found or cost < found[taker].cost) and self.may_move(place, giver, taker):
                found[taker] = Hop(cost, place, giver, taker)

    def _crowd(self, place: Place, broker: int) -> int:
        rack = self.racks[broker]
        low, high = self._bounds(len(self.held[place]))[rack]
        in_rack = self._in_rack[place][rack]
        return (in_rack >= low) + (in_rack >= high)

    def _spread(self, replicas: int) -> dict[str, tuple[int, int]]:
        """The minimum and the maximum of a partition's replicas in each rack."""
        sizes = {rack: list(self.racks.values()).count(rack) for rack in self.racks.values()}
        level = 0
        while sum(min(size, level + 1) for size in sizes.values()) <= replicas and level < replicas:
            level += 1
        return {rack: (min(size, level), min(size, level + 1)) for rack, size in sizes.items()}
