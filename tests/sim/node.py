"""One broker on a simulated disk, with the shell's part done by hand: store, fsyncs, removals, clock.

**Invariant:** nothing happens by itself; fsyncs end when `end_flushes` is called, in the order they began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

from tests.jobs import outcome_of, run_job
from tests.log.making import NOW_MS, make_batch
from tests.memory_store import MemoryStore
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tidelog.base.config import BrokerSettings
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.data_plane.checkpoints import Checkpoint
from tidelog.broker.data_plane.disks import NoteRemoval
from tidelog.broker.data_plane.flushing import Flush
from tidelog.broker.data_plane.relocation import CopyRequest
from tidelog.broker.outbox import Removal
from tidelog.client.produce import decode_produce_response, encode_produce_request
from tidelog.cluster.facts import NOBODY, PartitionChange
from tidelog.cluster.store import Done, Outcome, StoreReply, StoreRequest
from tidelog.handlers.table import dispatch
from tidelog.log.directory import LogDirectory
from tidelog.protocol.connection import Connection
from tidelog.protocol.produce import ProducedPartition
from tidelog.replication.partition import Partition

VERSION = 9
ALL = -1


class BrokerOnDisk:
    properties: Mapping[str, str] = MappingProxyType({})  # of the broker; a subclass may have others

    def __init__(self, seed: int = 0, **topic_config: int | str) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.store = MemoryStore()
        self.config = {name.replace("_", "."): str(value) for name, value in topic_config.items()}
        self.start()

    # Lives.

    def start(self, folders: tuple[str, ...] = ("logs",)) -> None:
        """Start on what the disk holds and wait until the broker serves."""
        self.store.end_session()
        self.directories = [LogDirectory(self._top(name)) for name in folders]
        self.broker = Broker(BrokerSettings(dict(self.properties)), self.directories, self.random.randbytes)
        self.connection = Connection(1 << 24)
        self.client = Client(self.connection)
        self.flushes: list[Flush] = []
        self.pending: list[tuple[Flush, OSError | None]] = []
        self.removals: list[Removal] = []
        self.copies: list[CopyRequest] = []
        self.correlation_id = 0
        self.broker.clock.set(NOW_MS, 0)
        self.broker.start("127.0.0.1", 9092)
        self.settle()
        assert self.broker.is_serving

    def _top(self, name: str) -> SimulatedDirectory:
        """The operator made the log directory long ago."""
        folder = self.disk.root.folder(name)
        self.disk.root.sync()
        return folder

    def stop(self) -> None:
        self.broker.stop()

    def crash(self) -> None:
        self.disk.crash(self.random)

    def create_topic(self, name: str = "t", partition_count: int = 1) -> None:
        outcomes: list[Outcome] = []
        self.broker.topics.create(name, self.config, [[1]] * partition_count, outcomes.append)
        self.settle()
        assert outcomes == [Done()]

    def delete_topic(self, name: str = "t") -> None:
        self.broker.topics.delete(self.broker.image.topics[name], lambda outcome: None)
        self.settle()

    def elect_unclean(self) -> None:
        """An administrator lets partitions be led whose logs may have lost something."""
        asked = [
            PartitionChange(topic, index, replace(facts, is_unclean=True))
            for topic in self.broker.image.topics.values()
            for index, facts in topic.partitions.items()
            if facts.leader == NOBODY
        ]
        self.broker.control.elect_unclean(asked, lambda outcome: None)
        self.settle_store()

    def settle_store(self) -> None:
        """Let some ticks pass in which the broker says to the store what it has to."""
        for _ in range(5):
            self.tick(100)

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        partition = self.broker.partitions.find(topic, index)
        assert partition is not None
        return partition

    # The shell's part.

    def settle(self) -> None:
        """Do what the broker asked for, but for the fsyncs."""
        self.broker.waiting.wake()
        retention, cuts = self.broker.retention, self.broker.replicas.cuts
        while self.broker.outbox.effects or retention.has_work or cuts.has_work:
            if retention.has_work or cuts.has_work:
                (retention if retention.has_work else cuts).work()
                continue
            effect = self.broker.outbox.effects.pop(0)
            if isinstance(effect, StoreRequest):
                self.broker.on_store_event(StoreReply(effect.ticket, self.store.perform(effect.action)))
            elif isinstance(effect, Removal):
                self.removals.append(effect)
            elif isinstance(effect, CopyRequest):
                self.copies.append(effect)
            elif isinstance(effect, Flush):
                self.flushes.append(effect)
            else:
                assert isinstance(effect, Checkpoint | NoteRemoval), f"nobody is there to ask: {effect}"
                run_job(effect)

    def run_copies(self) -> int:
        """Run the copies that were asked for and let the broker hear of it. How many there were."""
        copies, self.copies = self.copies, []
        for request in copies:
            run_job(request)
        self.settle()
        return len(copies)

    def run_flushes(self) -> int:
        """Run the fsyncs that were asked for; the broker does not hear of it yet. How many there were."""
        effects = self.broker.outbox.effects
        asked = [effect for effect in effects if isinstance(effect, Flush)]
        self.broker.outbox.effects = [effect for effect in effects if not isinstance(effect, Flush)]
        flushes, self.flushes = [*self.flushes, *asked], []
        self.pending += [(flush, outcome_of(flush)) for flush in flushes]
        return len(flushes)

    def end_flushes(self) -> int:
        """Run what there is to run and tell the broker how it went. How many fsyncs that were."""
        count = self.end_flushes_alone()
        self.settle()
        return count

    def end_flushes_alone(self) -> int:
        """The same, and nothing yet of what the broker asks for then."""
        self.run_flushes()
        pending, self.pending = self.pending, []
        for flush, failure in pending:
            flush.on_done(failure)
        return len(pending)

    def tick(self, passed_ms: int) -> None:
        self.broker.clock.set(self.broker.clock.now_ms + passed_ms, self.broker.clock.uptime_ms + passed_ms)
        self.broker.tick()
        self.settle()

    # The client's part.

    def produce(
        self, batch: bytearray | None = None, acks: int = ALL, index: int = 0, topic: str = "t"
    ) -> int:
        """Send a batch; the number under which its answer will come."""
        self.correlation_id += 1
        pieces = encode_produce_request(
            VERSION, self.correlation_id, "c", acks, 5_000, [(topic, [(index, batch or make_batch())])]
        )
        frame = bytearray(b"".join(bytes(piece) for piece in pieces))
        dispatch(self.broker, self.client, memoryview(frame)[4:])
        self.settle()
        return self.correlation_id

    def take_answers(self) -> dict[int, ProducedPartition]:
        """What has been answered since the last time, by the number of the request."""
        answers = {}
        for answer in self.connection.output:
            assert isinstance(answer, bytes | bytearray)
            number = int.from_bytes(answer[4:8], "big")
            response = decode_produce_response(memoryview(answer), 9, VERSION)
            answers[number] = response.topics[0][1][0]
        self.connection.output.clear()
        return answers
