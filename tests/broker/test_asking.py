"""Numbered requests to other brokers: each has one end, its answer or none."""

from __future__ import annotations

import pytest

from tests.broker.parts import make_kernel
from tidelog.broker.asking import Asking
from tidelog.broker.peers import MARKERS, PeerClose, PeerSend
from tidelog.cluster.facts import BrokerFacts
from tidelog.cluster.image import Image

FRAME = bytes(range(20))
WAIT_MS = 1_000


class Questions:
    """Of broker 1, to brokers 2 and 3."""

    def __init__(self) -> None:
        self.kernel = make_kernel()
        image = Image()
        for node_id in (2, 3):
            image.brokers[node_id] = BrokerFacts(node_id, f"host{node_id}", 9092, "", 1)
        self.asking = Asking(self.kernel, image, MARKERS, WAIT_MS)
        self.heard: list[bytes | None] = []

    def ask(self, node_id: int) -> None:
        self.asking.ask(node_id, FRAME, self.hear)

    def hear(self, answer: memoryview | None) -> None:
        self.heard.append(None if answer is None else bytes(answer))

    def sent(self) -> list[PeerSend]:
        effects = self.kernel.outbox.take_effects()
        return [effect for effect in effects if isinstance(effect, PeerSend)]

    def pass_time(self, ms: int) -> None:
        self.kernel.clock.uptime_ms += ms
        self.asking.tick()


@pytest.fixture
def questions() -> Questions:
    return Questions()


def number_of(sent: PeerSend) -> bytes:
    return bytes(sent.frame[8:12])


def test_a_frame_gets_its_size_and_a_number_of_its_own(questions: Questions) -> None:
    questions.ask(2)
    questions.ask(2)
    first, second = questions.sent()
    assert (first.node_id, first.lane, first.host) == (2, MARKERS, "host2")
    assert bytes(first.frame[:8] + first.frame[12:]) == b"\0\0\0\x14" + FRAME[:4] + FRAME[8:]
    assert number_of(first) != number_of(second)


def test_an_answer_goes_to_who_asked_whatever_the_order(questions: Questions) -> None:
    questions.ask(2)
    questions.ask(2)
    first, second = questions.sent()
    for each, answer in ((second, b"second"), (first, b"first")):
        questions.asking.on_frame(2, memoryview(number_of(each) + answer))
    assert questions.heard == [number_of(second) + b"second", number_of(first) + b"first"]
    assert questions.asking.sent_size == 0


def test_an_answer_that_nobody_waits_for_is_dropped(questions: Questions) -> None:
    questions.ask(2)
    (sent,) = questions.sent()
    for node_id in (3, 2, 2):
        questions.asking.on_frame(node_id, memoryview(number_of(sent)))
    assert questions.heard == [number_of(sent)]


def test_a_broker_that_is_not_there_gives_no_answer(questions: Questions) -> None:
    questions.ask(9)
    assert questions.heard == [None] and questions.sent() == []


def test_the_end_of_a_connection_ends_what_was_sent_on_it_and_nothing_else(questions: Questions) -> None:
    questions.ask(2)
    questions.ask(3)
    questions.asking.on_closed(2)
    assert questions.heard == [None]
    assert questions.asking.sent_size == len(FRAME)


def test_a_late_answer_gives_up_the_connection(questions: Questions) -> None:
    questions.ask(2)
    questions.pass_time(WAIT_MS - 1)
    questions.ask(2)
    assert questions.heard == []
    questions.sent()
    questions.pass_time(1)
    assert questions.heard == [None, None]
    assert questions.kernel.outbox.take_effects() == [PeerClose(2, MARKERS)]
