"""Markers on their way from the coordinators here to the leaders of partitions.

| what a leader answers for a partition | then                                                         |
|---------------------------------------|--------------------------------------------------------------|
| no error                              | its marker is committed: done                                |
| INVALID_PRODUCER_EPOCH                | a later transaction is there, so this one ended before: done |
| TRANSACTION_COORDINATOR_FENCED        | a later coordinator sends them: no more is sent from here    |
| anything else, or nothing             | sent again after a pause that grows, or when the image has   |
|                                       | changed                                                      |

A partition without a leader waits for one. What is sent in one turn leaves as one frame for each leader;
this broker's own partitions are written without a frame.

**Invariant:** a partition is left out only when a synced reading of the store shows that it is gone. An image
that lacks the topic, or a partition without a leader, proves nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.base.limits import (
    MARKER_ANSWER_MS_MAX,
    MARKER_PAUSE_MS,
    MARKER_PAUSE_MS_MAX,
    MARKERS_PER_FRAME_MAX,
)
from tidelog.broker.asking import BODY_POSITION, Asking
from tidelog.broker.data_plane.marker_writes import MarkerWrites
from tidelog.broker.data_plane.transactions import Ended, Transactions
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import MARKERS
from tidelog.broker.store_desk import Nodes, StoreDesk
from tidelog.cluster.controller import decode_name
from tidelog.cluster.facts import NOBODY, PartitionFacts, TopicFacts
from tidelog.cluster.paths import name_path
from tidelog.log.markers import End
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.markers import WrittenEnd, decode_marked, encode_markers
from tidelog.protocol.records import Marker
from tidelog.replication.partition import Partition
from tidelog.transactions.transaction import Spot
from tidelog.transactions.turn import Marked, Markers

_CLIENT_ID = "tidelog-markers"
_NONE = int(ErrorCode.none)
_DONE = frozenset((_NONE, int(ErrorCode.invalid_producer_epoch)))
_FENCED = int(ErrorCode.transaction_coordinator_fenced)
_NO_ANSWER = int(ErrorCode.network_exception)
_ANY = -1  # in the place of a partition: the topic is not known


class Errand:
    """One end of a transaction on its way: the partitions whose marker is not known to be committed."""

    __slots__ = (
        "began_ms",
        "coordinator_epoch",
        "due_ms",
        "is_over",
        "keeper",
        "markers",
        "missing",
        "pause_ms",
        "unsent",
    )

    def __init__(self, ended: Ended, now_ms: int) -> None:
        self.keeper, self.markers = ended
        self.began_ms = now_ms
        self.coordinator_epoch = ended.keeper.leader_epoch
        self.missing = dict.fromkeys(ended.markers.partitions)
        self.unsent = dict.fromkeys(ended.markers.partitions)
        self.due_ms = 0  # when the unsent ones may be sent
        self.pause_ms = MARKER_PAUSE_MS
        self.is_over = False

    def end_at(self, leader_epoch: int) -> End:
        markers = self.markers
        return End(
            markers.identity.producer_id,
            markers.identity.epoch,
            Marker.COMMIT if markers.is_commit else Marker.ABORT,
            self.coordinator_epoch,
            markers.client_version,
            markers.number,
            leader_epoch,
        )


class _Written(NamedTuple):
    """A marker in a partition that is led here."""

    end_offset: int  # that the high watermark has to reach
    leader_epoch: int
    errand: Errand


Sent = list[tuple[Errand, list[tuple[Spot, int]]]]  # with the leader epochs that were meant


class Marking:
    def __init__(
        self, kernel: Kernel, desk: StoreDesk, transactions: Transactions, marker_writes: MarkerWrites
    ) -> None:
        self._node_id = kernel.node_id
        self._clock = kernel.clock
        self._desk = desk
        self._image = desk.image
        self._transactions = transactions
        self._marker_writes = marker_writes
        self.asking = Asking(kernel, desk.image, MARKERS, MARKER_ANSWER_MS_MAX)
        self._errands: dict[tuple[Partition, str], Errand] = {}
        self._unsent: dict[Errand, None] = {}  # that have something to send now
        self._paused: dict[Errand, None] = {}  # that have something to send later
        self._written: dict[Partition, deque[_Written]] = {}
        self._arrived: dict[Errand, list[Spot]] = {}  # to be reported
        # What the store is asked for: partitions, or a whole topic (`_ANY`), and who waits for that.
        self._looked_up: dict[Spot, list[tuple[Errand, Spot]]] = {}

    @property
    def count(self) -> int:
        """Ends whose markers are not all committed."""
        return len(self._errands)

    @property
    def oldest_ms(self) -> int:
        """How long the oldest of these is on its way; 0 without one."""
        oldest = next(iter(self._errands.values()), None)
        return self._clock.uptime_ms - oldest.began_ms if oldest is not None else 0

    # What is to be sent.

    def begin(self, ended: Ended) -> None:
        """The end of a transaction is committed: its markers leave with the turn."""
        key = (ended.keeper, ended.markers.transactional_id)
        before = self._errands.get(key)
        if before is not None:
            self._drop(before)
        errand = self._errands[key] = Errand(ended, self._clock.uptime_ms)
        self._unsent[errand] = None

    def on_resigned(self, partition: Partition) -> None:
        """Another broker coordinates its transactions now, and leads what was written here."""
        for errand in [each for each in self._errands.values() if each.keeper is partition]:
            self._drop(errand)
        for written in self._written.pop(partition, ()):
            self._send_again(written.errand, _spot_of(partition))

    def on_image(self) -> None:
        """Another leader may be known, or another broker."""
        if self._paused:
            self._unsent |= self._paused
            self._paused = {}

    def _drop(self, errand: Errand) -> None:
        errand.is_over = True
        self._errands.pop((errand.keeper, errand.markers.transactional_id), None)
        self._unsent.pop(errand, None)
        self._paused.pop(errand, None)
        self._arrived.pop(errand, None)

    def _send_again(self, errand: Errand, spot: Spot) -> None:
        if errand.is_over or spot not in errand.missing:
            return
        errand.unsent[spot] = None
        if errand not in self._paused and errand not in self._unsent:
            errand.due_ms = self._clock.uptime_ms + errand.pause_ms
            errand.pause_ms = min(2 * errand.pause_ms, MARKER_PAUSE_MS_MAX)
            self._paused[errand] = None

    # Sending.

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent or self._arrived)

    def send(self) -> None:
        """The turn is over: send what has come in it, and report what is done."""
        if self._unsent:
            unsent, self._unsent = self._unsent, {}
            here: dict[Spot, Sent] = {}
            elsewhere: dict[int, dict[Errand, list[tuple[Spot, int]]]] = {}
            for errand in unsent:
                spots, errand.unsent = errand.unsent, {}
                for spot in spots:
                    self._direct(errand, spot, here, elsewhere)
            for spot, sent in here.items():
                self._write(spot, sent)
            for node_id, by_errand in elsewhere.items():
                for piece in _pieces(by_errand):
                    self._ask(node_id, piece)
        while self._arrived:
            errand = next(iter(self._arrived))
            self._report(errand, tuple(self._arrived.pop(errand)))

    def _direct(
        self,
        errand: Errand,
        spot: Spot,
        here: dict[Spot, Sent],
        elsewhere: dict[int, dict[Errand, list[tuple[Spot, int]]]],
    ) -> None:
        facts = self._facts_of(spot)
        if facts is None:
            self._look_up(errand, spot)
        elif facts.leader == self._node_id:
            here.setdefault(spot, []).append((errand, [(spot, facts.leader_epoch)]))
        elif facts.leader == NOBODY:
            self._send_again(errand, spot)
        else:
            by_errand = elsewhere.setdefault(facts.leader, {})
            by_errand.setdefault(errand, []).append((spot, facts.leader_epoch))

    def _facts_of(self, spot: Spot) -> PartitionFacts | None:
        topic = self._image.topics.get(spot[0])
        return topic.partitions.get(spot[1]) if topic is not None else None

    def _write(self, spot: Spot, sent: Sent) -> None:
        """Into a partition that is led here."""
        partition, marked = self._marker_writes.write(*spot, [errand.end_at(at[0][1]) for errand, at in sent])
        for (errand, _), (code, end_offset) in zip(sent, marked, strict=True):
            if code or partition is None or partition.high_watermark >= end_offset:
                self._take(errand, spot, code)
            else:
                waiting = self._written.setdefault(partition, deque())
                waiting.append(_Written(end_offset, partition.leader_epoch, errand))

    def on_advanced(self, partition: Partition) -> None:
        """More of it is committed, or it is led under another epoch."""
        waiting = self._written.get(partition)
        if waiting is None:
            return
        while waiting and waiting[0].leader_epoch != partition.leader_epoch:
            self._send_again(waiting.popleft().errand, _spot_of(partition))
        while waiting and waiting[0].end_offset <= partition.high_watermark:
            self._take(waiting.popleft().errand, _spot_of(partition), _NONE)
        if not waiting:
            del self._written[partition]

    def _ask(self, node_id: int, sent: Sent) -> None:
        def on_answer(answer: memoryview | None) -> None:
            codes = _codes_of(answer, len(sent))
            for (errand, spots), told in zip(sent, codes, strict=True):
                for spot, _ in spots:
                    self._take(errand, spot, told.get(spot, _NO_ANSWER))

        ends = [_written_end(errand, spots) for errand, spots in sent]
        self.asking.ask(node_id, encode_markers(_CLIENT_ID, ends), on_answer)

    # What is answered.

    def _take(self, errand: Errand, spot: Spot, code: int) -> None:
        if errand.is_over:
            return
        if code in _DONE:
            self._arrived.setdefault(errand, []).append(spot)
        elif code == _FENCED:
            self._drop(errand)
        else:
            self._send_again(errand, spot)

    def _report(self, errand: Errand, spots: tuple[Spot, ...]) -> None:
        for spot in spots:
            errand.missing.pop(spot, None)
        if not errand.missing:
            self._drop(errand)
        markers = errand.markers
        self._transactions.report(
            errand.keeper, Marked(markers.transactional_id, markers.identity, markers.number, spots)
        )

    # Partitions that are not in the image.

    def _look_up(self, errand: Errand, spot: Spot) -> None:
        """Ask the store whether a partition is gone, or only unknown here."""
        topic, name = self._image.topics.get(spot[0]), name_path(spot[0])
        key = spot if topic is not None else (spot[0], _ANY)
        waiting = self._looked_up.get(key)
        if waiting is not None:
            waiting.append((errand, spot))
            return
        self._looked_up[key] = [(errand, spot)]
        paths = [name] if topic is None else [name, topic.path(spot[1])]

        def on_nodes(nodes: Nodes | None) -> None:
            asked = self._looked_up.pop(key)
            is_gone = nodes is not None and _is_gone(nodes, paths, topic)
            for each, missing in asked:
                self._take(each, missing, _NONE if is_gone else _NO_ANSWER)

        self._desk.read(paths, on_nodes)

    # Time.

    def tick(self) -> None:
        self.asking.tick()
        now_ms = self._clock.uptime_ms
        for errand in [each for each in self._paused if each.due_ms <= now_ms]:
            del self._paused[errand]
            self._unsent[errand] = None
        for partition in [each for each in self._written if each.error_code]:
            self.on_resigned(partition)


def _spot_of(partition: Partition) -> Spot:
    return partition.topic, partition.index


def _is_gone(nodes: Nodes, paths: list[str], topic: TopicFacts | None) -> bool:
    """Whether nobody has the topic's name, or the topic has no such partition. Another topic of that name may
    have it: the image will say."""
    name = nodes.get(paths[0])
    if name is None:
        return True
    return topic is not None and decode_name(name.data) == topic.topic_id and paths[-1] not in nodes


def _pieces(by_errand: dict[Errand, list[tuple[Spot, int]]]) -> Iterator[Sent]:
    """What one frame takes, after the other."""
    piece: Sent = []
    count = 0
    for errand, spots in by_errand.items():
        for start in range(0, len(spots), MARKERS_PER_FRAME_MAX):
            some = spots[start : start + MARKERS_PER_FRAME_MAX]
            if piece and count + len(some) > MARKERS_PER_FRAME_MAX:
                yield piece
                piece, count = [], 0
            piece.append((errand, some))
            count += len(some)
    if piece:
        yield piece


def _written_end(errand: Errand, spots: Iterable[tuple[Spot, int]]) -> WrittenEnd:
    topics: dict[str, list[tuple[int, int]]] = {}
    for (name, index), leader_epoch in spots:
        topics.setdefault(name, []).append((index, leader_epoch))
    markers: Markers = errand.markers
    return WrittenEnd(
        markers.identity.producer_id,
        markers.identity.epoch,
        markers.is_commit,
        errand.coordinator_epoch,
        markers.client_version,
        markers.number,
        list(topics.items()),
    )


def _codes_of(answer: memoryview | None, count: int) -> list[dict[Spot, int]]:
    """Of each end what was answered for its partitions."""
    if answer is None:
        return [{}] * count
    try:
        rows = decode_marked(answer, BODY_POSITION)
    except MalformedRequest:
        return [{}] * count
    codes = [{(name, index): code for name, parts in topics for index, code in parts} for _, topics in rows]
    return codes if len(codes) == count else [{}] * count
