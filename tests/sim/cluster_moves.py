"""Replicas that are moved about in a simulated cluster while things go wrong: sent off, elsewhere, and back.

**Invariant:** what is chosen here is chosen by a stream of its own, so that a seed without moves is what it
was. No partition gets fewer replicas than must ever be in sync.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from tests.sim.cluster_checkers import is_partition
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_groups import OFFSETS_TOPIC
from tests.sim.cluster_tree import Commit
from tests.wire.harness import decode_answer, parts, request_frame, seconds
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.sim.cluster import World

ALTER_REASSIGNMENTS, VERSION = 45, 1
TIMEOUT_MS = 8_000
MOVING_SHARE = 0.4  # of the seeds
CANCEL_SHARE = 0.25
AGAIN_SHARE = 0.3  # is asked of what is moving


class Mover:
    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"moved replicas {seed}")
        self._is_on = self._random.random() < MOVING_SHARE
        self._pause_ms = self._random.choice((300, 1_000, 3_000))
        self.least_sizes = {plan.name: plan.replica_count for plan in world.plan.topics}
        self.highest_minima = {plan.name: plan.min_insync for plan in world.plan.topics}

    def begin(self) -> None:
        if self._is_on:
            self._plan()

    def _plan(self) -> None:
        self._world.clock.after(int(self._random.expovariate(1 / self._pause_ms)) + 1, self._act)

    def _act(self) -> None:
        world, random = self._world, self._random
        if not world.faults.is_on:
            return
        nodes = world.serving()
        places = {
            (topic["name"], int(path.rpartition("/")[2])): "adding" in facts
            for topic_id, topic in world.committed.topics()
            for path, facts in world.committed.partitions()
            if path.split("/")[2] == topic_id.hex() and self._bounds(topic["name"])
        }
        if nodes and places:
            moving = sorted(place for place, is_moving in places.items() if is_moving)
            is_cancelled = random.random() < CANCEL_SHARE
            chosen = moving if moving and (is_cancelled or random.random() < AGAIN_SHARE) else sorted(places)
            name, index = random.choice(chosen)
            self.ask(random.choice(nodes).node_id, name, index, None if is_cancelled else self._target(name))
        self._plan()

    def _bounds(self, name: str) -> tuple[int, int] | None:
        """How few and how many replicas a partition may get; None if it is not to be moved."""
        plans = {plan.name: plan for plan in self._world.plan.topics}
        plan = plans.get(name)
        if name == OFFSETS_TOPIC:
            plan = self._world.plan.topics[0]
        if plan is None:
            return None
        return self.highest_minima.get(name, plan.min_insync), self._world.plan.broker_count

    def _target(self, name: str) -> tuple[int, ...]:
        bounds = self._bounds(name)
        assert bounds is not None
        size = self._random.randint(*bounds)
        if name in self.least_sizes:
            self.least_sizes[name] = min(self.least_sizes[name], size)
        return tuple(self._random.sample(sorted(self._world.nodes), size))

    def ask(self, node_id: int, name: str, index: int, target: tuple[int, ...] | None) -> None:
        world, what = self._world, "move" if target is not None else "cancel"
        part = parts(ALTER_REASSIGNMENTS, VERSION)
        wanted = part.ReassignablePartition(partition_index=index, replicas=target)
        topic = part.ReassignableTopic(name=name, partitions=(wanted,))
        values = {"topics": (topic,), "timeout": seconds(5), "allow_replication_factor_change": True}
        world.clock.note(f"{what} {name}-{index} to {target}, says {node_id}")

        def on_end(answer: bytes | None) -> None:
            if answer is None:
                world.clock.count(f"{what}: no answer")
                return
            decoded = decode_answer(ALTER_REASSIGNMENTS, VERSION, answer, 1)
            code = decoded.responses[0].partitions[0].error_code
            world.clock.count(f"{what}: {ErrorCode(code).name}")

        frame = request_frame(ALTER_REASSIGNMENTS, VERSION, 1, **values)
        world.network.call(world.nodes[node_id], frame, TIMEOUT_MS, on_end)

    def check_folders(self) -> None:
        """Whoever is no replica has no folder of the partition any more."""
        known = {topic["name"] for _, topic in self._world.committed.topics()}
        for node in self._world.serving():
            assert node.broker is not None
            partitions = node.broker.partitions
            for home in partitions.directories:
                here = {f"{each.topic}-{each.index}" for each in partitions.in_directory(home)}
                for name in home.directory.names():
                    topic, _, number = name.rpartition("-")
                    if topic in known and number.isdecimal() and name not in here:
                        raise Violation(f"{node.node_id} still has {name}, which is not its")


class ReplicasMoveUnderNewEpochs:
    """Replicas change by the controller alone and with a new epoch of the leader; nobody comes into an ISR by
    that, and an ISR has replicas only."""

    def on_commit(self, commit: Commit) -> None:
        for path, data in commit.written.items():
            if not is_partition(path):
                continue
            new, before = json.loads(data), commit.before.get(path)
            if not {*new["isr"], *new["eligible"]} <= {*new["replicas"]}:
                raise Violation(f"{path} has members that are no replicas: {new}")
            if before is not None:
                self._judge(commit, path, json.loads(before), new)

    def _judge(self, commit: Commit, path: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if all(old.get(name) == new.get(name) for name in ("replicas", "adding", "removing")):
            return
        is_decided = commit.is_of_controller and new["leader_epoch"] == old["leader_epoch"] + 1
        if not is_decided or not {*new["isr"]} <= {*old["isr"], *old["eligible"]}:
            raise Violation(f"the replicas of {path} went from {old} to {new}")
        if {*new["adding"]} & {*new["removing"]} if "adding" in new else False:
            raise Violation(f"{path} adds and removes the same: {new}")
