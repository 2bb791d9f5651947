"""Blocks of producer ids: given once, also to brokers that take them together, and where answers are lost."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker.parts import make_kernel
from tests.memory_store import MemoryStore
from tidelog.broker.control_plane.producer_ids import ProducerIds
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.controller import PRODUCER_ID_BLOCK_SIZE
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import PRODUCER_IDS
from tidelog.cluster.store import Action, Multi, Outcome, StoreReply, StoreRequest, Unknown

Perform = Callable[[Action], Outcome]


class Taker:
    """One broker's producer ids."""

    def __init__(self, store: MemoryStore) -> None:
        kernel = make_kernel()
        self._outbox = kernel.outbox
        image = Image()
        image.take((), store.nodes)
        self._desk = StoreDesk(image, kernel.outbox, is_sharing=False)
        self._ids = ProducerIds(self._desk)
        self.given: list[int | None] = []

    def ask(self) -> None:
        self._ids.ask(self.given.append)

    def settle(self, perform: Perform) -> None:
        while effects := self._outbox.take_effects():
            for effect in effects:
                assert isinstance(effect, StoreRequest)
                self._desk.on_reply(StoreReply(effect.ticket, perform(effect.action)))


def make_store() -> MemoryStore:
    store = MemoryStore()
    store.put(PRODUCER_IDS, encode_fields(next=0))
    return store


def test_brokers_that_take_blocks_at_the_same_moment_all_get_one() -> None:
    store = make_store()
    takers = [Taker(store) for _ in range(10)]
    for _ in range(2):
        for taker in takers:
            taker.ask()
    for taker in takers:
        taker.settle(store.perform)
    first = [place * PRODUCER_ID_BLOCK_SIZE for place in range(10)]
    assert [taker.given for taker in takers] == [[each, each + 1] for each in first]


def test_a_block_whose_answer_was_lost_is_given_to_nobody() -> None:
    store = make_store()
    one, other = Taker(store), Taker(store)

    def lose(action: Action) -> Outcome:
        if isinstance(action, Multi):
            store.perform(action)
        return Unknown("the answer was lost")

    one.ask()
    one.settle(lose)
    assert one.given == [None]
    for taker in (other, one):
        taker.ask()
        taker.settle(store.perform)
    assert other.given == [PRODUCER_ID_BLOCK_SIZE]
    assert one.given[1:] == [2 * PRODUCER_ID_BLOCK_SIZE]


def test_a_block_that_another_broker_has_is_not_taken_though_what_was_written_is_the_same() -> None:
    store = make_store()
    one, other = Taker(store), Taker(store)
    for taker in (one, other):
        taker.ask()
    one.settle(store.perform)
    other.settle(lambda action: Unknown("the request was lost"))
    assert (one.given, other.given) == ([0], [None])
