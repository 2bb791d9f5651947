"""What is asked of the store, and what the image has when the one who asked hears."""

from __future__ import annotations

import pytest

from tests.broker.parts import make_kernel
from tests.memory_store import MemoryStore
from tidelog.broker.store_desk import UNANSWERED, Nodes, StoreDesk
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import PRODUCER_IDS
from tidelog.cluster.store import (
    Done,
    Multi,
    Node,
    Operation,
    Outcome,
    StoreReply,
    StoreRequest,
    Unknown,
    Write,
)


class Desk:
    """A desk whose image has the first version of what the store has by now."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.put(PRODUCER_IDS, encode_fields(next=0))
        kernel = make_kernel()
        self.outbox = kernel.outbox
        self.image = Image()
        self.desk = StoreDesk(self.image, kernel.outbox, is_sharing=False)
        self.image.take((), self.store.nodes)
        self.heard: list[tuple[Outcome, int]] = []  # with what the image had at that moment
        self.is_read = True

    def put_as_another(self, first: int) -> None:
        path = self.image.versions[PRODUCER_IDS]
        write = Write(PRODUCER_IDS, encode_fields(next=first), path)
        assert self.store.perform(Multi((write,))) == Done()

    def write(self, first: int) -> None:
        version = self.image.versions[PRODUCER_IDS]
        operations: list[Operation] = [Write(PRODUCER_IDS, encode_fields(next=first), version)]
        self.desk.change_or_read(operations, self.hear)
        self.settle()

    @property
    def known(self) -> int:
        return self.image.next_producer_id

    def hear(self, outcome: Outcome) -> None:
        self.heard.append((outcome, self.known))

    def settle(self) -> None:
        while effects := self.outbox.take_effects():
            for effect in effects:
                assert isinstance(effect, StoreRequest)
                is_lost = not self.is_read and not isinstance(effect.action, Multi)
                outcome = Unknown("lost") if is_lost else self.store.perform(effect.action)
                self.desk.on_reply(StoreReply(effect.ticket, outcome))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_change_that_was_made_is_in_the_image(desk: Desk) -> None:
    desk.write(7)
    assert desk.heard == [(Done(), 7)]


def test_a_refusal_is_heard_when_the_image_has_what_stood_in_the_way(desk: Desk) -> None:
    desk.put_as_another(7)
    desk.write(9)
    ((outcome, known),) = desk.heard
    assert (type(outcome).__name__, known) == ("Refused", 7)
    desk.write(9)
    assert desk.heard[1:] == [(Done(), 9)]


def test_a_refusal_that_cannot_be_read_back_is_unknown(desk: Desk) -> None:
    desk.put_as_another(7)
    desk.is_read = False
    desk.write(9)
    assert desk.heard == [(UNANSWERED, 0)]


def test_a_reading_is_in_the_image_before_it_is_heard(desk: Desk) -> None:
    found: list[tuple[Nodes | None, int]] = []
    desk.put_as_another(7)
    for desk.is_read in (True, False):
        desk.desk.read(iter((PRODUCER_IDS,)), lambda nodes: found.append((nodes, desk.known)))
        desk.settle()
    assert found == [({PRODUCER_IDS: Node(encode_fields(next=7), 1)}, 7), (None, 7)]
