"""The worst moments of a simulated cluster, which chance alone hardly ever finds.

| ambush   | waits for                      | then                                                           |
|----------|--------------------------------|----------------------------------------------------------------|
| joining  | somebody to join an ISR        | the leader does not hear of it, nor the other from it; it goes |
| growth   | a leader to ask for that       | the store gets it late; who is to join comes back without disk |
| election | the controller to elect        | the store gets it late; who is elected loses power, comes back |

**Invariant:** an ambush springs once, and soon or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.cluster_checkers import is_partition
from tests.sim.cluster_node import ClusterNode
from tests.sim.cluster_tree import Commit
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.store import Multi, StoreRequest, Write

if TYPE_CHECKING:
    from tests.sim.cluster import World

WAITING_MS = 5_000


class Ambushes:
    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._random = world.clock.random
        self._until_ms = {"joining": 0, "growth": 0, "election": 0}
        world.committed.observers.append(self._on_commit)
        for node in world.nodes.values():
            node.on_request = partial(self._on_request, node)

    def lay(self) -> None:
        self._until_ms[self._random.choice(list(self._until_ms))] = self._clock.now_ms + WAITING_MS

    def _is_laid(self, name: str) -> bool:
        return self._world.faults.is_on and self._clock.now_ms < self._until_ms[name]

    def _spring(self, name: str, what: str) -> None:
        self._until_ms[name] = 0
        self._clock.count(f"ambush: {name}")
        self._clock.note(what)

    def _on_commit(self, commit: Commit) -> None:
        if not self._is_laid("joining"):
            return
        for path, data in commit.written.items():
            before = commit.before.get(path)
            if is_partition(path) and before is not None:
                old, new = json.loads(before), json.loads(data)
                joined = [node_id for node_id in new["isr"] if node_id not in old["isr"]]
                if joined and new["leader"] == old["leader"] != NOBODY:
                    self._until_ms["joining"] = 0
                    self._clock.after(0, partial(self._part, new["leader"], joined[0]))
                    return

    def _part(self, leader_id: int, joined_id: int) -> None:
        now_ms, leader = self._clock.now_ms, self._world.nodes[leader_id]
        self._spring("joining", f"{joined_id} has joined {leader_id}, and they are parted")
        for one, other in ((leader_id, joined_id), (joined_id, leader_id)):
            self._world.network.block(one, other, now_ms + 4_000, breaks=False)
        if leader.connection is not None:
            leader.connection.disconnect(now_ms, now_ms + 1_500)
        self._clock.after(self._random.choice((300, 1_000, 2_000)), lambda: self._world.faults.end(leader))

    def _on_request(self, node: ClusterNode, request: StoreRequest) -> None:
        """A broker asks the store for something, which is on its way."""
        if self._is_laid("growth"):
            for old, new in self.asked(request):
                joining = [n for n in new["isr"] if n not in old["isr"] and n != node.node_id]
                is_grown = new["leader_epoch"] == old["leader_epoch"] and old["leader"] == node.node_id
                if is_grown and joining and self._hold("growth", node, joining[0], is_of_disk=True):
                    return
        if self._is_laid("election"):
            for old, new in self.asked(request):
                elected = new["leader"]
                is_new = elected not in (NOBODY, node.node_id) and new["leader_epoch"] > old["leader_epoch"]
                if is_new and self._hold("election", node, elected, is_of_disk=False):
                    return

    def asked(self, request: StoreRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Partitions as they are, and as they are to be."""
        if isinstance(request.action, Multi):
            for operation in request.action.operations:
                if isinstance(operation, Write) and is_partition(operation.path):
                    before = self._world.committed.at(operation.path)
                    if before is not None:
                        yield json.loads(before), json.loads(operation.data)

    def _hold(self, name: str, asker: ClusterNode, victim_id: int, is_of_disk: bool) -> bool:
        world, victim = self._world, self._world.nodes[victim_id]
        if victim not in world.faults.running() or not world.may_lose([victim_id], is_of_disk):
            return False
        hold_ms = self._random.choice((150, 300, 800, 1_500))
        assert asker.connection is not None
        asker.connection.hold(self._clock.now_ms + hold_ms)
        self._spring(name, f"what {asker.node_id} asks for waits, and {victim_id} goes down")
        self._clock.after(0, lambda: self._strike(victim, is_of_disk))
        if is_of_disk:  # who asked hears of it, and is gone
            delay_ms = hold_ms + self._random.choice((100, 500, 2_000))
            self._clock.after(delay_ms, lambda: world.faults.end(asker))
        return True

    def _strike(self, victim: ClusterNode, is_of_disk: bool) -> None:
        world = self._world
        may_strike = world.damage.may_harm(victim) if is_of_disk else world.may_lose([victim.node_id], False)
        if victim not in world.faults.running() or not may_strike:
            return
        world.end_uncleanly(victim, loses_power=not is_of_disk)
        if is_of_disk:
            world.damage.harm(victim)
        world.faults.start_later(victim, 50)
