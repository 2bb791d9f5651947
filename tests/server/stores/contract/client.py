"""A client of whichever store there is: it asks and waits, and keeps what it hears on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.cluster.store import (
    Action,
    Multi,
    Node,
    Operation,
    Outcome,
    ReadTree,
    Store,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Watch,
)

ANSWER_SECONDS_MAX = 30
StoreKind = TypeVar("StoreKind", bound=Store)


class Client(Generic[StoreKind]):
    """`heard` is what was received and has not been asked for yet, in its order."""

    def __init__(self, open_store: Callable[[Callable[[], object]], StoreKind]) -> None:
        self.told = threading.Semaphore(0)
        self.store = open_store(self.told.release)
        self.ticket = 0
        self.heard: list[StoreEvent] = []

    def send(self, action: Action) -> int:
        self.ticket += 1
        self.store.submit(StoreRequest(self.ticket, action))
        return self.ticket

    def watch(self, path: str) -> None:
        self.store.submit(Watch(path))

    def wait_until(self, is_there: Callable[[], bool]) -> None:
        """Receive until it is so; what is to be received is notified."""
        while True:
            self.heard += self.store.receive()
            if is_there():
                return
            assert self.told.acquire(timeout=ANSWER_SECONDS_MAX), self.heard

    def wait_for(self, event: StoreEvent) -> None:
        self.wait_until(lambda: event in self.heard)
        self.heard.remove(event)

    def replies(self) -> list[StoreReply]:
        return [event for event in self.heard if isinstance(event, StoreReply)]

    def wait_for_replies(self, count: int) -> list[StoreReply]:
        """All the replies heard, in their order, once there are so many; they stay among what was heard."""
        self.wait_until(lambda: len(self.replies()) >= count)
        return self.replies()

    def outcome(self, ticket: int) -> Outcome:
        self.wait_until(lambda: any(reply.ticket == ticket for reply in self.replies()))
        (reply,) = (reply for reply in self.replies() if reply.ticket == ticket)
        self.heard.remove(reply)
        return reply.outcome

    def ask(self, action: Action) -> Outcome:
        return self.outcome(self.send(action))

    def change(self, *operations: Operation) -> Outcome:
        return self.ask(Multi(operations))

    def tree(self, path: str = "/", *, is_synced: bool = True) -> dict[str, Node]:
        outcome = self.ask(ReadTree(path, is_synced))
        assert isinstance(outcome, Tree), outcome
        return outcome.nodes
