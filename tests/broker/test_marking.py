"""Markers on their way to the leaders: each rule of `marking` as a story of what it prevents."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.broker.parts import TOPIC_ID, Stored, make_kernel, make_topic
from tests.memory_store import MemoryStore
from tidelog.base.limits import MARKER_PAUSE_MS, MARKER_PAUSE_MS_MAX
from tidelog.broker.data_plane.marking import Marking
from tidelog.broker.data_plane.transactions import Ended
from tidelog.broker.peers import PeerSend
from tidelog.cluster.facts import NOBODY, BrokerFacts, TopicFacts
from tidelog.cluster.paths import name_path
from tidelog.cluster.store import Action, Outcome, Unknown
from tidelog.log.markers import End, Marked
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import PREFIX_SIZE
from tidelog.protocol.markers import WrittenEnd, decode_markers, encode_marked
from tidelog.transactions.transaction import NEW_PROTOCOL, OLD_PROTOCOL, Identity, Spot
from tidelog.transactions.turn import Marked as Done
from tidelog.transactions.turn import Markers

HERE, THERE = 1, 2
ID, P, COORDINATOR_EPOCH = "payments", 7, 4
A, B = ("t", 0), ("t", 1)
NONE = ErrorCode.none


class Kept:
    """A partition, as far as `marking` knows it."""

    def __init__(self, topic: str, index: int, leader_epoch: int) -> None:
        self.topic, self.index, self.leader_epoch = topic, index, leader_epoch
        self.high_watermark = 0
        self.error_code = 0


class Desk:
    """The coordinator side of broker 1. Partitions of `t` are led here or by broker 2."""

    def __init__(self, *leaders: int) -> None:
        self.kernel = make_kernel(is_sharing=True)
        self.stored = Stored(self.kernel, MemoryStore())
        self.image = self.stored.image
        self.image.brokers[THERE] = BrokerFacts(THERE, "there", 9092, "", 1)
        self.topic = make_topic(partition_count=len(leaders))
        for index, leader in enumerate(leaders):
            self.topic.partitions[index].leader = leader
            self.topic.partitions[index].leader_epoch = 10 + index
        self.stored.store.put(name_path("t"), json.dumps({"id": TOPIC_ID.hex()}).encode())
        for index in self.topic.partitions:
            self.stored.store.put(self.topic.path(index), b"{}")
        self.know(self.topic)
        self.keeper = Kept("__transaction_state", 0, COORDINATOR_EPOCH)
        self.led = {index: Kept("t", index, 10 + index) for index in range(len(leaders))}
        self.written: list[tuple[Spot, End]] = []
        self.done: list[Spot] = []
        self.marking = Marking(self.kernel, self.stored.desk, self, self)  # type: ignore[arg-type]

    def know(self, topic: TopicFacts | None) -> None:
        """What the image of this broker has."""
        self.image.topics.pop("t", None)
        if topic is not None:
            self.image.topics["t"] = topic

    # What `marking` calls.

    def report(self, keeper: Kept, done: Done) -> None:
        assert (keeper, done.transactional_id) == (self.keeper, ID)
        self.done += done.partitions

    def write(self, topic: str, index: int, ends: list[End]) -> tuple[Kept, list[Marked]]:
        partition = self.led[index]
        self.written += [((topic, index), end) for end in ends]
        return partition, [Marked(NONE, len(self.written)) for _ in ends]

    # What happens.

    def end(self, *spots: Spot, protocol: int = NEW_PROTOCOL, number: int = 1) -> None:
        markers = Markers(ID, Identity(P, 5), True, protocol, number, spots)
        self.marking.begin(Ended(self.keeper, markers))  # type: ignore[arg-type]
        self.go_on()

    def go_on(self) -> None:
        """Everything is done that can be without another broker or the store."""
        while self.marking.has_unsent:
            self.marking.send()

    def pass_time(self, ms: int = MARKER_PAUSE_MS_MAX) -> None:
        self.kernel.clock.uptime_ms += ms
        self.marking.tick()
        self.go_on()

    def see_image(self) -> None:
        self.marking.on_image()
        self.go_on()

    def advance(self, partition: Kept, high_watermark: int) -> None:
        partition.high_watermark = high_watermark
        self.marking.on_advanced(partition)  # type: ignore[arg-type]
        self.go_on()

    def resign(self, partition: Kept) -> None:
        self.marking.on_resigned(partition)  # type: ignore[arg-type]
        self.go_on()

    def store_answers(self, is_there: bool = True) -> int:
        """How much it was asked."""

        def away(_: Action) -> Outcome:
            return Unknown("away")

        asked = self.stored.settle(None if is_there else away)
        self.go_on()
        return len(asked)

    def frames(self) -> list[PeerSend]:
        """Sent since the last call."""
        self.stored.others += self.kernel.outbox.take_effects()
        sent = [each for each in self.stored.others if isinstance(each, PeerSend)]
        self.stored.others = []
        return sent

    def sent(self) -> list[WrittenEnd]:
        return [end for frame in self.frames() for end in _ends(frame)]

    def answer(self, code: int, *spots: Spot) -> None:
        """To the one frame that was sent."""
        frames = self.frames()
        assert len(frames) == 1, "one was to be sent"
        (frame,) = frames
        rows = [("t", [(index, code) for _, index in spots])]
        data = encode_marked(int.from_bytes(frame.frame[8:12], "big"), [(P, rows)])
        self.marking.asking.on_frame(THERE, memoryview(data)[PREFIX_SIZE:])
        self.go_on()


def _ends(frame: PeerSend) -> Sequence[WrittenEnd]:
    name_size = int.from_bytes(frame.frame[12:14], "big")
    version = int.from_bytes(frame.frame[6:8], "big")
    return decode_markers(memoryview(frame.frame), 14 + name_size + 1, version)


# To whom.


def test_a_partition_without_a_leader_waits_for_one() -> None:
    """Kafka 4.3.1 takes it for deleted, and tells a commit as done whose marker is never written."""
    desk = Desk(HERE, NOBODY)
    desk.end(A, B)
    desk.advance(desk.led[0], 1)
    desk.pass_time()
    assert desk.done == [A]
    assert (desk.marking.count, desk.marking.oldest_ms) == (1, MARKER_PAUSE_MS_MAX)
    desk.topic.partitions[1].leader = THERE
    desk.see_image()
    desk.answer(NONE, B)
    assert desk.done == [A, B]
    assert (desk.marking.count, desk.marking.oldest_ms) == (0, 0)


def test_a_topic_that_the_image_does_not_have_yet_is_waited_for() -> None:
    """It was made a moment ago: the leader that has added it knows it, the coordinator does not."""
    desk = Desk(THERE)
    desk.know(None)
    desk.end(A)
    desk.store_answers()
    assert desk.done == []
    desk.know(desk.topic)
    desk.see_image()
    desk.answer(NONE, A)
    assert desk.done == [A]


def test_a_partition_that_the_image_does_not_have_yet_is_waited_for() -> None:
    desk = Desk(THERE, THERE)
    desk.know(make_topic(partition_count=1))
    desk.end(B)
    desk.store_answers()
    desk.pass_time()
    assert desk.done == []
    desk.know(desk.topic)
    desk.store_answers()
    desk.pass_time()
    desk.answer(NONE, B)
    assert desk.done == [B]


def test_a_store_that_does_not_answer_proves_nothing() -> None:
    desk = Desk(THERE)
    desk.know(None)
    desk.end(A)
    desk.store_answers(is_there=False)
    assert desk.done == []


def test_a_topic_that_is_gone_from_the_store_needs_no_marker() -> None:
    desk = Desk(THERE)
    desk.know(None)
    desk.stored.store.delete(name_path("t"))
    desk.end(A)
    assert desk.done == []
    desk.store_answers()
    assert desk.done == [A]


def test_all_partitions_of_a_topic_that_is_gone_are_one_question() -> None:
    desk = Desk(THERE, THERE)
    desk.know(None)
    desk.stored.store.delete(name_path("t"))
    desk.end(A, B)
    assert desk.store_answers() == 1
    assert desk.done == [A, B]


# When it is done.


def test_a_marker_that_is_written_here_is_done_when_it_is_committed() -> None:
    desk = Desk(HERE)
    desk.end(A)
    assert (len(desk.written), desk.done) == (1, [])
    desk.advance(desk.led[0], 1)
    assert desk.done == [A]


def test_a_marker_that_may_be_lost_with_the_leadership_is_sent_to_the_next_leader() -> None:
    desk = Desk(HERE)
    desk.end(A)
    desk.topic.partitions[0].leader = THERE
    desk.resign(desk.led[0])
    desk.pass_time()
    assert desk.done == []
    desk.answer(NONE, A)
    assert desk.done == [A]


def test_a_marker_that_is_refused_for_a_later_transaction_is_not_sent_for_ever() -> None:
    desk = Desk(THERE)
    desk.end(A)
    desk.answer(ErrorCode.invalid_producer_epoch, A)
    assert desk.done == [A]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition, ErrorCode.request_timed_out],
)
def test_every_other_error_means_once_more(code: ErrorCode) -> None:
    desk = Desk(THERE)
    desk.end(A)
    desk.answer(code, A)
    desk.pass_time(MARKER_PAUSE_MS - 1)
    assert (desk.done, desk.sent()) == ([], [])
    desk.pass_time(1)
    desk.answer(NONE, A)
    assert desk.done == [A]


def test_a_marker_whose_answer_is_lost_is_sent_again() -> None:
    desk = Desk(THERE)
    desk.end(A)
    assert len(desk.sent()) == 1
    desk.marking.asking.on_closed(THERE)
    desk.pass_time()
    desk.answer(NONE, A)
    assert desk.done == [A]


# Who may send.


def test_a_coordinator_that_was_replaced_sends_nothing_more() -> None:
    desk = Desk(THERE)
    desk.end(A)
    desk.answer(ErrorCode.transaction_coordinator_fenced, A)
    desk.pass_time()
    assert (desk.done, desk.sent(), desk.marking.count) == ([], [], 0)


def test_a_shard_that_resigns_leaves_its_markers_to_the_next_one() -> None:
    desk = Desk(NOBODY)
    desk.end(A)
    desk.resign(desk.keeper)
    desk.topic.partitions[0].leader = THERE
    desk.see_image()
    assert (desk.sent(), desk.marking.count) == ([], 0)


@pytest.mark.parametrize("protocol", [OLD_PROTOCOL, NEW_PROTOCOL])
def test_a_marker_says_which_end_it_is_of_and_for_which_leadership(protocol: int) -> None:
    """By the old protocol nothing else tells it from the marker of the next transaction."""
    desk = Desk(THERE, THERE)
    desk.end(A, B, protocol=protocol, number=9)
    assert desk.sent() == [
        WrittenEnd(P, 5, True, COORDINATOR_EPOCH, protocol, 9, [("t", [(0, 10), (1, 11)])])
    ]
