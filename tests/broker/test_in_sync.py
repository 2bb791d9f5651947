"""ISRs that the store is asked for: what is pending until it has confirmed, refused or shown them."""

from __future__ import annotations

from tests.broker.parts import (
    TOPIC_ID,
    Stored,
    append,
    make_disks,
    make_kernel,
    make_partitions,
    make_topic,
)
from tests.memory_store import MemoryStore
from tests.replication.leading import image_of
from tidelog.broker.data_plane.in_sync import InSync
from tidelog.broker.signal import Signal
from tidelog.broker.standing import Standing
from tidelog.cluster.changes import Change, TopicChanged
from tidelog.cluster.facts import PartitionFacts
from tidelog.cluster.paths import BROKER_EPOCHS, BROKERS
from tidelog.cluster.store import Action, Multi, Outcome, ReadNodes, Unknown
from tidelog.protocol.fetch import FetchPartition
from tidelog.replication.partition import Partition

LAG_MAX_MS = 30_000


class Led:
    """Broker 1 leads a partition with broker 2, which is in sync or not."""

    def __init__(self, in_sync_replicas: tuple[int, ...]) -> None:
        self.kernel = make_kernel()
        topic = make_topic(min_insync_replicas="1")
        in_sync = list(in_sync_replicas)
        facts = topic.partitions[0] = PartitionFacts(1, 1, in_sync, [1, 2], 0, [], dict.fromkeys(in_sync, 1))
        (self.partition,) = make_partitions(self.kernel, make_disks(self.kernel), topic).all()
        store = MemoryStore()
        self.path = topic.path(0)
        brokers = image_of(1, 2)
        for node_id in (1, 2):
            store.put(f"{BROKERS}/{node_id}", brokers.brokers[node_id].encode())
            store.put(f"{BROKER_EPOCHS}/{node_id}", brokers.broker_epochs[node_id].encode())
        store.put(topic.path(), b'{"config":{},"name":"t"}')
        store.put(self.path, facts.encode())
        self.stored = Stored(self.kernel, store)
        self.image = self.stored.image
        self.standing = Standing(1)
        self.standing.epoch, self.standing.is_registered = 1, True
        self.moved: list[Partition] = []
        advanced: Signal[Partition] = Signal()
        advanced.connect(self.moved.append)
        self.in_sync = InSync(self.kernel, self.standing, self.stored.desk, advanced)
        self.stored.desk.changed.connect(self.take_facts)
        self.take_facts([TopicChanged(TOPIC_ID)])

    def take_facts(self, changes: list[Change]) -> None:
        """As `Replicas` does when the image has changed."""
        if not changes:
            return
        self.partition.become_leader(1, self.image, self.image.topics_by_id[TOPIC_ID].partitions[0], 0)

    def fetch(self, offset: int) -> None:
        asked = FetchPartition(0, 1, offset, -1, 0, 1_000_000)
        self.in_sync.on_fetch(self.partition, 2, 1, asked)
        self.in_sync.admit()

    @property
    def members(self) -> list[int]:
        return self.image.topics_by_id[TOPIC_ID].partitions[0].in_sync_replicas


def test_a_member_s_fetch_moves_the_high_watermark() -> None:
    led = Led((1, 2))
    append(led.partition)
    assert led.partition.high_watermark == 0
    led.fetch(1)
    assert led.partition.high_watermark == 1 and led.moved == [led.partition]
    assert led.stored.settle() == [], "the store has no part in it"


def test_a_follower_that_has_all_joins_when_the_store_has_it_and_holds_the_watermark_before() -> None:
    led = Led((1,))
    append(led.partition)
    led.fetch(1)
    assert led.members == [1]
    append(led.partition)
    assert led.partition.high_watermark == 1, "the follower that joins lacks it"
    led.stored.settle()
    assert led.members == [1, 2] and led.in_sync.change_count == 1
    led.fetch(2)
    assert led.partition.high_watermark == 2


def test_a_change_whose_answer_was_lost_is_pending_until_a_reading_shows_it() -> None:
    led = Led((1,))
    led.fetch(0)

    def lose(action: Action) -> Outcome:
        if isinstance(action, Multi):
            led.stored.store.perform(action)
        return Unknown("the answer was lost")

    led.stored.settle(lose)
    assert led.members == [1] and led.partition.leadership is not None
    assert led.partition.leadership.pending is not None
    led.in_sync.tick()
    (asked,) = led.stored.settle()
    assert asked == ReadNodes((led.path,), is_synced=True)
    assert led.members == [1, 2] and led.partition.leadership.pending is None


def test_a_change_that_has_not_happened_is_proposed_again() -> None:
    led = Led((1,))
    led.fetch(0)
    lost = [True]

    def lose_the_first(action: Action) -> Outcome:
        if isinstance(action, Multi) and lost:
            lost.clear()
            return Unknown("the request was lost")
        return led.stored.store.perform(action)

    led.stored.settle(lose_the_first)
    assert led.members == [1]
    led.in_sync.tick()
    led.stored.settle()
    assert led.members == [1, 2]


def test_nothing_is_asked_of_the_store_while_this_broker_is_not_registered() -> None:
    led = Led((1,))
    led.standing.is_registered = False
    led.fetch(0)
    assert led.stored.settle() == []


def test_isrs_are_reviewed_four_times_within_the_lag_that_is_allowed() -> None:
    led = Led((1,))
    reviews = 0
    for uptime_ms in range(0, LAG_MAX_MS + 1, 100):
        led.kernel.clock.uptime_ms = uptime_ms
        reviews += led.in_sync.maybe_begin_review()
    assert reviews == 4
