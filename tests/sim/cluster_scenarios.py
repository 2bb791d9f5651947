"""Short stories of a simulated cluster, told step by step: each asks for one rule of who counts (R16).

There is one partition of one topic. Its leader is A, its other replicas are B and C. Producers write all the
time. Each story ends with everything healed and read, as a seed does.

**Invariant:** nothing happens by chance that decides how a story ends.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from tests.sim.cluster import World
from tests.sim.cluster_clock import Violation
from tests.sim.cluster_damage import batch_places, cut_to
from tests.sim.cluster_groups import OFFSETS_TOPIC
from tests.sim.cluster_node import ClusterNode
from tests.sim.cluster_plan import Plan, TopicPlan, like, quiet
from tests.sim.cluster_tree import Backup
from tests.sim.disk import SimulatedDirectory
from tests.sim.store import Fate
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.paths import BROKERS, CONTROLLER, CONTROLLER_EPOCH, TOPICS
from tidelog.cluster.store import Multi, StoreRequest, Write
from tidelog.log.pages import Unready
from tidelog.log.trust import LOSS_MARK
from tidelog.protocol.errors import CorruptBatch

WORK_MS = 3_000
WAIT_MS = 30_000
SESSION_MS = 4_000
NEVER_MS = 1_000_000
BATCHES_LOST = 8  # more than can be under way
MAGIC_POSITION = 16
LOOKUPS_MAX = 100


class Worst(Random):
    """Of a power cut."""

    def random(self) -> float:
        return 0.99

    def choice(self, choices: Any) -> Any:
        return choices[0]

    def randrange(self, *_: Any) -> int:
        return 0

    def randint(self, low: int, _: int) -> int:
        return low


class Story:
    def __init__(
        self,
        replicas: int = 2,
        minimum: int = 2,
        is_flushed: bool = False,
        directories: int = 1,
        checkpoint_ms: int = 300,
        flush_ms: int = 8,
    ) -> None:
        def change(plan: Plan) -> None:
            topic = TopicPlan("s0", 1, replicas, minimum, is_flushed, 100_000)
            plan.broker_count, plan.topics, plan.weights = 4, [topic], {}
            plan.store, plan.racks, plan.directory_count = quiet(SESSION_MS), [""], directories
            plan.produce_pause_ms, plan.flush_ms_max, plan.cut, plan.slow = 80, flush_ms, 0.0, 0.0
            plan.properties = {
                "replica.lag.time.max.ms": "2500",
                "replica.fetch.wait.max.ms": "100",
                "replica.fetch.backoff.ms": "50",
                "log.flush.offset.checkpoint.interval.ms": str(checkpoint_ms),
                "leader.imbalance.check.interval.seconds": "1000",
                **like(topic),
            }

        for seed in count():
            self.world = World(seed, change)
            self.world.come_up()
            self.spot = self.world.spots[0]
            if self.controller.node_id not in self.facts["replicas"]:
                break
        self.world.faults.is_on = True
        self.wait(lambda: self.is_in_sync, "a new partition is not in sync")
        self.run(WORK_MS)
        nodes = self.world.nodes
        self.a, *others = (nodes[node_id] for node_id in self._leader_first())
        self.b, self.c = others[0], others[-1]

    def _leader_first(self) -> list[int]:
        leader, replicas = self.facts["leader"], self.facts["replicas"]
        return [leader, *(node_id for node_id in replicas if node_id != leader)]

    # What is so.

    @property
    def facts(self) -> dict[str, Any]:
        return self.world.facts(self.spot)

    @property
    def controller(self) -> ClusterNode:
        """Who is never one of A, B and C."""
        return self.world.nodes[json.loads(self.world.committed.at(CONTROLLER) or b"")["id"]]

    def has_controller_but(self, former: ClusterNode) -> bool:
        found = self.world.committed.at(CONTROLLER)
        return found is not None and json.loads(found)["id"] != former.node_id

    @property
    def is_in_sync(self) -> bool:
        return _is_in_sync(self.facts)

    @property
    def groups(self) -> dict[str, Any] | None:
        """The partition that keeps the groups."""
        for topic_id, topic in self.world.committed.topics():
            if topic["name"] == OFFSETS_TOPIC:
                data = self.world.committed.at(f"{TOPICS}/{topic_id.hex()}/0")
                return json.loads(data) if data is not None else None
        return None

    def run(self, duration_ms: int) -> None:
        self.world.run_until(self.world.clock.now_ms + duration_ms)

    def wait(self, is_done: Callable[[], bool], otherwise: str, limit_ms: int = WAIT_MS) -> None:
        if not self.world.run_until(self.world.clock.now_ms + limit_ms, is_done):
            raise Violation(otherwise)

    def quiet(self) -> None:
        """Nobody writes for now, and all that was written is committed."""
        producers = self.world.producers
        for producer in producers:
            producer.wants_more = False
        self.wait(lambda: not any(producer.values for producer in producers), "nothing is acknowledged")
        self.run(WORK_MS)

    def set(self, name: str, value: str) -> None:
        """A setting of the topic."""
        self.world.admin.set(self.spot.topic, name, value)

    def end(self) -> None:
        for producer in self.world.producers:
            producer.wants_more = True
        self.world.heal()
        self.world.read_all()

    def folder(self, node: ClusterNode) -> SimulatedDirectory:
        """Where a broker that is down has the partition."""
        name = f"{self.spot.topic}-{self.spot.partition}"
        home = next(each for each in node.folders if node.disk.root.folder(each).exists(name))
        return node.disk.root.folder(home).folder(name)

    # What befalls a broker.

    def kill(self, *nodes: ClusterNode) -> None:
        for node in nodes:
            self.world.clock.note(f"{node.node_id} is killed")
            self.world.end_uncleanly(node, loses_power=False)

    def reboot(self, node: ClusterNode) -> None:
        """The machine goes down, after all was written back: nothing is lost, which nobody can know."""
        self.kill(node)
        node.boot_count += 1
        node.disk.remount()

    def lose_tail(self, node: ClusterNode) -> None:
        """The machine goes down, and with it what was not flushed."""
        self.reboot(node)
        self.lose_end(node)

    def lose_unsynced(self, node: ClusterNode) -> None:
        """The machine goes down, and with it all that was never synced."""
        self.kill(node)
        node.boot_count += 1
        node.disk.crash(Worst())

    def lose_end(self, node: ClusterNode) -> None:
        """The log ends some batches before its end."""
        self.world.lost.on_loss(node.node_id, is_of_disk=True)
        cut_to(self.folder(node), batch_places(self.folder(node))[-BATCHES_LOST][1])

    def flip_bit(self, node: ClusterNode) -> None:
        self.world.lost.on_loss(node.node_id, is_of_disk=True)
        _, place = batch_places(self.folder(node))[-BATCHES_LOST]
        file = max(name for name in self.folder(node).names() if name.endswith(".log"))
        self.folder(node).flip(file, place + 65, 3)

    def meet_damage(self, node: ClusterNode) -> None:
        """A broker that runs is asked for a batch that its disk has damaged."""
        folder, broker = self.folder(node), node.broker
        file = max(name for name in folder.names() if name.endswith(".log"))
        places = batch_places(folder)
        offset, place = places[len(places) // 2]
        folder.flip(file, place + MAGIC_POSITION, 5)
        assert broker is not None
        partition = broker.partitions.find(self.spot.topic, self.spot.partition)
        assert partition is not None
        for _ in range(LOOKUPS_MAX):
            try:
                partition.log.read(offset, partition.high_watermark, 1)
            except Unready as lookup:
                lookup.step()
            except CorruptBatch as problem:
                broker.lookups.damaged.note(partition, problem)
                return
        raise Violation("damage is not met")

    def remove_folder(self, node: ClusterNode) -> None:
        self.world.lost.on_loss(node.node_id, is_of_disk=True)
        name = f"{self.spot.topic}-{self.spot.partition}"
        for home in node.folders:
            node.disk.root.folder(home).remove(name)
            node.disk.root.folder(home).sync()

    def part(self, *nodes: ClusterNode) -> None:
        """Nothing goes between these until everything heals."""
        until_ms = self.world.clock.now_ms + NEVER_MS
        for one in nodes:
            for other in nodes:
                if one is not other:
                    self.world.network.block(one.node_id, other.node_id, until_ms, breaks=True)

    def pause(self, *nodes: ClusterNode, duration_ms: int) -> None:
        for node in nodes:
            node.pause(self.world.clock.now_ms + duration_ms)

    def wait_until_open(self, node: ClusterNode) -> None:
        """A broker that starts has opened its logs, and has not registered."""

        def is_open() -> bool:
            return node.broker is not None and node.broker.standing.are_logs_open

        self.wait(is_open, "logs are not opened")
        assert node.broker is not None and not node.broker.standing.has_registered

    def stop_store(self, backup: Backup) -> None:
        """All brokers are killed, and the store is as it once was."""
        self.kill(*(node for node in self.world.nodes.values() if node.is_running))
        self.run(SESSION_MS + 1_000)
        self.world.committed.restore(backup)

    def declare_restored(self) -> None:
        self.world.committed.declare_restored()
        self.world.epochs.on_restored(self.world.committed.at(CONTROLLER_EPOCH))

    def start_first(self, node: ClusterNode, other: ClusterNode) -> None:
        """One is back long before the other, which has kept everything."""
        node.start()
        self.run(8_000)
        other.start()
        self.end()

    def hold(
        self,
        is_it: Callable[[ClusterNode, dict[str, Any]], bool],
        then: Callable[[], None],
        fate: Fate | None = None,
    ) -> None:
        """When somebody asks the store for such a change of the partition, let it arrive late."""
        is_over = False

        def on_request(node: ClusterNode, request: StoreRequest) -> None:
            nonlocal is_over
            for _, new in self.world.ambushes.asked(request):
                if not is_over and is_it(node, new) and node.connection is not None:
                    is_over = True
                    node.connection.hold(self.world.clock.now_ms + 2_000, fate)
                    self.world.clock.note(f"what {node.node_id} asks for will come late")
                    self.world.clock.after(0, then)

        for node in self.world.nodes.values():
            node.on_request = lambda request, node=node: on_request(node, request)  # type: ignore[misc]
        self.wait(lambda: is_over, "nobody asks for that")


def _is_in_sync(facts: dict[str, Any]) -> bool:
    return sorted(facts["isr"]) == sorted(facts["replicas"])


def disk_replaced_and_the_other_loses_power() -> None:
    """Where every write is synced, also by who follows."""
    story = Story(is_flushed=True, flush_ms=1_000, checkpoint_ms=NEVER_MS)
    story.kill(story.a)
    story.lose_unsynced(story.b)
    story.world.damage.replace_disk(story.a)
    story.start_first(story.b, story.a)


def folder_gone() -> None:
    story = Story(checkpoint_ms=NEVER_MS)
    story.kill(story.a, story.b)
    story.remove_folder(story.a)
    story.start_first(story.a, story.b)


def directory_gone() -> None:
    """With the manifest that names the folder."""
    story = Story(directories=2)
    story.kill(story.a, story.b)
    home = story.folder(story.a).path.split("/")[-2]
    story.world.lost.on_loss(story.a.node_id, is_of_disk=True)
    root = story.a.disk.root
    root.remove(home)
    root.folder(home)
    root.sync()
    story.run(SESSION_MS + 1_000)  # a broker with another first directory waits for that
    story.start_first(story.a, story.b)


def bit_flipped() -> None:
    story = Story(checkpoint_ms=NEVER_MS)
    story.kill(story.a, story.b)
    story.flip_bit(story.a)
    story.start_first(story.a, story.b)


def bit_flipped_and_power_cut() -> None:
    story = Story(is_flushed=True, checkpoint_ms=NEVER_MS)
    story.reboot(story.a)
    story.kill(story.b)
    story.flip_bit(story.a)
    story.start_first(story.a, story.b)


def disk_replaced_though_flushed() -> None:
    story = Story(is_flushed=True)
    story.kill(story.a, story.b)
    story.world.damage.replace_disk(story.a)
    story.start_first(story.a, story.b)


def damage_met_by_a_reader() -> None:
    """Below the recovery point. The leader resigns and fetches the damaged segment from another one."""
    story = Story(replicas=3)
    a = story.a
    story.meet_damage(a)
    story.wait(lambda: story.facts["leader"] not in (a.node_id, NOBODY), "who cannot read its log leads on")
    _leave_alone(story, a)


def damage_met_by_a_reader_of_a_follower() -> None:
    """The leader leads on; the follower is out until it has fetched the damaged segment."""
    story = Story(replicas=3)
    b = story.b
    story.meet_damage(b)
    story.wait(lambda: story.facts["members"][str(b.node_id)] < 0, "who cannot read its log counts")
    _leave_alone(story, b)


def _leave_alone(story: Story, node: ClusterNode) -> None:
    """It is in sync again; then the others lose their disks."""
    stamps = [str(each.node_id) for each in (story.a, story.b, story.c)]
    story.wait(
        lambda: story.is_in_sync and all(story.facts["members"][each] >= 0 for each in stamps),
        "not in sync again",
    )
    story.quiet()
    others = [each for each in (story.a, story.b, story.c) if each is not node]
    story.kill(*others)
    for each in others:
        story.world.damage.replace_disk(each)
    story.start_first(*others)


def flush_asked_of_a_quiet_topic() -> None:
    """Nothing is flushed yet when the setting comes: a power cut must not be excused by it."""
    story = Story(checkpoint_ms=NEVER_MS, flush_ms=1_000)
    story.quiet()
    story.set("flush.messages", "1")
    story.wait(lambda: story.facts.get("flush", 0) == 2, "what is committed is never flushed")
    story.kill(story.b)
    story.lose_unsynced(story.a)
    story.start_first(story.a, story.b)


def older_copy_in_a_full_directory() -> None:
    """One of two directories is rolled back, and full at the next start: what it lost is not forgotten."""
    story = Story(directories=2, checkpoint_ms=NEVER_MS)
    b = story.b
    story.kill(b)
    copy = b.disk.copy()
    b.start()
    story.wait(lambda: story.is_in_sync, "not in sync again")
    story.run(WORK_MS)
    story.kill(b)
    home = story.folder(b).path.split("/")[-2]
    rolled_back = b.disk.copy()
    rolled_back.names[home] = copy.names[home]
    rolled_back.durable = dict(rolled_back.names)
    story.world.lost.on_loss(b.node_id, is_of_disk=True)
    b.disk.remount(rolled_back)
    story.kill(story.a)
    b.disk.refuse(lambda path: f"/{home}/" in path, errno.ENOSPC)
    b.start()
    story.run(5_000)
    story.kill(b)
    b.disk.repair()
    story.run(SESSION_MS + 1_000)
    story.start_first(b, story.a)


def opening_fails_after_the_cut() -> None:
    """For want of descriptors: what was cut is not forgotten."""
    story = Story(checkpoint_ms=NEVER_MS)
    b = story.b
    story.kill(story.a, b)
    story.flip_bit(b)
    b.disk.refuse(lambda path: path.endswith(".snapshot"), errno.EMFILE)
    b.start()
    story.run(5_000)
    story.kill(b)
    b.disk.repair()
    story.run(SESSION_MS + 1_000)
    story.start_first(b, story.a)


def mark_of_a_lost_log_cannot_be_written() -> None:
    """Its directory was replaced, and the other one fails: the next start finds both, and no folder."""
    story = Story(directories=2)
    b = story.b
    story.kill(story.a, b)
    home = story.folder(b).path.split("/")[-2]
    story.world.lost.on_loss(b.node_id, is_of_disk=True)
    root = b.disk.root
    root.remove(home)
    root.folder(home)
    root.sync()
    story.run(SESSION_MS + 1_000)
    b.disk.refuse(lambda path: path.endswith(LOSS_MARK), errno.EIO)
    b.start()
    story.run(5_000)
    if b.is_running:
        story.kill(b)
    b.disk.repair()
    story.run(SESSION_MS + 1_000)
    story.start_first(b, story.a)


def end_below_checkpoint() -> None:
    story = Story()
    story.run(1_000)
    story.kill(story.a, story.b)
    story.lose_end(story.a)
    story.start_first(story.a, story.b)


def killed_before_it_registered() -> None:
    story = Story(checkpoint_ms=NEVER_MS)
    story.kill(story.a, story.b)
    story.remove_folder(story.a)
    story.a.start()
    story.wait_until_open(story.a)
    story.kill(story.a)
    story.run(100)
    story.start_first(story.a, story.b)


def power_cut() -> None:
    story = Story()
    story.kill(story.b)
    story.lose_tail(story.a)
    story.start_first(story.a, story.b)


def older_copy() -> None:
    story = Story()
    story.kill(story.b)
    copy = story.b.disk.copy()
    story.b.start()
    story.wait(lambda: story.is_in_sync, "not in sync again")
    story.run(WORK_MS)
    story.kill(story.a, story.b)
    story.world.lost.on_loss(story.b.node_id, is_of_disk=True)
    story.b.disk.remount(copy)
    story.start_first(story.b, story.a)


def disk_failed() -> None:
    """Its process is killed before it can tell; who repairs the disk loses the end of the log."""
    story = Story(checkpoint_ms=NEVER_MS)
    story.kill(story.b)
    assert story.a.connection is not None  # nobody hears of it
    story.a.connection.disconnect(story.world.clock.now_ms, story.world.clock.now_ms + 2_000)
    story.a.disk.fail_write()
    story.wait(lambda: story.a.has_failed_directory, "a disk fails, and nobody sees it")
    story.kill(story.a)
    story.a.disk.repair()
    story.lose_end(story.a)
    story.start_first(story.a, story.b)


def first_back_is_short() -> None:
    """No member counts, and one has kept everything."""
    story = Story()
    story.reboot(story.b)
    story.lose_tail(story.a)
    story.start_first(story.a, story.b)


def all_rebooted() -> None:
    story = Story()
    story.reboot(story.a)
    story.reboot(story.b)
    story.end()


def one_is_not_counted_and_the_other_loses_power() -> None:
    story = Story()
    story.part(story.a, story.b)
    story.reboot(story.a)
    story.pause(story.controller, duration_ms=1_000)  # it elects when A is back, and does not count
    story.a.start()
    story.wait(lambda: story.facts["leader"] == story.b.node_id, "the other one does not lead")
    story.lose_tail(story.b)
    story.run(100)
    story.b.start()
    story.run(10_000)
    story.end()


def one_of_three_is_gone_for_good() -> None:
    """After it has said that its end is torn, as the ends of the others are, by writes that nobody had
    acknowledged."""
    story = Story(replicas=3, is_flushed=True)
    _tear_all(story)
    story.c.start()
    story.wait(lambda: story.facts["members"][str(story.c.node_id)] < 0, "it does not say what is torn")
    story.run(100)
    story.kill(story.c)
    _end_with_two(story)


def one_of_three_never_came_back() -> None:
    """Nobody knows what it would have had."""
    story = Story(replicas=3, is_flushed=True)
    _tear_all(story)
    _end_with_two(story)


def _tear_all(story: Story) -> None:
    for node in (story.a, story.b, story.c):
        story.reboot(node)
        file = max(name for name in story.folder(node).names() if name.endswith(".log"))
        story.folder(node).open(file).append(bytes(40))
        node.disk.remount()


def _end_with_two(story: Story) -> None:
    story.a.start()
    story.b.start()
    story.run(20_000)
    if story.facts["leader"] not in (story.a.node_id, story.b.node_id):
        raise Violation(f"two of three are back, and nobody leads: {story.facts}")
    story.end()


def growth_under_way_while_the_follower_loses_its_folder() -> None:
    story = Story(replicas=3)
    a, b, c = story.a, story.b, story.c
    story.kill(c)
    story.wait(lambda: c.node_id not in story.facts["isr"], "who is gone stays in the ISR")
    c.start()

    def strike() -> None:
        story.kill(c)
        story.remove_folder(c)
        story.part(a, c)
        story.part(b, c)
        story.world.clock.after(50, c.start)

    story.hold(lambda node, new: node is a and c.node_id in new["isr"], strike)
    story.run(50)
    story.wait_until_open(c)
    assert c.connection is not None
    c.connection.hold(story.world.clock.now_ms + 2_500)
    story.run(3_000)
    story.kill(a, b)
    story.run(10_000)
    story.end()


def growth_under_way_while_the_leader_restarts() -> None:
    """It leads on alone; then who was to join is all that is left."""
    story = Story(minimum=1)
    a, b = story.a, story.b
    story.kill(b)
    story.wait(lambda: story.facts["isr"] == [a.node_id], "who is gone stays in the ISR")
    b.start()

    def strike() -> None:
        story.kill(a)
        story.part(a, b)
        others = [node for node in story.world.nodes.values() if node is not a]
        story.pause(*others, duration_ms=2_300)  # nobody sees that A was gone
        story.world.clock.after(50, a.start)

    story.hold(lambda node, new: node is a and b.node_id in new["isr"], strike)
    story.world.run_until(story.world.clock.now_ms + 2_500, lambda: b.node_id in story.facts["isr"])
    if b.node_id in story.facts["isr"]:
        story.kill(a)
    story.run(10_000)
    story.end()


def nobody_tells_the_leader_who_has_joined() -> None:
    """It may commit nothing that the other lacks, and is gone."""
    story = Story(minimum=1)
    a, b = story.a, story.b
    story.kill(b)
    story.wait(lambda: story.facts["isr"] == [a.node_id], "who is gone stays in the ISR")
    b.start()
    story.world.store.faults.watch_delay_ms_max = 300
    story.hold(
        lambda node, new: node is a and b.node_id in new["isr"], lambda: story.part(a, b), Fate.LOST_AFTER
    )
    story.wait(lambda: b.node_id in story.facts["isr"], "it does not join")
    assert a.connection is not None
    a.connection.disconnect(story.world.clock.now_ms, story.world.clock.now_ms + 3_000)
    story.run(1_500)
    story.kill(a)
    story.run(8_000)
    story.end()


def election_under_way_while_the_elected_loses_power() -> None:
    story = Story()
    a, b = story.a, story.b
    story.kill(a)

    def strike() -> None:
        story.kill(story.controller)  # nobody puts right soon what it has asked for
        story.lose_tail(b)
        story.world.clock.after(50, b.start)

    story.hold(lambda node, new: new["leader"] == b.node_id, strike)
    story.run(8_000)
    story.end()


def isr_change_lost_while_the_leader_writes_on() -> None:
    """The leader asks for an ISR without B. The store never hears of it: B is elected."""
    story = Story(minimum=1)
    a, b = story.a, story.b
    story.part(a, b)
    story.hold(lambda node, new: node is a and new["isr"] == [a.node_id], lambda: None, Fate.LOST_BEFORE)
    story.run(1_000)
    story.kill(a)
    story.run(SESSION_MS + 4_000)
    story.end()


def follower_restarts_and_the_leader_is_gone() -> None:
    """The follower has all, and its checkpoint does not say how much of it is committed."""
    story = Story(checkpoint_ms=NEVER_MS)
    a, b = story.a, story.b
    story.part(a, b)
    story.kill(b)
    b.start()
    story.wait(lambda: b.broker is not None and b.broker.is_serving, "a broker does not come back")
    story.run(100)
    story.kill(a)
    story.run(SESSION_MS + 4_000)
    story.end()


def out_of_the_isr_and_first_back() -> None:
    story = Story(minimum=1)
    a, b = story.a, story.b
    story.kill(b)
    story.wait(lambda: story.facts["isr"] == [a.node_id], "who is gone stays in the ISR")
    story.run(WORK_MS)
    story.kill(a)
    story.start_first(b, a)


def replicas_move() -> None:
    story = Story()
    others = [n for n in story.world.nodes.values() if n not in (story.a, story.b)]
    target = (story.b.node_id, others[0].node_id)
    story.world.mover.ask(story.a.node_id, story.spot.topic, story.spot.partition, target)
    story.wait(lambda: story.facts["replicas"] == [*target] and story.is_in_sync, "replicas do not move")
    story.end()


def stop_announced_late() -> None:
    """What a process said of its end comes when the next one has registered, which it must not hide."""
    story = Story()
    b = story.b

    def on_request(request: StoreRequest) -> None:
        operations = request.action.operations if isinstance(request.action, Multi) else ()
        if any(isinstance(each, Write) and each.path.startswith(BROKERS) for each in operations):
            assert b.connection is not None
            b.connection.hold(story.world.clock.now_ms + 2_000, Fate.LOST_AFTER)

    b.on_request = on_request
    b.stop()
    story.kill(b)
    b.start()
    story.run(8_000)
    story.end()


def former_controller_is_back() -> None:
    """It had no session while another one became controller, which is silent when a leader is lost."""
    story = Story()
    former, clock = story.controller, story.world.clock
    assert former.connection is not None
    former.connection.disconnect(clock.now_ms, clock.now_ms + SESSION_MS + 1_000)
    story.wait(lambda: story.has_controller_but(former), "nobody becomes controller")
    story.run(2 * SESSION_MS)
    story.pause(story.controller, duration_ms=SESSION_MS + 4_000)
    story.kill(*(node for node in (story.a, story.b) if node is not story.controller))
    story.run(SESSION_MS + 6_000)
    story.end()


def coordinator_is_gone_before_its_commits_are_replicated() -> None:
    story = Story()
    world = story.world
    story.wait(lambda: story.groups is not None and _is_in_sync(story.groups), "groups are not in sync")
    story.run(WORK_MS)
    assert story.groups is not None
    leader, *others = (world.nodes[node_id] for node_id in story.groups["isr"])
    assert leader.node_id == story.groups["leader"]
    story.part(leader, *others)
    story.run(1_500)
    story.kill(leader)
    story.run(SESSION_MS + 4_000)
    story.end()


def store_restored() -> None:
    """Since the backup B fell out of the ISR, and A went on alone."""
    story = Story(minimum=1)
    a, b = story.a, story.b
    backup = story.world.committed.back_up()
    story.kill(b)
    story.wait(lambda: story.facts["isr"] == [a.node_id], "who is gone stays in the ISR")
    story.run(WORK_MS)
    story.stop_store(backup)
    a.start()
    story.wait(lambda: not a.is_running, "a broker goes on with an older store")
    story.declare_restored()
    story.run(2_000)  # A is started again, by who looks after it
    story.end()


def store_restored_and_the_first_back_has_less() -> None:
    story = Story(minimum=1)
    a, b = story.a, story.b
    backup = story.world.committed.back_up()
    story.kill(b)
    story.wait(lambda: story.facts["isr"] == [a.node_id], "who is gone stays in the ISR")
    story.run(WORK_MS)
    story.stop_store(backup)
    story.declare_restored()
    story.start_first(b, a)


def store_restored_since_replicas_moved() -> None:
    """Whose logs are no longer where the store has them: what is elsewhere is kept, for an operator."""
    story = Story(minimum=1)
    a, b = story.a, story.b
    backup = story.world.committed.back_up()
    new = next(n for n in story.world.nodes.values() if n not in (a, b) and n is not story.controller)
    story.world.mover.ask(a.node_id, story.spot.topic, story.spot.partition, (new.node_id,))
    story.wait(lambda: story.facts["replicas"] == [new.node_id], "replicas do not move")
    story.run(WORK_MS)
    story.stop_store(backup)
    story.declare_restored()
    new.start()
    story.run(5_000)
    kept = [name for home in new.folders for name in new.disk.root.folder(home).names()]
    if not any(name.startswith(f"{story.spot.topic}-") and name.endswith("-stray") for name in kept):
        raise Violation(f"the log that the store has forgotten is gone: {kept}")


STORIES = {
    story.__name__.replace("_", "-"): story
    for story in (
        disk_replaced_and_the_other_loses_power,
        folder_gone,
        directory_gone,
        bit_flipped,
        bit_flipped_and_power_cut,
        damage_met_by_a_reader,
        damage_met_by_a_reader_of_a_follower,
        disk_replaced_though_flushed,
        end_below_checkpoint,
        killed_before_it_registered,
        power_cut,
        older_copy,
        older_copy_in_a_full_directory,
        opening_fails_after_the_cut,
        mark_of_a_lost_log_cannot_be_written,
        flush_asked_of_a_quiet_topic,
        disk_failed,
        first_back_is_short,
        all_rebooted,
        one_is_not_counted_and_the_other_loses_power,
        one_of_three_is_gone_for_good,
        one_of_three_never_came_back,
        growth_under_way_while_the_follower_loses_its_folder,
        growth_under_way_while_the_leader_restarts,
        nobody_tells_the_leader_who_has_joined,
        election_under_way_while_the_elected_loses_power,
        isr_change_lost_while_the_leader_writes_on,
        follower_restarts_and_the_leader_is_gone,
        out_of_the_isr_and_first_back,
        replicas_move,
        stop_announced_late,
        former_controller_is_back,
        coordinator_is_gone_before_its_commits_are_replicated,
        store_restored,
        store_restored_and_the_first_back_has_less,
        store_restored_since_replicas_moved,
    )
}
