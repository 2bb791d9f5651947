"""A run of a cluster whose store is restored from a backup in the end: what replicas have must be enough.

Things go wrong before and after the backup. Then all brokers are killed, the store is as it was, an operator
says so, and everything heals. Replicas do not move meanwhile: the backup does not say where they have gone.

**Invariant:** everything that happens follows from the seed.
"""

from __future__ import annotations

from tests.sim.cluster import World
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_groups import OFFSETS_TOPIC
from tidelog.cluster.paths import CONTROLLER_EPOCH

GROUPS_MS = 60_000
ROUNDS_MAX = 20  # of kills, until nobody is started again


class RestoredWorld(World):
    def run(self) -> None:
        self.come_up()
        if not self.run_until(self.clock.now_ms + GROUPS_MS, self._has_groups):
            raise Violation("there is no topic of groups")
        self.store.faults = self.plan.store
        self.network.faults.cut, self.network.faults.slow = self.plan.cut, self.plan.slow
        self.faults.begin()
        self.run_until(self.clock.now_ms + self.clock.random.randint(0, self.plan.faults_ms // 2))
        backup = self.committed.back_up()
        self.run_until(self.clock.now_ms + self.clock.random.randint(0, self.plan.faults_ms // 2))
        self.faults.is_on = False
        self._kill_all()
        self.committed.restore(backup)
        self.committed.declare_restored()
        self.epochs.on_restored(self.committed.at(CONTROLLER_EPOCH))
        self.heal()
        self.read_all()

    def check_folders(self) -> None:
        """Logs that the store has forgotten are kept."""

    def _has_groups(self) -> bool:
        return any(topic["name"] == OFFSETS_TOPIC for _, topic in self.committed.topics())

    def _kill_all(self) -> None:
        """Whoever is started again meanwhile too, until no session is left."""
        for _ in range(ROUNDS_MAX):
            for node in self.nodes.values():
                node.disk.repair()
                node.is_full = node.disk.kills_writing = False
                if node.is_running:
                    self.end_uncleanly(node, loses_power=False)
            self.run_until(self.clock.now_ms + 2 * self.plan.store.session_timeout_ms)
            if not self.committed.has_sessions and not any(node.is_running for node in self.nodes.values()):
                return
        raise Violation("brokers are started again and again")
