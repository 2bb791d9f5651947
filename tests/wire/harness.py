"""A whole broker without sockets, threads or a clock: frames in, frames out, every effect run at once.

The store is a dictionary; fsyncs run when `settle` is called, unless the test holds them back; time moves
when the test says so.

**Invariant:** after `ask` returns, nothing the broker asked for is left undone but what the test holds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import UUID

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.jobs import run_job
from tests.memory_store import MemoryStore
from tidelog.base.config import BrokerSettings
from tidelog.base.files import DiskDirectory, FileSlice
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.data_plane.checkpoints import Checkpoint
from tidelog.broker.data_plane.disks import NextNotes, NoteRemoval, NoteSync
from tidelog.broker.data_plane.flushing import Flush
from tidelog.broker.data_plane.lookups import ColdRead
from tidelog.broker.data_plane.relocation import CopyRequest
from tidelog.broker.outbox import Job, Removal
from tidelog.cluster.store import StoreReply, StoreRequest
from tidelog.handlers.table import dispatch
from tidelog.log.directory import LogDirectory
from tidelog.log.recovery import Recovery, open_log
from tidelog.protocol.apis import APIS
from tidelog.protocol.connection import Answer, Connection
from tidelog.protocol.messages import make
from tidelog.protocol.records import build_batch
from tidelog.replication.partition import Partition

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 18, 19, 20, 22, 23
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_SCRAM, ALTER_SCRAM = 29, 30, 31, 50, 51
GET_TELEMETRY, PUSH_TELEMETRY = 71, 72
UPDATE_FEATURES, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS, DESCRIBE_TOPIC_PARTITIONS = 57, 60, 61, 75
FRAME_SIZE_MAX = 100 * 1024 * 1024
START_MS = 1_700_000_000_000
_HEADER = Struct(">hhih")
_FLEXIBLE = {api.key: api.flexible_version for api in APIS}


class Harness:
    """One broker; `ask` is a request with its answer, `send` and `answers` are the two halves of it."""

    def __init__(self, directory: Path, *others: Path, **properties: str) -> None:
        self.path = directory
        self._paths = (directory, *others)
        self.store = MemoryStore()
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self._entropy_count = 0
        self._correlation_id = 0
        self.holds_store = False
        self.holds_flushes = False
        self.held_requests: list[StoreRequest] = []
        self.held_flushes: list[Flush] = []
        self.removals: list[Removal] = []
        self.copies: list[CopyRequest] = []
        self.holds_copies = False
        self.cold_reads: list[ColdRead] = []
        self.holds_cold_reads = False
        self.held_checkpoints: list[Checkpoint] = []
        self.holds_checkpoints = False
        self.start()

    def start(self) -> None:
        self.store.end_session()
        directories = [LogDirectory(DiskDirectory(str(path))) for path in self._paths]
        self.broker = Broker(BrokerSettings(self._properties), directories, self._entropy)
        self.broker.clock.set(START_MS, 0)
        self.client = new_client()
        self.broker.start("127.0.0.1", 9092)
        self.settle()
        assert self.broker.is_serving

    def _entropy(self, size: int) -> bytes:
        self._entropy_count += 1
        return self._entropy_count.to_bytes(size, "big")

    @property
    def connection(self) -> Connection:
        return self.client.connection

    # Effects and time.

    def settle(self) -> None:
        broker = self.broker
        broker.waiting.wake()
        while broker.outbox.effects or broker.has_work:
            if broker.has_work:
                broker.work()
            for effect in broker.outbox.take_effects():
                if isinstance(effect, Removal):
                    self.removals.append(effect)
                elif isinstance(effect, Job):
                    self._start(effect)
                elif not isinstance(effect, StoreRequest):
                    raise AssertionError(f"nobody is there to ask: {effect}")
                elif self.holds_store:
                    self.held_requests.append(effect)
                else:
                    broker.on_store_event(StoreReply(effect.ticket, self.store.perform(effect.action)))
            if not self.holds_copies:
                self.run_copies()
            if not self.holds_cold_reads:
                self.run_cold_reads()
            broker.waiting.wake()

    def _start(self, job: Job) -> None:
        if isinstance(job, Flush):
            self._flush(job)
        elif isinstance(job, CopyRequest):
            self.copies.append(job)
        elif isinstance(job, ColdRead):
            self.cold_reads.append(job)
        elif isinstance(job, NoteRemoval | NextNotes | NoteSync):
            run_job(job)
        else:
            assert isinstance(job, Checkpoint)
            self.held_checkpoints.append(job)
            if not self.holds_checkpoints:
                self.write_checkpoints()

    def run_flushes(self) -> None:
        """Those that were asked for, and nothing else."""
        effects = self.broker.outbox.effects
        while flushes := [effect for effect in effects if isinstance(effect, Flush)]:
            effects.remove(flushes[0])
            self._flush(flushes[0])

    def _flush(self, flush: Flush) -> None:
        if self.holds_flushes:
            self.held_flushes.append(flush)
        else:
            run_job(flush)

    def run_cuts(self) -> None:
        """Cuts that have a turn, with their flushes, and nothing else."""
        cuts = self.broker.replicas.cuts
        self.run_flushes()
        while cuts.has_work:
            cuts.work()
            self.run_flushes()

    def write_checkpoints(self) -> None:
        held, self.held_checkpoints = self.held_checkpoints, []
        for checkpoint in held:
            checkpoint.run()
            checkpoint.on_done(None)
        self.settle()

    def run_cold_reads(self, failure: OSError | None = None) -> None:
        reads, self.cold_reads = self.cold_reads, []
        for read in reads:
            if failure is None:
                read.run()
            read.on_done(failure)

    def run_copies(self) -> None:
        copies, self.copies = self.copies, []
        for request in copies:
            run_job(request)

    def release_store(self) -> None:
        held, self.held_requests = self.held_requests, []
        self.holds_store = False
        for request in held:
            self.broker.on_store_event(StoreReply(request.ticket, self.store.perform(request.action)))
        self.settle()

    def release_flushes(self) -> None:
        held, self.held_flushes = self.held_flushes, []
        self.holds_flushes = False
        for flush in held:
            self._flush(flush)
        self.settle()

    def advance(self, milliseconds: int) -> None:
        broker = self.broker
        broker.clock.set(broker.clock.now_ms + milliseconds, broker.clock.uptime_ms + milliseconds)
        broker.tick()
        self.settle()

    # Requests.

    def send_frame(self, frame: bytes | bytearray) -> None:
        """Dispatch one frame without its size prefix; MalformedRequest if the connection would be closed."""
        dispatch(self.broker, self.client, memoryview(bytearray(frame)))
        self.settle()

    def answers(self) -> list[bytes]:
        """The frames that are ready to be sent, records read from their files."""
        output, self.connection.output = self.connection.output, []
        return [joined(answer) for answer in output]

    def send(self, api_key: int, version: int, **values: Any) -> None:
        self._correlation_id += 1
        self.send_frame(request_frame(api_key, version, self._correlation_id, **values))

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        """The answer that must be there at once, decoded by kio."""
        self.send(api_key, version, **values)
        return self.answer(api_key, version)

    def answer(self, api_key: int, version: int) -> Any:
        (frame,) = self.answers()
        return decode_answer(api_key, version, frame, self._correlation_id)

    # Shorthands.

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> bytes:
        """The new topic's id."""
        part = parts(CREATE_TOPICS, 7)
        topic = part.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=(),
            configs=tuple(
                part.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in config.items()
            ),
        )
        answer = self.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=seconds(1), validate_only=False)
        assert answer.topics[0].error_code == 0, answer
        uuid: UUID = answer.topics[0].topic_id
        return uuid.bytes

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.broker.partitions.find(topic, index)
        assert partition is not None
        return partition

    def check_logs(self) -> dict[str, int]:
        """Reopen every partition as after a crash: all must be whole. The end offset of each."""
        ends = {}
        for partition in self.broker.partitions.all():
            folder = DiskDirectory(str(self.path)).folder(f"{partition.topic}-{partition.index}")
            log, report = open_log(folder, partition.log.settings, START_MS)
            assert (report.cut_bytes, report.problems) == (0, []), report
            assert isinstance(report, Recovery)
            assert log.end_offset == partition.log.end_offset
            ends[f"{partition.topic}-{partition.index}"] = log.end_offset
            log.close(clean=False)
        return ends


