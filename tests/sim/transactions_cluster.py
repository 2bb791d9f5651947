"""A simulated cluster with transactional producers: a bank whose accounts are partitions.

Everything that befalls a cluster befalls this one. Its internal topics are made before anything goes wrong,
and must bear what the others must.

**Invariant:** everything that happens follows from the seed.
"""

from __future__ import annotations

import json
from typing import Any

from tests.sim.cluster import COMING_UP_MS, PRODUCER_ID, World
from tests.sim.cluster_checkers import Bound
from tests.sim.cluster_clients import Producer, Spot
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_groups import OFFSETS_TOPIC, Committer
from tests.sim.cluster_node import ClusterNode
from tests.sim.cluster_plan import Plan as ClusterPlan
from tests.sim.transactions_clients import (
    CommittedReader,
    Leaver,
    Plan,
    Script,
    StableOffsetReader,
    Steps,
    TransactionalProducer,
)
from tests.sim.transactions_ledger import Ledger
from tests.wire.harness import FIND_COORDINATOR
from tidelog.cluster.features import TRANSACTIONS_TOPIC
from tidelog.cluster.paths import TOPICS
from tidelog.replication.partition import Role

ALONE_MS = 10_000_000  # a transaction that does not time out, though clocks jump by an hour
HANGING_MS = 1_000  # that an end may take besides the timeout
LEFT_OPEN_MS = (2_000, 4_000, 15_000)
INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def _change_plan(plan: ClusterPlan) -> None:
    topic = plan.topics[0]
    plan.properties |= {
        "transaction.max.timeout.ms": str(ALONE_MS),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(topic.replica_count),
        "transaction.state.log.min.isr": str(topic.min_insync),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }


class Founder(Script):
    """Asks for the coordinators of both kinds until there are some, so that their topics are made."""

    def live(self) -> Steps:
        for key_type in (0, 1):
            while True:
                nodes = self.world.serving()
                found = None
                if nodes:
                    found = yield from self.call(
                        self.random.choice(nodes),
                        FIND_COORDINATOR,
                        4,
                        key_type=key_type,
                        coordinator_keys=("a",),
                    )
                if found is not None and not found.coordinators[0].error_code:
                    break
                yield from self.pause(100)


