"""Parts of a broker by themselves, on simulated disks, with a store whose replies come when a test asks."""

from __future__ import annotations

from collections.abc import Callable

from tests.log.making import NOW_MS, make_batch
from tests.memory_store import MemoryStore
from tests.replication.leading import image_of, lead
from tests.sim.disk import SimulatedDisk
from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.broker.control_plane.control import Control
from tidelog.broker.control_plane.following import Following
from tidelog.broker.control_plane.forwarding import Forwarding
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.kernel import Kernel
from tidelog.broker.outbox import Effect, Outbox
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.facts import PartitionFacts, TopicFacts, encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import BROKER_EPOCHS, BROKERS, CONTROLLER, CONTROLLER_EPOCH
from tidelog.cluster.store import Action, Outcome, StoreReply, StoreRequest
from tidelog.log.directory import LogDirectory
from tidelog.replication.partition import Partition

TOPIC_ID = bytes(range(16))
ASKED_MAX = 1_000  # of the store, in one test


def make_kernel(is_sharing: bool = False, **properties: str) -> Kernel:
    settings = BrokerSettings({name.replace("_", "."): value for name, value in properties.items()})
    return Kernel(settings, bytes, is_sharing)


def make_disks(kernel: Kernel, count: int = 1) -> Disks:
    directories = [LogDirectory(SimulatedDisk().root) for _ in range(count)]
    return Disks(kernel, Standing(kernel.node_id), directories)


def disk_of(disks: Disks, place: int = 0) -> SimulatedDisk:
    return disks.directories[place].directory.disk  # type: ignore[attr-defined,no-any-return]


def make_topic(name: str = "t", partition_count: int = 1, **config: str) -> TopicFacts:
    """A topic that broker 1 has all of."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    partitions = {index: PartitionFacts(1, 0, [1], [1], 0, [], {1: 1}) for index in range(partition_count)}
    return TopicFacts(TOPIC_ID, name, settings, 0, partitions)


def make_partitions(kernel: Kernel, disks: Disks, topic: TopicFacts) -> Partitions:
    """Open, new, led here."""
    partitions = Partitions(kernel.node_id, disks.directories)
    settings = TopicSettings(kernel.settings, topic.config)
    assert partitions.open_topic(topic, settings, NOW_MS, is_new=True) == []
    for partition in partitions.all():
        lead(partition, 0)
    return partitions


def append(partition: Partition, count: int = 1, value: bytes = b"v" * 30) -> None:
    batch = make_batch(count, value=value)
    partition.append(memoryview(batch), 0, len(batch), NOW_MS)


def told(outbox: Outbox) -> list[str]:
    """The names of the events since the last call."""
    return [event.name for event in outbox.take_events()]


class Stored:
    """A store and a desk before it, with an image of what the store had when it was made."""

    def __init__(self, kernel: Kernel, store: MemoryStore) -> None:
        self.store = store
        self.image = Image()
        self.image.take((), store.nodes)
        self._outbox = kernel.outbox
        self.desk = StoreDesk(self.image, kernel.outbox, kernel.is_sharing)
        self.others: list[Effect] = []  # what is asked for, and not of the store

    def settle(self, perform: Callable[[Action], Outcome] | None = None) -> list[Action]:
        """Answer all that is asked, and what is asked by that; what it was."""
        asked: list[Action] = []
        while effects := self._outbox.take_effects():
            for effect in effects:
                if isinstance(effect, StoreRequest):
                    asked.append(effect.action)
                    assert len(asked) < ASKED_MAX, "it is asked again and again"
                    outcome = (perform or self.store.perform)(effect.action)
                    self.desk.on_reply(StoreReply(effect.ticket, outcome))
                else:
                    self.others.append(effect)
        return asked


class Controlled:
    """The control plane of a registered broker, with a controller epoch in the store."""

    def __init__(self, is_sharing: bool = True, node_ids: tuple[int, ...] = (1,)) -> None:
        self.kernel = make_kernel(is_sharing)
        store = MemoryStore()
        cluster = image_of(*node_ids)
        store.put(CONTROLLER_EPOCH, encode_fields(epoch=0))
        for node_id in node_ids:
            store.put(f"{BROKERS}/{node_id}", cluster.brokers[node_id].encode())
            store.put(f"{BROKER_EPOCHS}/{node_id}", cluster.broker_epochs[node_id].encode())
        self.stored = Stored(self.kernel, store)
        self.image = self.stored.image
        self.standing = Standing(self.kernel.node_id)
        self.standing.epoch, self.standing.is_registered = 1, True
        self.following = Following(self.kernel, self.standing, self.stored.desk)
        self.in_force = SettingsInForce(self.kernel, self.image)
        self.control = Control(self.kernel, self.standing, self.stored.desk, self.following, self.in_force)
        self.waiting = WaitingRoom()
        self.forwarding = Forwarding(self.kernel, self.image, self.control, self.waiting)

    def stand(self) -> None:
        self.control.stand()
        self.stored.settle()
        self.control.note_controller()

    def elect_other(self, node_id: int, is_seen: bool = True) -> None:
        """Another broker becomes the controller."""
        epoch = self.image.controller_epoch + 1
        self.stored.store.put(CONTROLLER_EPOCH, encode_fields(epoch=epoch))
        self.stored.store.put(CONTROLLER, encode_fields(id=node_id, epoch=epoch))
        if is_seen:
            nodes = self.stored.store.nodes
            self.image.take((CONTROLLER, CONTROLLER_EPOCH), nodes)
