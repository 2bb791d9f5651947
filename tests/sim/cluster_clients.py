"""Clients of a simulated cluster: producers, consumers, and who asks where a partition ends.

Each has one partition and one request under way. They know leaders as some broker's image has them, which may
be an old one, and ask the wrong broker now and then.

**Invariant:** an idempotent producer sends a batch until it is acknowledged, and nothing behind it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.log.making import NOW_MS
from tests.wire.harness import LIST_OFFSETS, decode_answer, parts, request_frame
from tidelog.client.produce import decode_produce_response, encode_produce_request
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.paths import TOPICS
from tidelog.handlers.list_offsets import LATEST
from tidelog.protocol.batch import LENGTH_OVERHEAD, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import ReceivedPartition, decode_fetch_response, encode_fetch_request
from tidelog.protocol.records import build_batch, read_records

if TYPE_CHECKING:
    from tests.sim.cluster import World
    from tests.sim.cluster_node import ClusterNode

PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION = 13, 13, 9
ALL = -1
CORRELATION_ID = 7
WINDOW = 5  # sequences that a broker remembers of each producer


class Spot(NamedTuple):
    """A partition of a topic that is never deleted."""

    topic: str
    topic_id: bytes
    partition: int

    @property
    def path(self) -> str:
        return f"{TOPICS}/{self.topic_id.hex()}/{self.partition}"


class Leader(NamedTuple):
    node: ClusterNode
    epoch: int


class Client:
    def __init__(self, world: World, spot: Spot, pause_ms_max: int) -> None:
        self.world = world
        self.spot = spot
        self._pause_ms_max = pause_ms_max
        self.is_over = False
        self.plan()

    def plan(self) -> None:
        self.world.clock.after(self.world.clock.random.randint(1, self._pause_ms_max), self.step)

    def step(self) -> None:
        raise AssertionError("every client does something")

    def find_leader(self) -> Leader | None:
        """As some broker knows it."""
        clock, nodes = self.world.clock, self.world.serving()
        if not nodes:
            return None
        asked = clock.random.choice(nodes)
        assert asked.broker is not None
        topic = asked.broker.image.topics_by_id.get(self.spot.topic_id)
        facts = topic.partitions.get(self.spot.partition) if topic is not None else None
        if facts is None or facts.leader == NOBODY:
            return None
        leader = self.world.nodes[facts.leader]
        if clock.chance(0.03):
            leader = clock.random.choice(nodes)
        return Leader(leader, facts.leader_epoch) if leader.is_running else None


class Producer(Client):
    """With an id it is idempotent and wants acks=all; without one each batch is sent once, with acks=1."""

    def __init__(self, world: World, spot: Spot, name: str, producer_id: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.sequence = 0
        self.values: list[bytes] = []  # of the batch that is yet to be acknowledged
        self.acknowledged_count = 0
        self.wants_more = True
        super().__init__(world, spot, world.plan.produce_pause_ms)

    def step(self) -> None:
        leader = self.find_leader()
        if leader is None or (not self.values and not self.wants_more):
            self.plan()
            return
        if not self.values:
            count = self.world.clock.random.randint(1, 4)
            self.values = [b"%s:%d" % (self.name.encode(), self.sequence + n) for n in range(count)]
        timeout_ms = self.world.clock.random.choice((300, 1_500, 5_000))
        node_id = leader.node.node_id
        self.world.network.call(
            leader.node,
            self._frame(timeout_ms),
            timeout_ms + 200,
            lambda answer: self._on_answer(node_id, answer),
        )

    def _frame(self, timeout_ms: int) -> bytes:
        is_idempotent = self.producer_id >= 0
        batch = build_batch(
            [(self.key_of(value), value, (), NOW_MS) for value in self.values],
            producer_id=self.producer_id,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=self.sequence if is_idempotent else -1,
        )
        topics: list[tuple[str | bytes, list[tuple[int, bytearray]]]] = [
            (self.spot.topic_id, [(self.spot.partition, batch)])
        ]
        pieces = encode_produce_request(
            PRODUCE_VERSION,
            CORRELATION_ID,
            self.name,
            ALL if is_idempotent else 1,
            timeout_ms,
            topics,  # type: ignore[arg-type]
        )
        return b"".join(bytes(piece) for piece in pieces)[4:]

    def key_of(self, value: bytes) -> bytes | None:
        return None

    def _on_answer(self, node_id: int, frame: bytes | None) -> None:
        code, offset = ErrorCode.request_timed_out, -1
        if frame is not None:
            outcome = decode_produce_response(memoryview(frame), 9, PRODUCE_VERSION).topics[0][1][0]
            code, offset = ErrorCode(outcome.error_code), outcome.base_offset
        self.world.clock.counts[f"produce: {code.name}"] += 1
        self.world.clock.note(
            f"{self.name}:{self.sequence}+{len(self.values)} by {node_id}: {code.name} {offset}"
        )
        if code is ErrorCode.none:
            self.world.on_acknowledged(self, offset)
            self.acknowledged_count += 1
        elif self.producer_id >= 0:
            self.world.on_refused(self, code, node_id)
        if code is ErrorCode.none or self.producer_id < 0:
            self.sequence += len(self.values)
            self.values = []
        self.plan()


class Consumer(Client):
    """Reads on from where it is, mostly from the leader."""

    def __init__(self, world: World, spot: Spot) -> None:
        self.offset = 0
        super().__init__(world, spot, 500)

    def step(self) -> None:
        leader, clock = self.find_leader(), self.world.clock
        if leader is None:
            self.plan()
            return
        epoch, server = leader.epoch, leader.node
        is_of_leader = not clock.chance(0.25)
        if not is_of_leader:
            epoch, server = -1, clock.random.choice(self.world.serving())
        if clock.chance(0.05):
            self.offset = clock.random.randint(0, self.offset)  # again from there
        request = FetchRequest(-1, clock.random.choice((0, 200)), 1, 1 << 20, 0)
        asked = FetchPartition(
            self.spot.partition, epoch, self.offset, -1, -1, clock.random.choice((1, 300, 5_000))
        )
        request.topics = [(self.spot.topic_id, [asked])]
        frame = bytes(encode_fetch_request(FETCH_VERSION, CORRELATION_ID, "c", request)[4:])
        self.world.network.call(
            server, frame, 1_000, lambda answer: self._on_answer(answer, epoch if is_of_leader else -1)
        )

    def _on_answer(self, frame: bytes | None, epoch: int) -> None:
        if frame is not None:
            view = memoryview(frame)
            response = decode_fetch_response(view, 9, FETCH_VERSION)
            if response.topics:
                found = response.topics[0][1][0]
                self._take(found, view[found.start : found.end], epoch)
        self.plan()

    def _take(self, found: ReceivedPartition, records: memoryview, epoch: int) -> None:
        world = self.world
        if found.error_code:
            world.on_not_read(self, ErrorCode(found.error_code), epoch)
            return
        for batch in split_batches(records):
            world.on_read(self.spot, batch, epoch)
            self.offset = max(self.offset, read_header(batch).last_offset + 1)


class OffsetAsker(Client):
    """Asks the leader where the partition ends."""

    def __init__(self, world: World, spot: Spot) -> None:
        super().__init__(world, spot, 900)

    def step(self) -> None:
        leader = self.find_leader()
        if leader is None:
            self.plan()
            return
        part = parts(LIST_OFFSETS, LIST_VERSION)
        asked = part.ListOffsetsPartition(
            partition_index=self.spot.partition, current_leader_epoch=leader.epoch, timestamp=LATEST
        )
        topic = part.ListOffsetsTopic(name=self.spot.topic, partitions=(asked,))
        frame = request_frame(
            LIST_OFFSETS, LIST_VERSION, CORRELATION_ID, replica_id=-1, isolation_level=0, topics=(topic,)
        )
        known = self.world.watermark.known(self.spot)
        self.world.network.call(leader.node, frame, 1_000, lambda answer: self._on_answer(answer, known))

    def _on_answer(self, frame: bytes | None, known: dict[int, int]) -> None:
        if frame is not None:
            answer = decode_answer(LIST_OFFSETS, LIST_VERSION, frame, CORRELATION_ID)
            found = answer.topics[0].partitions[0]
            code = ErrorCode(found.error_code)
            self.world.clock.counts[f"latest: {code.name}"] += 1
            if code is ErrorCode.none:
                self.world.on_latest(self.spot, found.leader_epoch, found.offset, known)
        self.plan()


def split_batches(records: memoryview) -> list[bytes]:
    """The whole batches; the last may be cut off."""
    batches, position = [], 0
    while position + LENGTH_OVERHEAD <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + LENGTH_OVERHEAD
        if position + size > len(records):
            break
        batches.append(bytes(records[position : position + size]))
        position += size
    return batches


def values_of(batch: bytes) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in read_records(batch)]