class TransactionWorld(World):
    def __init__(self, seed: int) -> None:
        self.ledger = Ledger()
        self.traders: list[TransactionalProducer] = []
        self.readers: list[CommittedReader] = []
        super().__init__(seed, _change_plan)
        self.walk_away = self.clock.random.choice((0.0, 0.05, 0.1))

    # Its clients.

    def come_up(self) -> None:
        super().come_up()
        founder = Founder(self)
        if not self.run_until(
            self.clock.now_ms + COMING_UP_MS, lambda: founder.is_over and self._is_founded()
        ):
            raise Violation("there are no coordinators")
        self._add_traders()

    def _is_founded(self) -> bool:
        names = [topic["name"] for _, topic in self.committed.topics()]
        return all(name in names for name in INTERNAL)

    def _add_clients(self) -> None:
        for topic_id, topic in list(self.committed.topics()):
            plan = next((plan for plan in self.plan.topics if plan.name == topic["name"]), None)
            if plan is not None:
                self.spots += [Spot(plan.name, topic_id, index) for index in range(plan.partition_count)]

    def _add_traders(self) -> None:
        random = self.clock.random
        for number, spot in enumerate(self.spots):
            self.producers.append(Producer(self, spot, f"i{number}", PRODUCER_ID + 900_000 + number))
            self.readers.append(CommittedReader(self, spot))
        for number in range(random.randint(2, 4)):
            is_alone = random.random() < 0.5
            timeout_ms = ALONE_MS if is_alone else random.choice((1_000, 4_000, 15_000))
            plan = Plan(f"t{number}", random.random() < 0.6, is_alone, timeout_ms)
            for _ in range(1 if is_alone else random.randint(1, 2)):
                self.traders.append(TransactionalProducer(self, plan, self.spots))
            StableOffsetReader(self, plan.name, self.spots[0])
        Committer(self)

    # What is so.

    def has_other(self, trader: TransactionalProducer) -> bool:
        """Whether its transactional id has another instance."""
        return any(
            each.name == trader.name and each is not trader and not each.is_over for each in self.traders
        )

    def _bounds(self) -> dict[str, Bound]:
        bounds, plan = super()._bounds(), self.plan.topics[0]
        for topic_id, topic in self.committed.topics():
            if topic["name"] == TRANSACTIONS_TOPIC:
                bounds[f"{TOPICS}/{topic_id.hex()}"] = Bound(plan.min_insync - 1, plan.is_flushed)
        return bounds

    def coordinates_groups(self, node: ClusterNode) -> bool:
        """Whether it does as the store has it."""
        for topic_id, topic in self.committed.topics():
            if topic["name"] == OFFSETS_TOPIC and node.broker is not None:
                facts: dict[str, Any] = json.loads(self.committed.at(f"{TOPICS}/{topic_id.hex()}/0") or b"{}")
                partition = node.broker.partitions.find(OFFSETS_TOPIC, 0)
                is_led = partition is not None and partition.role is Role.LEADER
                return is_led and (facts["leader"], facts["leader_epoch"]) == (
                    node.node_id,
                    partition.leader_epoch if partition is not None else -1,
                )
        return False

    # The end.

    def heal(self) -> None:
        self.walk_away = 0.0
        self._counts = {id(trader): trader.told_count for trader in self.traders}
        super().heal()
        self._leave_open()
        self._wait_until(self._is_quiet, lambda: "what was left open does not end")

    def _unwell(self, counts: list[int]) -> str:
        problem = super()._unwell(counts)
        names = {trader.name for trader in self.traders}
        went_on = {trader.name for trader in self.traders if trader.told_count > self._counts[id(trader)]}
        if not problem and names != went_on:
            problem = f"{sorted(names - went_on)} cannot end transactions"
        if not problem:
            for trader in self.traders:
                trader.wants_more = False
        return problem

    def _is_quiet(self) -> bool:
        return (
            super()._is_quiet()
            and not self._unstable()
            and all(reader.offset >= self._leader_end(reader.spot) for reader in self.readers)
        )

    def _unstable(self) -> list[Spot]:
        return [spot for spot in self.spots if self._stable_offset(spot) < self._leader_end(spot)]

    def _stable_offset(self, spot: Spot) -> int:
        partition = self.find(self.nodes[self.facts(spot)["leader"]], spot)
        return -1 if partition is None else partition.last_stable_offset

    def _leader_end(self, spot: Spot) -> int:
        partition = self.find(self.nodes[self.facts(spot)["leader"]], spot)
        return 0 if partition is None else partition.log.end_offset

    def _leave_open(self) -> None:
        """Everybody serves, and clocks agree: what a producer leaves open holds the last stable offset until
        its timeout, and no longer than it takes to end it."""
        for node in self.nodes.values():
            node.clock_offset_ms = 0
        for number, timeout_ms in enumerate(self.clock.random.sample(LEFT_OPEN_MS, 2)):
            spots = self.clock.random.sample(self.spots, min(2, len(self.spots)))
            leaver = Leaver(self, Plan(f"gone{number}", number == 0, False, timeout_ms), spots)
            self._await_over(leaver)
            self._await_stable(leaver, spots)

    def _await_over(self, leaver: Leaver) -> None:
        self._wait_until(lambda: leaver.is_over, lambda: f"{leaver.name} cannot begin a transaction")

    def _await_stable(self, leaver: Leaver, spots: list[Spot]) -> None:
        epochs = self._leader_epochs(spots)

        def is_stable() -> bool:
            return not any(spot in spots for spot in self._unstable())

        is_early = self.run_until(leaver.asked_ms + leaver.plan.timeout_ms - 1, is_stable)
        if is_early and leaver.has_written:
            raise Violation(f"{leaver.name} had {leaver.plan.timeout_ms} ms, and was ended before")
        latest_ms = leaver.began_ms + leaver.plan.timeout_ms + HANGING_MS
        is_in_time = self.run_until(latest_ms, is_stable)
        if not is_in_time and epochs == self._leader_epochs(spots):
            raise Violation(f"{leaver.name} holds {self._unstable()} at {latest_ms}")
        self.clock.counts["left open"] += is_in_time

    def _leader_epochs(self, spots: list[Spot]) -> dict[str, int]:
        """Of these, and of what keeps transactions."""
        paths = [spot.path for spot in spots]
        for topic_id, topic in self.committed.topics():
            if topic["name"] == TRANSACTIONS_TOPIC:
                paths += [f"{TOPICS}/{topic_id.hex()}/{index}" for index in range(2)]
        return {path: json.loads(self.committed.at(path) or b"{}").get("leader_epoch", -1) for path in paths}

    def read_all(self) -> None:
        """Readers have been everywhere."""
        for spot in self.spots:
            for value in self.kept.values_sent(spot):
                if not self.ledger.is_known(spot, value):
                    raise Violation(f"{spot} lost {value!r}")
        self.ledger.check()

    def tally(self) -> dict[str, int]:
        counts = super().tally()
        counts["told committed"] = self.ledger.committed_count
        counts["told aborted"] = self.ledger.aborted_count
        return counts