@contextmanager
def other_connection(harness: Harness) -> Iterator[Connection]:
    """Talk to the broker as somebody else for a while."""
    mine = harness.client
    harness.client = new_client()
    try:
        yield harness.connection
    finally:
        harness.client = mine


def new_client() -> Client:
    return Client(Connection(FRAME_SIZE_MAX))


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def parts(api_key: int, version: int) -> Any:
    """The classes a request of that version is made of; fields it does not have are left out."""
    module = load_payload_module(api_key, version, EntityType.request)

    class Parts:
        def __getattr__(self, name: str) -> Any:
            return lambda **values: make(getattr(module, name), **values)

    return Parts()


def request_frame(api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
    """A request with its header, without the size prefix."""
    entity = make(load_request_schema(api_key, version), **values)
    return frame_head(api_key, version, correlation_id) + encode(entity)


def frame_head(api_key: int, version: int, correlation_id: int, client_id: bytes = b"tester") -> bytes:
    head = _HEADER.pack(api_key, version, correlation_id, len(client_id)) + client_id
    return head + b"\0" if version >= _FLEXIBLE.get(api_key, 0) else head


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def joined(answer: Answer) -> bytes:
    pieces = answer if isinstance(answer, list) else [answer]
    data = b""
    for piece in pieces:
        data += piece.read() if isinstance(piece, FileSlice) else piece
        if isinstance(piece, FileSlice):
            piece.release()
    return data


def decode_answer(api_key: int, version: int, frame: bytes, correlation_id: int) -> Any:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == correlation_id
    schema = load_response_schema(api_key, version)
    position = 8
    if schema.__flexible__ and api_key != API_VERSIONS:
        assert frame[8] == 0
        position = 9
    entity, size = entity_reader(schema)(frame[position:], 0)
    assert size == len(frame) - position
    return entity


def batch_of(count: int = 1, value: bytes = b"value", **fields: Any) -> bytearray:
    timestamp = fields.pop("timestamp", START_MS)
    return build_batch([(b"key", value, (), timestamp + place) for place in range(count)], **fields)
