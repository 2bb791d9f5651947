"""Groups on their way to the partitions in which Kafka keeps them, from level 2 of `tidelog.version` on.

Partitions of `__consumer_offsets` change groups in pairs (`groups.placement`). One of a pair, S, has groups
that the other one, D, is to keep:

| step | by            | what                                                                                |
|------|---------------|-------------------------------------------------------------------------------------|
| 1    | an operator   | raises the level; the same write says that no partition has its groups yet          |
| 2    | S's leader    | writes a record that closes S to groups of D: none of them changes there any more   |
| 3    | D's leader    | reads S up to that record and writes what it says of groups of D                    |
| 4    | D's leader    | when that is committed and on disk, writes to the store that D has its groups       |
| 5    | S's leader    | takes them out of S                                                                 |

Until 4, requests for such groups get COORDINATOR_LOAD_IN_PROGRESS from D. After a crash each step is begun
again from what the journals and the store say. The record of step 2 is read by every later leader of S: one
that has not heard of the new level yet refuses those groups all the same.

**Invariant:** at every moment one partition may write a group, and what it holds of the group is all that was
committed; nothing is taken out of S that is not in D for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from tidelog.base.decision import Entry
from tidelog.base.events import error, info
from tidelog.base.limits import JOURNAL_ENTRIES_APPLIED, JOURNAL_SLICE_SIZE
from tidelog.broker.asking import BODY_POSITION, OnAnswer
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.runtime import Runtime
from tidelog.broker.data_plane.shard import Shard
from tidelog.broker.kernel import Kernel
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.features import GROUPS_TOPIC, decide_moved, uses_kafka_places
from tidelog.cluster.paths import FEATURES
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.placement import former_place_of, partner_of, place_of
from tidelog.groups.records import CLOSED_KEY, read_key
from tidelog.groups.turn import Turn
from tidelog.log.pages import Unready
from tidelog.protocol.envelope import seal
from tidelog.protocol.errors import CorruptBatch, ErrorCode, MalformedRequest
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import decode_fetch_response, encode_fetch_request
from tidelog.replication.journal_reader import JournalReader
from tidelog.replication.partition import Role

_FETCH_VERSION = 17
_CLIENT_ID = "tidelog-groups"
AskBroker = Callable[[int, bytes, OnAnswer], None]

GroupShard = Shard[GroupCoordinator]


class Arrival:
    """Groups that a shard is to get from another partition."""

    def __init__(self, shard: GroupShard, source: int) -> None:
        self.shard = shard
        self.source = source
        self.reader: JournalReader | None = None  # once the store has said that they are to come
        self.goal_offset: int | None = None  # up to where the source must be read; known when it is closed
        self.unwritten: Iterator[tuple[bytes, bytes]] | None = None
        self.group_ids: dict[str, None] = {}
        self.end_offset: int | None = None  # of the shard, with all of them
        self.is_asking = False  # the store, or the leader of the source
        self.is_idle = False  # until the next tick
        self.problem = ""

    def take(self, data: bytes, high_watermark: int, is_ours: Callable[[str], bool]) -> None:
        """What comes next of the source, and up to where it is committed. Offsets of our groups that were
        committed in transactions are awaited: the source takes no more of them."""
        assert self.reader is not None
        if data:
            self.reader.take(data)
        if self.goal_offset is None and CLOSED_KEY in self.reader.latest:
            self.goal_offset = high_watermark
        if self.goal_offset is not None and self.reader.next_offset >= self.goal_offset:
            pending = self.reader.pending.keys()
            if any(is_ours(read_key(key).group_id) for key in pending):
                self.goal_offset = max(high_watermark, self.reader.next_offset + 1)
            else:
                self.unwritten = iter(self.reader.latest.items())
        self.is_idle = not data

    def start_over(self, start_offset: int) -> None:
        self.reader, self.goal_offset, self.unwritten = JournalReader(start_offset), None, None


class GroupMoves:
    def __init__(
        self,
        runtime: Runtime[GroupCoordinator],
        kernel: Kernel,
        desk: StoreDesk,
        disks: Disks,
        partitions: Partitions,
        flushing: Flushing,
        ask: AskBroker,
    ) -> None:
        self._runtime = runtime
        self._outbox = kernel.outbox
        self._desk = desk
        self._image = desk.image
        self._disks = disks
        self._partitions = partitions
        self._flushing = flushing
        self._ask = ask
        self._arrivals: dict[GroupShard, Arrival] = {}

    # Who keeps what.

    def place_of(self, group_id: str, partition_count: int) -> int:
        if uses_kafka_places(self._image):
            return place_of(group_id, partition_count)
        return former_place_of(group_id, partition_count)

    def belonging_to(self, index: int) -> Callable[[str], bool]:
        """Whether groups belong to a partition, where Kafka's places are used."""
        return lambda group_id: place_of(group_id, self._count) == index

    def refusal(self, shard: GroupShard, group_id: str) -> ErrorCode | None:
        """Why a shard cannot serve a group whose place it is; None if it can."""
        image, index = self._image, shard.partition.index
        if not uses_kafka_places(image):
            is_gone = shard.machine.is_closed and place_of(group_id, self._count) != index
            return ErrorCode.not_coordinator if is_gone else None
        if image.groups_moved is None or index in image.groups_moved:
            return None
        is_coming = former_place_of(group_id, self._count) != index
        return ErrorCode.coordinator_load_in_progress if is_coming else None

    @property
    def _count(self) -> int:
        topic = self._image.topics.get(GROUPS_TOPIC)
        return len(topic.partitions) if topic is not None and topic.partitions else 1

    # Moving.

    def tick(self) -> None:
        image = self._image
        if not uses_kafka_places(image):
            return
        for shard in self._runtime.loaded():
            partner = partner_of(shard.partition.index, self._count)
            if partner != shard.partition.index:
                self._look(shard, partner)

    def _look(self, shard: GroupShard, partner: int) -> None:
        runtime, moved = self._runtime, self._image.groups_moved
        if moved is None or partner in moved:
            if shard.machine.left:
                runtime.run(shard, GroupCoordinator.forget_left)
        elif not shard.machine.is_closed:
            runtime.run(shard, GroupCoordinator.close)
        if moved is None or shard.partition.index in moved:
            self._arrivals.pop(shard, None)
        else:
            arrival = self._arrivals.setdefault(shard, Arrival(shard, partner))
            arrival.is_idle = False
            if not arrival.is_asking:
                self._go_on(arrival)

    def on_loaded(self, shard: GroupShard) -> None:
        """The record that closed the shard, and what took groups out, may not have been on disk when the
        machine lost its power."""
        moved, index = self._image.groups_moved, shard.partition.index
        is_over = moved is None or partner_of(index, self._count) in moved
        if uses_kafka_places(self._image) and is_over and shard.machine.strangers():
            self._runtime.run(shard, GroupCoordinator.close)

    def forget(self, shard: GroupShard) -> None:
        self._arrivals.pop(shard, None)

    def _go_on(self, arrival: Arrival) -> None:
        """With what does not take long."""
        if arrival.reader is None:
            self._ask_store(arrival)
        elif arrival.end_offset is not None:
            self._maybe_announce(arrival)
        elif arrival.unwritten is None and not self._is_source_here(arrival):
            self._ask_leader(arrival)

    @property
    def has_work(self) -> bool:
        return any(self._is_workable(arrival) for arrival in self._arrivals.values())

    def _is_workable(self, arrival: Arrival) -> bool:
        if arrival.reader is None or arrival.end_offset is not None or arrival.is_idle:
            return False
        return arrival.unwritten is not None or self._is_source_here(arrival)

    def work(self) -> None:
        """Read or write one piece."""
        arrival = next(each for each in self._arrivals.values() if self._is_workable(each))
        if arrival.unwritten is not None:
            self._write(arrival, arrival.unwritten)
        else:
            self._read(arrival)

    def _ask_store(self, arrival: Arrival) -> None:
        """What was known when this broker began to lead the shard may be older than what the leader before it
        has written: that is read, so that nothing is moved twice."""
        arrival.is_asking = True

        def on_nodes(nodes: object) -> None:
            arrival.is_asking = False
            if nodes is not None and self._arrivals.get(arrival.shard) is arrival:
                arrival.start_over(0)
                self._look(arrival.shard, arrival.source)

        self._desk.read((FEATURES,), on_nodes)

    def _is_source_here(self, arrival: Arrival) -> bool:
        source = self._partitions.find(GROUPS_TOPIC, arrival.source)
        return source is not None and source.role is Role.LEADER

    def _read(self, arrival: Arrival) -> None:
        source, reader = self._partitions.find(GROUPS_TOPIC, arrival.source), arrival.reader
        assert source is not None and reader is not None
        if reader.next_offset < source.log.start_offset:
            arrival.start_over(source.log.start_offset)
            return
        high_watermark = source.high_watermark
        try:
            found = source.log.read(reader.next_offset, high_watermark, JOURNAL_SLICE_SIZE)
            data = b""
            if found is not None:
                try:
                    data = found.read()
                finally:
                    found.release()
        except OSError as failure:
            arrival.is_idle = True
            self._disks.fail(source.directory, failure)
        except Unready as lookup:
            lookup.step()
        except CorruptBatch as problem:
            self._start_again(arrival, str(problem))
        else:
            self._take(arrival, data, high_watermark)

    def _take(self, arrival: Arrival, data: bytes, high_watermark: int) -> None:
        try:
            arrival.take(data, high_watermark, self.belonging_to(arrival.shard.partition.index))
        except CorruptBatch as problem:
            self._start_again(arrival, str(problem))

    def _start_again(self, arrival: Arrival, problem: str) -> None:
        """With the next tick."""
        self._tell(arrival, problem)
        arrival.start_over(0)
        arrival.is_idle = True

    def _ask_leader(self, arrival: Arrival) -> None:
        image, reader = self._image, arrival.reader
        topic = image.topics.get(GROUPS_TOPIC)
        facts = topic.partitions.get(arrival.source) if topic is not None else None
        if topic is None or facts is None or reader is None or facts.leader not in image.brokers:
            return
        request = FetchRequest(-1, 0, 0, JOURNAL_SLICE_SIZE, 0)
        wanted = FetchPartition(
            arrival.source, facts.leader_epoch, reader.next_offset, -1, -1, JOURNAL_SLICE_SIZE
        )
        request.topics = [(topic.topic_id, [wanted])]
        frame = bytes(encode_fetch_request(_FETCH_VERSION, 0, _CLIENT_ID, request)[4:])
        arrival.is_asking = True
        self._ask(facts.leader, seal(frame), lambda answer: self._on_answer(arrival, answer))

    def _on_answer(self, arrival: Arrival, answer: memoryview | None) -> None:
        arrival.is_asking = False
        if answer is None or self._arrivals.get(arrival.shard) is not arrival:
            return
        try:
            response = decode_fetch_response(answer, BODY_POSITION, _FETCH_VERSION)
        except MalformedRequest as problem:
            self._tell(arrival, str(problem))
            return
        if response.error_code or not response.topics:
            return
        received = response.topics[0][1][0]
        if received.error_code == ErrorCode.offset_out_of_range and received.log_start_offset >= 0:
            arrival.start_over(received.log_start_offset)
        elif received.error_code:
            return
        else:
            data = bytes(answer[received.start : received.end])
            self._take(arrival, data, received.high_watermark)
        if not arrival.is_idle:
            self._go_on(arrival)

    def _tell(self, arrival: Arrival, problem: str) -> None:
        if problem != arrival.problem:
            arrival.problem = problem
            source = f"{GROUPS_TOPIC}-{arrival.source}"
            self._outbox.tell(error("group move failed", source=source, reason=problem))

    def _write(self, arrival: Arrival, unwritten: Iterator[tuple[bytes, bytes]]) -> None:
        runtime, shard = self._runtime, arrival.shard
        piece = list(islice(unwritten, JOURNAL_ENTRIES_APPLIED))
        if piece:
            turns: list[Turn] = []
            runtime.run(shard, partial(self._take_in, arrival, piece, turns))
            if any(turn.is_refused for turn in turns):
                self._start_again(arrival, "the target partition rejects the records")
            return

        def resume(groups: GroupCoordinator, turn: Turn) -> None:
            for group_id in arrival.group_ids:
                groups.resume_group(turn, group_id)

        runtime.run(shard, resume)
        runtime.write()
        if self._arrivals.get(shard) is arrival:
            arrival.end_offset = shard.partition.log.end_offset
            shard.partition.want_flush()
            self._flushing.maybe_begin(shard.partition)

    def _take_in(
        self,
        arrival: Arrival,
        piece: list[tuple[bytes, bytes]],
        turns: list[Turn],
        groups: GroupCoordinator,
        turn: Turn,
    ) -> None:
        turns.append(turn)
        index, count = arrival.shard.partition.index, self._count
        entries = []
        for key, value in piece:
            group_id = read_key(key).group_id
            if group_id and place_of(group_id, count) == index:
                arrival.group_ids[group_id] = None
                entries.append(Entry(key, value))
        groups.take_in(turn, entries)

    def _maybe_announce(self, arrival: Arrival) -> None:
        partition, end_offset = arrival.shard.partition, arrival.end_offset
        assert end_offset is not None
        if min(partition.log.recovery_point, partition.high_watermark) < end_offset:
            return
        count = self._count
        awaited = [index for index in range(count) if partner_of(index, count) != index]
        arrival.is_asking = True

        def on_outcome(_: object) -> None:
            """If it was not done, somebody else has changed the node, or the answer was lost: the next tick
            asks again by what the image has then."""
            arrival.is_asking = False
            moved = self._image.groups_moved
            if arrival.group_ids and (moved is None or partition.index in moved):
                source = f"{GROUPS_TOPIC}-{arrival.source}"
                self._outbox.tell(
                    info(
                        "groups moved",
                        source=source,
                        partition=partition.index,
                        groups=len(arrival.group_ids),
                    )
                )

        self._desk.change(decide_moved(self._image, partition.index, awaited), on_outcome)
