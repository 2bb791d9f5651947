"""What goes wrong in a simulated cluster, one thing after the other, as the plan has it.

Replicas may lose something as far as a cluster must bear it: of each partition fewer at a time than
`min.insync.replicas`, until they are back in the ISR. A power cut is a loss where not every write is synced,
a disk that is lost, fails or has damage is one always; a kill, and a disk that is full, never are.

**Invariant:** what goes wrong ends by itself, except that a broker that is down is started again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tests.sim.cluster_damage import STOP_MS_MAX
from tests.sim.cluster_network import CLIENTS
from tests.sim.cluster_node import ClusterNode
from tidelog.cluster.paths import BROKERS

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
            "disk full": self.fill_disk,
            "admin": world.admin.act,
            "ambush": world.ambushes.lay,
            "harm": self.harm,
            "kill early": self.kill_early,
            "kill writing": self.kill_writing,
            "remount": self.remount,
        }

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
        if self._random.random() < 0.3:
            self._world.damage.note_life(self._random.choice(list(self._world.nodes.values())))
        self._plan()

    # Brokers.

    def running(self) -> list[ClusterNode]:
        return [node for node in self._world.nodes.values() if node.is_running and not node.is_stopping]

    def start_later(self, node: ClusterNode, delay_ms: int | None = None) -> None:
        if delay_ms is None:
            delay_ms = self._random.choice((50, 1_000, 4_000, 10_000))

        def start() -> None:
            if not node.is_running:
                known = self._world.committed.at(f"{BROKERS}/{node.node_id}")
                self._clock.counts["restart within the session"] += known is not None
                node.start()

        self._clock.after(delay_ms, start)

    def kill(self) -> None:
        nodes = self.running()
        if nodes:
            node = self._random.choice(nodes)
            self._clock.count("kill")
            self._clock.note(f"{node.node_id} is killed")
            self._world.end_uncleanly(node, loses_power=False)
            self.start_later(node)
            self._clock.after(self._random.choice((10, 2_000)), lambda: self._lose_power_too(node))

    def _lose_power_too(self, node: ClusterNode) -> None:
        """The machine goes down after the process on it."""
        is_due = self._random.random() < 0.3 and self.is_on
        if is_due and not node.is_running and self._world.may_lose([node.node_id]):
            self._clock.count("power loss after a kill")
            self._world.end_uncleanly(node, loses_power=True)

    def lose_power(self) -> None:
        nodes = [node for node in self.running() if self._world.may_lose([node.node_id])]
        if nodes:
            node = self._random.choice(nodes)
            self._clock.count("power loss")
            self._clock.note(f"{node.node_id} loses power")
            self._world.end_uncleanly(node, loses_power=True)
            self.start_later(node)

    def black_out(self) -> None:
        """Several at once."""
        nodes = self.running()
        nodes = self._random.sample(nodes, self._random.randint(min(2, len(nodes)), len(nodes)))
        while nodes and not self._world.may_lose([node.node_id for node in nodes]):
            nodes.pop()
        if len(nodes) > 1:
            self._clock.count("blackout")
            for node in nodes:
                self._clock.note(f"{node.node_id} loses power")
                self._world.end_uncleanly(node, loses_power=True)
                self.start_later(node)

    def stop(self) -> None:
        nodes = [node for node in self.running() if not node.is_paused]
        if len(nodes) > 1:
            node = self._random.choice(nodes)
            self._clock.count("clean stop")
            self._clock.note(f"{node.node_id} stops")
            node.stop()
            self.start_later(node, self._random.choice((6_000, 9_000)))

    def pause(self) -> None:
        nodes = [node for node in self.running() if not node.is_paused]
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
        nodes = [node for node in self.running() if self._world.may_lose([node.node_id], is_of_disk=True)]
        if nodes:
            node, how = self._random.choice(nodes), self._random.randrange(4)
            self._clock.count("disk fault")
            self._clock.note(f"{node.node_id} has a disk fault of kind {how}")
            node.is_full = False
            self._world.lost.on_loss(node.node_id, is_of_disk=True)
            after = self._random.randint(0, 10)
            if how == 0:  # what is written in part looks like damage
                node.disk.fail_write(after, errno.ENOSPC, self._random.random())
            elif how == 1:
                node.disk.fail_write(after, errno.EIO, self._random.random())
            elif how == 2:
                node.disk.fail_sync(after)
            else:
                node.disk.fail_read(after)
            self._replace_later(node)

    def fill_disk(self) -> None:
        """Nothing is lost by that."""
        nodes = [node for node in self.running() if not node.disk.is_faulty]
        if nodes:
            node = self._random.choice(nodes)
            self._clock.count("disk full")
            self._clock.note(f"the disk of {node.node_id} is full")
            node.is_full = True
            node.disk.fail_write(self._random.randint(0, 10), errno.ENOSPC)
            self._replace_later(node)

    def _replace_later(self, node: ClusterNode) -> None:
        life = node.life
        self._clock.after(self._random.choice((1_000, 8_000)), lambda: self._replace(node, life))

    def _replace(self, node: ClusterNode, life: int) -> None:
        """Somebody has seen to the disk, and starts the broker again."""
        if not self.is_on:
            return  # everything is healed already
        if node.is_running and node.life == life:
            loses_power = self._random.random() < 0.5 and self._world.may_lose([node.node_id])
            self._world.end_uncleanly(node, loses_power)
        node.disk.repair()
        node.is_full = False
        if not node.is_running:
            self._world.damage.repair(node)
            self.start_later(node, 100)

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

    # The disk, between two lives.

    def harm(self) -> None:
        """A broker ends somehow, something happens to its disk, and it comes back."""
        damage = self._world.damage
        nodes = [node for node in self.running() if damage.may_harm(node) and not node.is_paused]
        if not nodes:
            return
        node, how = self._random.choice(nodes), self._random.randrange(4)
        if how == 0 and len(self.running()) > 1:
            self._clock.note(f"{node.node_id} stops")
            node.stop()
            self._harm_when_down(node, self._clock.now_ms + STOP_MS_MAX)
            return
        self._clock.note(f"{node.node_id} goes down for damage of kind {how}")
        self._world.end_uncleanly(node, loses_power=how == 1)
        damage.harm(node)
        self._start_broken(node)

    def _harm_when_down(self, node: ClusterNode, until_ms: int) -> None:
        if node.is_running and self._clock.now_ms < until_ms:
            self._clock.after(100, lambda: self._harm_when_down(node, until_ms))
        elif not node.is_running and self.is_on:
            if self._world.damage.may_harm(node):
                self._world.damage.harm(node)
            self._start_broken(node)

    def _start_broken(self, node: ClusterNode) -> None:
        """Perhaps it ends again before it has registered, some times in a row."""
        if self._random.random() < 0.5:
            self.start_later(node)
        else:
            self._start_and_kill(node, self._random.randint(1, 3))

    def _start_and_kill(self, node: ClusterNode, count: int) -> None:
        if not self.is_on or node.is_running:
            return
        if count == 0:
            self.start_later(node, 50)
            return
        node.start()
        life = node.life

        def kill() -> None:
            if self.is_on and node.is_running and node.life == life:
                assert node.broker is not None
                self._clock.count("kill" if node.broker.is_serving else "killed before it registered")
                self._clock.note(f"{node.node_id} is killed, {count}")
                self._world.end_uncleanly(node, loses_power=False)
                self._clock.after(50, lambda: self._start_and_kill(node, count - 1))

        self._clock.after(self._random.choice((5, 20, 50, 100, 200)), kill)

    def kill_early(self) -> None:
        nodes = self.running()
        if nodes:
            node = self._random.choice(nodes)
            self._clock.note(f"{node.node_id} is killed, and again when it starts")
            self._world.end_uncleanly(node, loses_power=False)
            self._start_and_kill(node, self._random.randint(1, 3))

    def kill_writing(self) -> None:
        """The next write to a log that crosses a page breaks off there, with the process."""
        nodes = self.running()
        if nodes:
            node = self._random.choice(nodes)
            node.disk.kills_writing = True
            self._clock.note(f"{node.node_id} will be killed while it writes")

    def remount(self) -> None:
        """Some or all go down with their machines; all that they wrote was written back before. Nobody can
        know that, and it is no loss."""
        nodes = self.running()
        nodes = self._random.sample(nodes, self._random.choice((1, len(nodes)))) if nodes else []
        for node in nodes:
            self._clock.count("remount")
            self._clock.note(f"{node.node_id} goes down, and its disk is mounted again")
            self._world.end_uncleanly(node, loses_power=False)
            node.remount()
            self.start_later(node)

    # The worst moments.

    def end(self, node: ClusterNode) -> None:
        if self.is_on and node in self.running():
            self._clock.note(f"{node.node_id} is killed")
            self._world.end_uncleanly(node, loses_power=False)
            self.start_later(node)

    # The store.

    def expire(self) -> None:
        nodes = self.running()
        if nodes:
            node = self._random.choice(nodes)
            assert node.connection is not None
            self._clock.note(f"the session of {node.node_id} expires")
            node.connection.expire(self._clock.now_ms)

    def disconnect(self) -> None:
        nodes = self.running()
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
