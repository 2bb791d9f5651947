"""A whole cluster in one process: brokers, disks, network, clocks, store and clients under one seed.

A run has four parts: the cluster comes up; things go wrong while clients work; everything heals, and must be
writable and in sync again in bounded time; what was acknowledged is read again, all of it.

**Invariant:** everything that happens follows from the seed; a claim that does not hold raises `Violation`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.sim.cluster_admin import Admin
from tests.sim.cluster_ambushes import Ambushes
from tests.sim.cluster_checkers import (
    Bound,
    CommittedNeverLost,
    ConsistentRead,
    ControllerEpochMonotonic,
    HighWatermarkNeverFalls,
    LeaderHasAll,
    ReplicasAgreeBelowHighWatermark,
    SingleLeaderPerEpoch,
    WhoIsLost,
)
from tests.sim.cluster_clients import Consumer, OffsetAsker, Producer, Spot, split_batches
from tests.sim.cluster_clock import Clock, Violation
from tests.sim.cluster_damage import Damage
from tests.sim.cluster_faults import FaultMaker
from tests.sim.cluster_groups import OFFSETS_TOPIC, CommitsStay, Committer, OffsetReader
from tests.sim.cluster_moves import Mover, ReplicasMoveUnderNewEpochs
from tests.sim.cluster_network import Network
from tests.sim.cluster_node import ClusterNode
from tests.sim.cluster_plan import Plan, choose_plan, quiet
from tests.sim.cluster_tree import Commit, Committed
from tests.sim.store import NEVER, SimulatedStore
from tidelog.broker.broker import Broker
from tidelog.cluster.facts import FLUSHED, NOBODY
from tidelog.cluster.paths import TOPICS
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

LOOK_MS = 500
COMING_UP_MS = 60_000
HEALING_MS = 120_000
LEADING_MS = (2, 5, 10, 20, 40, 80, 160, 320)  # after an election somebody leads
PRODUCER_ID = 1_000


class World:
    leaders_kind, reads_kind = LeaderHasAll, ConsistentRead
    kept_kind, replicas_kind = CommittedNeverLost, ReplicasAgreeBelowHighWatermark
    producer_kind = Producer

    def __init__(self, seed: int, change_plan: Callable[[Plan], None] = lambda plan: None) -> None:
        self.clock = Clock(seed)
        random = self.clock.random
        self.plan = choose_plan(random)
        change_plan(self.plan)
        session_ms = self.plan.store.session_timeout_ms
        self.store = SimulatedStore(random, quiet(session_ms))
        self.committed = self.store.tree = Committed()
        self.committed.node_of = self.store.node_of
        self.network = Network(self)
        self.single = SingleLeaderPerEpoch()
        self.epochs, self.watermark = ControllerEpochMonotonic(), HighWatermarkNeverFalls()
        self.reads, self.kept = self.reads_kind(), self.kept_kind()
        self.leaders = self.leaders_kind()
        self.leaders.plan = self._look_soon
        self.replicas = self.replicas_kind()
        self.commits = CommitsStay()
        self.lost = WhoIsLost(self.committed)
        moves = ReplicasMoveUnderNewEpochs()
        for checker in (self.single, self.leaders, self.epochs, self.lost, moves):
            self.committed.observers.append(checker.on_commit)
        self.committed.observers.append(self._note_commit)
        self.nodes = {node_id: self._make_node(node_id) for node_id in range(1, self.plan.broker_count + 1)}
        self.admin = Admin(self)
        self.mover = Mover(self, seed)
        self.damage = Damage(self)
        self.ambushes = Ambushes(self)
        self.faults = FaultMaker(self)
        self.spots: list[Spot] = []
        self.producers: list[Producer] = []
        self.cut_count = self.change_count = 0

    def _make_node(self, node_id: int) -> ClusterNode:
        plan = self.plan
        own = {"node.id": str(node_id), "broker.rack": plan.racks[node_id % len(plan.racks)]}
        return ClusterNode(
            self, node_id, {**plan.properties, **own}, [f"d{n}" for n in range(plan.directory_count)]
        )

    def _note_commit(self, commit: Commit) -> None:
        for path in commit.paths:
            if path.startswith((TOPICS, "/controller", "/brokers")):
                self.clock.note(f"{path} {commit.written.get(path, b'is gone').decode()}")

    def note_events(self, node: ClusterNode, broker: Broker) -> None:
        events, broker.outbox.events = broker.outbox.events, []
        for event in events:
            self.clock.note(f"{node.node_id}: {event}")
            if event.name.startswith("log cleaned"):
                self.clock.counts[event.name] += 1

    # The loop.

    def run_until(self, time_ms: int, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Until then, or until it is done; whether it is."""
        clock = self.clock
        while not is_done():
            store_ms = self.store.next_ms
            next_ms = clock.next_ms
            if min(store_ms, NEVER if next_ms is None else next_ms) > time_ms:
                clock.now_ms = time_ms
                return False
            if next_ms is None or store_ms <= next_ms:
                clock.now_ms = max(store_ms, clock.now_ms)
                self.store.advance(clock.now_ms)
                for node in self.nodes.values():
                    if node.connection is not None:
                        node.poll_store()
            else:
                clock.step()
        return True

    def _look(self) -> None:
        self.single.look(self)
        self.replicas.look(self)
        self.leaders.look(self)
        self.clock.after(LOOK_MS, self._look)

    def _look_soon(self, path: str) -> None:
        """Look at who leads a partition as soon as it does."""
        for spot in self.spots:
            if spot.path == path:
                for delay_ms in LEADING_MS:
                    self.clock.after(delay_ms, partial(self.leaders.look_at, self, spot))

    # The parts of a run.

    def run(self) -> None:
        self.come_up()
        self.go_wrong()
        self.heal()
        self.read_all()

    def come_up(self) -> None:
        for node in self.nodes.values():
            self.clock.after(self.clock.random.randint(0, 200), node.start)
        self._look()
        wanted = [plan.name for plan in self.plan.topics]

        def ask() -> None:
            known = [topic["name"] for _, topic in self.committed.topics()]
            for plan in self.plan.topics:
                if plan.name not in known and len(self.serving()) == len(self.nodes):
                    self.admin.create(plan.name, plan.partition_count, plan.replica_count, plan.config)
            if any(name not in known for name in wanted):
                self.clock.after(1_000, ask)

        def is_up() -> bool:
            return len(list(self.committed.topics())) == len(wanted)

        ask()
        if not self.run_until(COMING_UP_MS, is_up):
            raise Violation("the cluster does not come up")
        self._add_clients()

    def _add_clients(self) -> None:
        for topic_id, topic in list(self.committed.topics()):
            plan = next(plan for plan in self.plan.topics if plan.name == topic["name"])
            for index in range(plan.partition_count):
                spot = Spot(plan.name, topic_id, index)
                self.spots.append(spot)
                for number in range(2):
                    count = len(self.producers)
                    producer_id = PRODUCER_ID + count if number == 0 or self.clock.chance(0.4) else -1
                    self.producers.append(
                        self.producer_kind(
                            self, spot, f"{'i' if producer_id >= 0 else 'o'}{count}", producer_id
                        )
                    )
                Consumer(self, spot)
                OffsetAsker(self, spot)
        Committer(self)
        for number in range(2):
            OffsetReader(self, number)

    def go_wrong(self) -> None:
        self.store.faults = self.plan.store
        self.network.faults.cut, self.network.faults.slow = self.plan.cut, self.plan.slow
        self.faults.begin()
        self.mover.begin()
        self.run_until(self.clock.now_ms + self.plan.faults_ms)

    def heal(self) -> None:
        """No more faults; whoever is down comes back."""
        self.clock.note("everything heals")
        self.faults.is_on = False
        self.store.faults = quiet(self.plan.store.session_timeout_ms)
        self.network.heal()
        self.network.faults.cut = self.network.faults.slow = 0.0
        self.run_until(self.clock.now_ms + 10_000, self._is_awake)
        for node in self.nodes.values():
            node.disk.repair()
            node.is_full = node.disk.kills_writing = False
        self.run_until(self.clock.now_ms + 3 * self.plan.flush_ms_max)  # what fails now has been told
        for node in self.nodes.values():
            if node.broker is not None and any(home.failure for home in node.broker.disks.directories):
                self.end_uncleanly(node, loses_power=False)
            if not node.is_running:
                node.start()
        counts = [producer.acknowledged_count for producer in self.producers]
        commit_count = self.commits.acknowledged_count
        problem = ""

        def is_well() -> bool:
            nonlocal problem
            problem = self._unwell(counts)
            can_commit = self.commits.acknowledged_count > commit_count
            if not problem and not can_commit and not self.can_lose_groups and not self._wait_groups():
                problem = "no group can commit"
            return not problem

        self._wait_until(is_well, lambda: problem)
        for producer in self.producers:
            producer.wants_more = False
        self._wait_until(self._is_quiet, lambda: "replicas do not get to the same end")
        self.check_folders()
        self.single.look(self)
        self.replicas.look(self)

    def check_folders(self) -> None:
        self.mover.check_folders()

    @property
    def can_lose_groups(self) -> bool:
        """Whether more brokers were gone when the topic of the groups was made than it must bear."""
        bounds = self._bounds()
        for topic_id, topic in self.committed.topics():
            if topic["name"] == OFFSETS_TOPIC:
                path = f"{TOPICS}/{topic_id.hex()}"
                bound, lost = bounds[path], self.lost.lost_at_birth[f"{path}/0"]
                return sum(loss.counts(bound) for loss in lost) > bound.losses_max
        return False

    def _wait_groups(self) -> bool:
        """Whether groups wait for an operator: a topic that was made while brokers were away has few members,
        and all of them have lost their disks."""
        paths = [
            f"{TOPICS}/{topic_id.hex()}/0"
            for topic_id, topic in self.committed.topics()
            if topic["name"] == OFFSETS_TOPIC
        ]
        known = [(path, json.loads(self.committed.at(path) or b"{}")) for path in paths]
        return any(each["leader"] == NOBODY and self.lost.have_all_lost(path, each) for path, each in known)

    def _is_awake(self) -> bool:
        return not any(node.is_paused or node.is_stopping for node in self.nodes.values())

    def _wait_until(self, is_done: Callable[[], bool], why: Callable[[], str]) -> None:
        until_ms = self.clock.now_ms + HEALING_MS
        while not is_done():
            if self.clock.now_ms >= until_ms:
                raise Violation(f"two minutes after all is well again: {why()}")
            self.run_until(min(self.clock.now_ms + 250, until_ms))

    def _unwell(self, counts: list[int]) -> str:
        proved = [spot.topic_id.hex() for spot in self.spots]
        for path, facts in self.committed.partitions():
            if path.split("/")[2] not in proved:
                continue
            if (
                facts["leader"] == NOBODY
                or sorted(facts["isr"]) != sorted(facts["replicas"])
                or facts["eligible"]
                or "adding" in facts
            ):
                return f"{path} is {facts}"
        for producer, count in zip(self.producers, counts, strict=True):
            if producer.acknowledged_count <= count:
                return f"{producer.name} cannot write to {producer.spot}"
        return ""

    def _is_quiet(self) -> bool:
        if any(producer.values for producer in self.producers):
            return False
        for spot in self.spots:
            found = {node_id: self.find(node, spot) for node_id, node in self.nodes.items()}
            here = {node_id: each for node_id, each in found.items() if each is not None}
            ends = {end for each in here.values() for end in (each.log.end_offset, each.high_watermark)}
            if len(ends) != 1 or sorted(here) != sorted(self.facts(spot)["replicas"]):
                return False
        return True

    def read_all(self) -> None:
        """All that is committed now, from the leader's log."""
        for spot in self.spots:
            node = self.nodes[self.facts(spot)["leader"]]
            partition = self.find(node, spot)
            assert partition is not None
            batches: list[bytes] = []
            offset = 0
            while offset < partition.high_watermark:
                records = partition.log.read(offset, partition.high_watermark, 1 << 20, True)
                assert records is not None
                batches += split_batches(memoryview(records.read()))
                records.release()
                offset = read_header(batches[-1]).last_offset + 1
            for batch in batches:
                self.reads.on_read(spot, batch)
            self.kept.at_end(spot, batches)

    # What the others ask.

    def serving(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.broker is not None and node.broker.is_serving]

    def facts(self, spot: Spot) -> dict[str, Any]:
        data = self.committed.at(spot.path)
        assert data is not None
        found: dict[str, Any] = json.loads(data)
        return found

    def find(self, node: ClusterNode, spot: Spot) -> Partition | None:
        return node.broker.partitions.find(spot.topic_id, spot.partition) if node.broker is not None else None

    def is_member(self, node: ClusterNode, partition: Partition) -> bool:
        """Whether a replica is in the ISR with what it has now."""
        data = self.committed.at(f"{TOPICS}/{partition.topic_id.hex()}/{partition.index}")
        known = self.committed.at(f"/brokers/epochs/{node.node_id}")
        if data is None or known is None or node.broker is None or not node.broker.is_serving:
            return False
        facts = json.loads(data)
        stamp = facts["members"].get(str(node.node_id), 0)
        is_excused = facts.get("flush") == FLUSHED and stamp >= 0
        return node.node_id in facts["isr"] and bool(
            is_excused or stamp >= json.loads(known)["trusted_since"]
        )

    def _bounds(self) -> dict[str, Bound]:
        """By topic that is to be proved, as a path."""
        plans = {plan.name: plan for plan in self.plan.topics}
        plans[OFFSETS_TOPIC] = self.plan.topics[0]  # it is set up like that one
        return {
            f"{TOPICS}/{topic_id.hex()}": Bound(plan.min_insync - 1, plan.is_flushed)
            for topic_id, topic in self.committed.topics()
            if (plan := plans.get(topic["name"])) is not None
        }

    def may_lose(self, node_ids: Sequence[int], is_of_disk: bool = False) -> bool:
        """Whether these may lose what was not flushed, or what is on their disks."""
        bounds = self._bounds()
        failing = [n for n, node in self.nodes.items() if node.disk.is_faulty and not node.is_full]
        if failing and not is_of_disk and not self.lost.may_lose([*node_ids, *failing], False, bounds):
            return False
        return self.lost.may_lose([*node_ids, *failing] if is_of_disk else node_ids, is_of_disk, bounds)

    def end_uncleanly(self, node: ClusterNode, loses_power: bool) -> None:
        """A kill alone loses nothing."""
        self._count(node)
        if loses_power:
            node.lose_power()
            self.lost.on_loss(node.node_id, is_of_disk=False)
        else:
            node.kill()

    def on_fault(self, node: ClusterNode) -> None:
        """Something has failed on a disk: from now on it may lack anything, unless it was only full."""
        if not node.is_full:
            self.lost.on_loss(node.node_id, is_of_disk=True)

    def _count(self, node: ClusterNode) -> None:
        if node.broker is not None:
            self.clock.counts["cuts"] += node.broker.replicas.cuts.count
            self.clock.counts["ISR changes"] += node.broker.replicas.in_sync.change_count
            self.clock.counts["elections"] += node.broker.control.election_count
            self.clock.counts["replicas moved"] += node.broker.control.move_count

    def on_failed(self, node: ClusterNode) -> None:
        """No directory is left to a broker: it ends. An fsync that failed before everything healed may be
        heard of later; then nobody else starts it again."""
        self.end_uncleanly(node, loses_power=False)
        if not self.faults.is_on:
            self._start_again(node)

    def on_ended(self, node: ClusterNode) -> None:
        """The process has ended by itself, or while it wrote: who looks after it starts it again."""
        self.end_uncleanly(node, loses_power=False)
        self._start_again(node)

    def _start_again(self, node: ClusterNode) -> None:
        self.clock.after(1_000, lambda: None if node.is_running else node.start())

    # What clients have seen.

    def on_acknowledged(self, producer: Producer, offset: int) -> None:
        self.kept.on_acknowledged(producer, offset)

    def on_refused(self, producer: Producer, code: ErrorCode, node_id: int) -> None:
        """A leader that does not know yet that it is none may say anything."""
        facts, partition = self.facts(producer.spot), self.find(self.nodes[node_id], producer.spot)
        if partition is not None and (facts["leader"], facts["leader_epoch"]) == (
            node_id,
            partition.leader_epoch,
        ):
            self.kept.on_refused(producer, code)

    def on_read(self, spot: Spot, batch: bytes, epoch: int) -> None:
        self.reads.on_read(spot, batch)
        if epoch >= 0:
            self.watermark.on_told(spot, epoch, read_header(batch).last_offset + 1)

    def on_not_read(self, consumer: Consumer, code: ErrorCode, epoch: int) -> None:
        self.clock.counts[f"read: {code.name}"] += 1
        if code is ErrorCode.offset_out_of_range and epoch >= 0:
            told = self.watermark.known(consumer.spot)
            if any(known <= epoch and consumer.offset <= offset for known, offset in told.items()):
                raise Violation(f"{consumer.spot} has no {consumer.offset} any more, which was read")

    def on_latest(self, spot: Spot, epoch: int, offset: int, known: dict[int, int]) -> None:
        self.watermark.on_latest(spot, epoch, offset, known)

    def describe(self) -> list[str]:
        """Where every replica stands."""
        lines = []
        for spot in self.spots:
            lines.append(f"{spot.topic}-{spot.partition}: {self.facts(spot)}")
            for node in self.nodes.values():
                if (found := self.find(node, spot)) is not None:
                    ends = f"hw {found.high_watermark}, end {found.log.end_offset}, {found.log.epochs.latest}"
                    lines.append(f"  {node.node_id}: {found.role.value} {found.leader_epoch} {ends}")
        return lines

    def tally(self) -> dict[str, int]:
        """What this run has had in it."""
        for node in self.nodes.values():
            self._count(node)
        counts = self.clock.counts
        counts["controllers"] = self.epochs.controller_count
        counts["new leader epochs"] = self.leaders.election_count
        for name in ("expiries", "lost, applied", "lost, not applied", "late, applied", "stale readings"):
            counts[name] = self.store.counts[name]
        return dict(counts)
