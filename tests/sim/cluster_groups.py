"""Groups of a simulated cluster, as far as they must survive a coordinator: offsets committed and read.

Every commit is of a group of its own, so that the groups with an offset only ever become more, and a request
that arrives late makes nothing older. All groups have one coordinator, which some broker names.

**Invariant:** a commit that was acknowledged, or seen by a reader, is in every later answer of the same
coordinator or of one after it (P5). One that does not know yet that it is none may tell of older times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.cluster_clock import Violation
from tests.wire.group_requests import OFFSET_COMMIT, OFFSET_FETCH
from tests.wire.harness import FIND_COORDINATOR, decode_answer, parts, request_frame
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.sim.cluster import World
    from tests.sim.cluster_node import ClusterNode

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT_VERSION, FETCH_VERSION, FIND_VERSION = 9, 9, 4
TIMEOUT_MS = 1_500
GROUPS_READ = 40  # the last so many
NO_EPOCH = -1


class CommitsStay:
    """What was acknowledged or seen of commits, and under which leadership of the coordinator's partition."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.known: dict[str, int] = {}  # group to the least epoch that it is known of
        self.acknowledged_count = 0

    def note(self, group_id: str, epoch: int) -> None:
        self.known[group_id] = min(epoch, self.known.get(group_id, epoch))

    def expected(self, epoch: int) -> set[str]:
        """What a reader will be told that asks a coordinator of that epoch now."""
        return {group_id for group_id, since in self.known.items() if since <= epoch}

    def check(self, asked: set[str], expected: set[str], told: set[str], epoch: int) -> None:
        missing = sorted((asked & expected) - told)
        if missing:
            raise Violation(f"the coordinator of epoch {epoch} has forgotten the commits of {missing}")


class GroupClient:
    """Somebody who talks to the coordinator, one request after the other."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._coordinator: ClusterNode | None = None
        self.plan()

    def plan(self) -> None:
        self.world.clock.after(self.world.clock.random.randint(1, 400), self.step)

    def step(self) -> None:
        nodes = self.world.serving()
        if not nodes:
            self.plan()
        elif self._coordinator is None or not self._coordinator.is_running:
            values = {"key_type": 0, "coordinator_keys": (self.name,)}
            node = self.world.clock.random.choice(nodes)
            self._call(node, FIND_COORDINATOR, FIND_VERSION, values, self._on_found)
        else:
            self.act(self._coordinator)

    def act(self, coordinator: ClusterNode) -> None:
        raise AssertionError("every client does something")

    def _call(self, node: ClusterNode, api_key: int, version: int, values: dict[str, Any], then: Any) -> None:
        frame = request_frame(api_key, version, 1, **values)

        def on_end(answer: bytes | None) -> None:
            if answer is None:
                self._coordinator = None
            else:
                then(decode_answer(api_key, version, answer, 1))
            self.plan()

        self.world.network.call(node, frame, TIMEOUT_MS, on_end)

    def _on_found(self, answer: Any) -> None:
        found = answer.coordinators[0]
        if ErrorCode(found.error_code) is ErrorCode.none:
            self._coordinator = self.world.nodes[found.node_id]

    def leave_coordinator(self, code: ErrorCode) -> None:
        if code not in (ErrorCode.none, ErrorCode.coordinator_load_in_progress):
            self._coordinator = None

    def epoch_of(self, node: ClusterNode) -> int:
        """Under which leadership a broker coordinates, if it does."""
        if node.broker is None:
            return NO_EPOCH
        partition = node.broker.partitions.find(OFFSETS_TOPIC, 0)
        return partition.leader_epoch if partition is not None else NO_EPOCH


class Committer(GroupClient):
    """Commits for one group after the other; some commits that are refused it gives up."""

    def __init__(self, world: World) -> None:
        self._group_id: str | None = None
        super().__init__(world, "committer")

    def act(self, coordinator: ClusterNode) -> None:
        commits = self.world.commits
        if self._group_id is None:
            self._group_id = f"g{len(commits.sent)}"
            commits.sent.append(self._group_id)
        spot = self.world.spots[0]
        part = parts(OFFSET_COMMIT, COMMIT_VERSION)
        row = part.OffsetCommitRequestPartition(
            partition_index=spot.partition,
            committed_offset=1,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        values = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (part.OffsetCommitRequestTopic(name=spot.topic, partitions=(row,)),),
        }
        self._call(
            coordinator, OFFSET_COMMIT, COMMIT_VERSION, values, lambda a: self._on_answer(coordinator, a)
        )
        if self.world.clock.chance(0.3):
            return  # it will be tried again, if need be
        self.world.clock.after(TIMEOUT_MS, self._give_up)

    def _give_up(self) -> None:
        self._group_id = None

    def _on_answer(self, node: ClusterNode, answer: Any) -> None:
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        self.world.clock.count(f"commit: {code.name}")
        self.leave_coordinator(code)
        if code is ErrorCode.none and self._group_id is not None:
            self.world.commits.note(self._group_id, self.epoch_of(node))
            self.world.commits.acknowledged_count += 1
            self._group_id = None


class OffsetReader(GroupClient):
    """Asks for what the last groups have committed."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"reader {number}")

    def act(self, coordinator: ClusterNode) -> None:
        commits = self.world.commits
        asked = commits.sent[-GROUPS_READ:]
        if not asked:
            self.plan()
            return
        epoch = self.epoch_of(coordinator)
        expected = commits.expected(epoch)
        part = parts(OFFSET_FETCH, FETCH_VERSION)
        groups = tuple(
            part.OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=-1, topics=None)
            for group_id in asked
        )
        values = {"groups": groups, "require_stable": False}

        def on_answer(answer: Any) -> None:
            code = ErrorCode(answer.groups[0].error_code)
            self.world.clock.count(f"offsets: {code.name}")
            self.leave_coordinator(code)
            told = {group.group_id for group in answer.groups if group.topics}
            is_whole = all(ErrorCode(group.error_code) is ErrorCode.none for group in answer.groups)
            if is_whole and epoch != NO_EPOCH and not self.world.can_lose_groups:
                commits.check({*asked}, expected, told, epoch)
            for group_id in told:
                commits.note(group_id, max(self.epoch_of(coordinator), epoch))

        self._call(coordinator, OFFSET_FETCH, FETCH_VERSION, values, on_answer)
