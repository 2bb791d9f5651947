"""What goes wrong in a simulated cluster, one thing after the other, as the plan has it.

Brokers may be lost as far as a cluster must bear it: of each partition fewer than `min.insync.replicas`,
where one that has stopped uncleanly is lost until it is back in the ISR. Where every write is synced, all at
once.

**Invariant:** what goes wrong ends by itself, except that a broker that is down is started again.
"""

from __future__ import annotations

import errno
import json
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.cluster_checkers import is_partition
from tests.sim.cluster_network import CLIENTS
from tests.sim.cluster_node import ClusterNode
from tests.sim.cluster_tree import Commit
from tidelog.cluster.image import NOBODY

if TYPE_CHECKING:
    from tests.sim.cluster import World


class FaultMaker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._random = world.clock.random
        self.is_on = False
        self._acts = {
            "kill": self.kill,
            "lose power": self.lose_power,
            "blackout": self.black_out,
            "stop": self.stop,
            "pause": self.pause,
            "block": self.block,
            "isolate": self.isolate,
            "cut": self.cut,
            "clock": self.jump_clock,
            "expire": self.expire,
            "disconnect": self.disconnect,
            "store down": self.stop_store,
            "disk": self.fail_disk,
            "admin": world.admin.act,
            "ambush": self.ambush,
        }
        self._ambush_until_ms = 0
        world.committed.observers.append(self._on_commit)

    def begin(self) -> None:
        self.is_on = True
        self._plan()

    def _plan(self) -> None:
        self._clock.after(int(self._random.expovariate(1 / self._world.plan.fault_pause_ms)) + 1, self._act)

    def _act(self) -> None:
        if not self.is_on:
            return
        weights = self._world.plan.weights
        names = [name for name in self._acts if weights.get(name)]
        if names:
            name = self._random.choices(names, [weights[name] for name in names])[0]
            self._acts[name]()
        self._plan()

    # Brokers.

    def _running(self) -> list[ClusterNode]:
        return [node for node in self._world.nodes.values() if node.is_running and not node.is_stopping]

    def _start_later(self, node: ClusterNode, delay_ms: int | None = None) -> None:
        if delay_ms is None:
            delay_ms = self._random.choice((50, 1_000, 4_000, 10_000))

        def start() -> None:
            if not node.is_running:
                node.start()

        self._clock.after(delay_ms, start)

    def kill(self) -> None:
        nodes = [node for node in self._running() if node.keeps_all or self._world.may_lose([node.node_id])]
        if nodes:
            node = self._random.choice(nodes)
            self._clock.count("kill")
            self._clock.note(f"{node.node_id} is killed")
            self._world.end_uncleanly(node, loses_power=False)
            self._start_later(node)
            self._clock.after(self._random.choice((10, 2_000)), lambda: self._lose_power_too(node))

    def _lose_power_too(self, node: ClusterNode) -> None:
        """The machine goes down after the process on it."""
        is_due = self._random.random() < 0.3 and self.is_on
        if is_due and not node.is_running and self._world.may_lose([node.node_id]):
            self._clock.count("power loss after a kill")
            self._world.end_uncleanly(node, loses_power=True)

    def lose_power(self) -> None:
        nodes = [node for node in self._running() if self._world.may_lose([node.node_id])]
        if nodes:
            node = self._random.choice(nodes)
            self._clock.count("power loss")
            self._clock.note(f"{node.node_id} loses power")
            self._world.end_uncleanly(node, loses_power=True)
            self._start_later(node)

    def black_out(self) -> None:
        """Several at once."""
        nodes = self._running()
        nodes = self._random.sample(nodes, self._random.randint(min(2, len(nodes)), len(nodes)))
        while nodes and not self._world.may_lose([node.node_id for node in nodes]):
            nodes.pop()
        if len(nodes) > 1:
            self._clock.count("blackout")
            for node in nodes:
                self._clock.note(f"{node.node_id} loses power")
                self._world.end_uncleanly(node, loses_power=True)
                self._start_later(node)

    def stop(self) -> None:
        nodes = [node for node in self._running() if not node.is_paused]
        if len(nodes) > 1:
            node = self._random.choice(nodes)
            self._clock.count("clean stop")
            self._clock.note(f"{node.node_id} stops")
            node.stop()
            self._start_later(node, self._random.choice((6_000, 9_000)))

    def pause(self) -> None:
        nodes = [node for node in self._running() if not node.is_paused]
        if nodes:
            node = self._random.choice(nodes)
            pause_ms = self._random.choice((200, 1_500, 4_000, 9_000))
            self._clock.count("pause")
            self._clock.note(f"{node.node_id} is paused for {pause_ms}")
            until_ms = self._clock.now_ms + pause_ms
            assert node.connection is not None
            timeout_ms = self._world.store.faults.session_timeout_ms
            if self._random.random() < 0.5:
                node.connection.disconnect(self._clock.now_ms, until_ms)
            elif pause_ms > timeout_ms:
                connection = node.connection

                def expire() -> None:
                    if node.connection is connection:
                        connection.expire(self._clock.now_ms)

                self._clock.after(timeout_ms, expire)
            node.pause(until_ms)

    def jump_clock(self) -> None:
        node = self._random.choice(list(self._world.nodes.values()))
        node.clock_offset_ms = self._random.choice((-3_600_000, -5_000, 0, 5_000, 3_600_000))
        self._clock.count("clock jump")

    def fail_disk(self) -> None:
        nodes = [node for node in self._running() if self._world.may_lose([node.node_id])]
        if nodes:
            node, how = self._random.choice(nodes), self._random.randrange(4)
            self._clock.count("disk fault")
            self._clock.note(f"{node.node_id} has a disk fault of kind {how}")
            self._world.lost.on_unclean(node.node_id)
            after = self._random.randint(0, 10)
            if how == 0:
                node.disk.fail_write(after, errno.ENOSPC, self._random.random())
            elif how == 1:
                node.disk.fail_write(after, errno.EIO, self._random.random())
            elif how == 2:
                node.disk.fail_sync(after)
            else:
                node.disk.fail_read(after)
            life = node.life
            self._clock.after(self._random.choice((1_000, 8_000)), lambda: self._replace(node, life))

    def _replace(self, node: ClusterNode, life: int) -> None:
        """Somebody has seen to the disk, and starts the broker again."""
        if not self.is_on:
            return  # everything is healed already
        if node.is_running and node.life == life:
            self._world.end_uncleanly(node, loses_power=self._random.random() < 0.5)
        node.disk.repair()
        if not node.is_running:
            self._start_later(node, 100)

    # The network.

    def block(self) -> None:
        """Between two, perhaps one way only."""
        one, other = self._random.sample([CLIENTS, *self._world.nodes], 2)
        until_ms = self._clock.now_ms + self._random.choice((500, 3_000, 8_000))
        breaks = self._random.random() < 0.5
        self._clock.count("block")
        self._clock.note(f"from {one} to {other} nothing goes until {until_ms}")
        self._world.network.block(one, other, until_ms, breaks)
        if self._random.random() < 0.6:
            self._world.network.block(other, one, until_ms, breaks)

    def isolate(self) -> None:
        """One from all others, and perhaps from the store."""
        node = self._random.choice(list(self._world.nodes.values()))
        until_ms = self._clock.now_ms + self._random.choice((1_000, 4_000, 9_000))
        breaks, has_clients = self._random.random() < 0.5, self._random.random() < 0.5
        self._clock.count("isolation")
        self._clock.note(f"{node.node_id} is alone until {until_ms}")
        for other in self._world.nodes if has_clients else [CLIENTS, *self._world.nodes]:
            if other != node.node_id:
                self._world.network.block(node.node_id, other, until_ms, breaks)
                self._world.network.block(other, node.node_id, until_ms, breaks)
        if node.connection is not None and self._random.random() < 0.5:
            node.connection.disconnect(self._clock.now_ms, until_ms)

    def cut(self) -> None:
        self._world.network.cut_some()

    # The worst moment.

    def ambush(self) -> None:
        """Lie in wait for somebody to join an ISR."""
        self._ambush_until_ms = self._clock.now_ms + 5_000

    def _on_commit(self, commit: Commit) -> None:
        if self._clock.now_ms >= self._ambush_until_ms:
            return
        for path, data in commit.written.items():
            before = commit.before.get(path)
            if is_partition(path) and before is not None:
                old, new = json.loads(before), json.loads(data)
                joined = [node_id for node_id in new["isr"] if node_id not in old["isr"]]
                if joined and new["leader"] == old["leader"] != NOBODY:
                    self._ambush_until_ms = 0
                    self._clock.after(0, partial(self._spring, new["leader"], joined[0]))
                    return

    def _spring(self, leader_id: int, joined_id: int) -> None:
        """The leader does not hear that somebody has joined, who no longer hears from the leader; then it is
        gone."""
        now_ms, leader = self._clock.now_ms, self._world.nodes[leader_id]
        self._clock.count("ambush")
        self._clock.note(f"{joined_id} has joined {leader_id}, and they are parted")
        for one, other in ((leader_id, joined_id), (joined_id, leader_id)):
            self._world.network.block(one, other, now_ms + 4_000, breaks=False)
        if leader.connection is not None:
            leader.connection.disconnect(now_ms, now_ms + 1_500)
        self._clock.after(self._random.choice((300, 1_000, 2_000)), lambda: self._end(leader))

    def _end(self, node: ClusterNode) -> None:
        is_bearable = node.keeps_all or self._world.may_lose([node.node_id])
        if self.is_on and is_bearable and node in self._running():
            self._clock.note(f"{node.node_id} is killed")
            self._world.end_uncleanly(node, loses_power=False)
            self._start_later(node)

    # The store.

    def expire(self) -> None:
        nodes = self._running()
        if nodes:
            node = self._random.choice(nodes)
            assert node.connection is not None
            self._clock.note(f"the session of {node.node_id} expires")
            node.connection.expire(self._clock.now_ms)

    def disconnect(self) -> None:
        nodes = self._running()
        if nodes:
            node = self._random.choice(nodes)
            until_ms = self._clock.now_ms + self._random.choice((300, 2_500, 8_000))
            assert node.connection is not None
            self._clock.note(f"{node.node_id} is without the store until {until_ms}")
            node.connection.disconnect(self._clock.now_ms, until_ms)

    def stop_store(self) -> None:
        until_ms = self._clock.now_ms + self._random.choice((300, 3_000, 8_000))
        self._clock.count("store down")
        self._world.store.stop(self._clock.now_ms, until_ms)
