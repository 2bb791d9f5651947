"""Requests to the coordination store, and the image of what it holds.

| asked            | when the store replies                                                          |
|------------------|---------------------------------------------------------------------------------|
| an action        | who asked hears the outcome                                                     |
| a synced reading | the image has what was found; then who asked hears it                           |
| a change         | if it was done, the image has it; then who asked hears the outcome              |

**Invariant:** the image changes only by what the store has confirmed or shown, and whoever acts on a change
has acted before the one who asked for it hears that it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.broker.outbox import Outbox
from tidelog.broker.signal import Signal
from tidelog.cluster.changes import Change
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import CHANGES, is_topic_path
from tidelog.cluster.store import (
    Action,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    Operation,
    Outcome,
    ReadNodes,
    Refused,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
)

OnOutcome = Callable[[Outcome], None]
Nodes = dict[str, Node]
UNANSWERED = Unknown("the store does not answer")


def notice_of(operations: list[Operation]) -> Create:
    """The notice that goes with what these operations write. Of a topic that is deleted it does not name the
    partitions: they would be as much again."""
    gone = tuple(
        f"{each.path}/" for each in operations if isinstance(each, Delete) and is_topic_path(each.path)
    )
    written = [each.path for each in operations if not isinstance(each, Check)]
    paths = [path for path in written if not path.startswith(gone)]
    return Create(f"{CHANGES}/", encode_fields(paths=paths), is_sequential=True)


class StoreDesk:
    def __init__(self, image: Image, outbox: Outbox, is_sharing: bool) -> None:
        self.image = image
        self._outbox = outbox
        self._is_sharing = is_sharing
        self._tickets = 0
        self._pending: dict[int, OnOutcome] = {}
        self.changed: Signal[list[Change]] = Signal()  # in the image

    @property
    def pending_count(self) -> int:
        """Requests that the store has not answered."""
        return len(self._pending)

    def submit(self, action: Action, on_outcome: OnOutcome) -> None:
        self._tickets += 1
        self._pending[self._tickets] = on_outcome
        self._outbox.effects.append(StoreRequest(self._tickets, action))

    def change(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        """Ask the store for a change; the image has it before `on_outcome` hears that it was done."""
        asked = [*operations, notice_of(operations)] if self._is_sharing else operations

        def on_multi(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.changed.emit(self.image.apply(operations))
            on_outcome(outcome)

        self.submit(Multi(tuple(asked)), on_multi)

    def change_or_read(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        """The same; `Refused` is heard when the image has what stood in the way, `Unknown` if that cannot be
        read."""

        def on_change(outcome: Outcome) -> None:
            if isinstance(outcome, Refused):
                paths = [operation.path for operation in operations]
                self.read(paths, lambda nodes: on_outcome(outcome if nodes is not None else UNANSWERED))
            else:
                on_outcome(outcome)

        self.change(operations, on_change)

    def read(self, paths: Iterable[str], on_nodes: Callable[[Nodes | None], None]) -> None:
        """Read what these places have, with all that was written before this was asked for; None if the
        store does not answer."""
        wanted = tuple(paths)

        def on_reading(outcome: Outcome) -> None:
            if isinstance(outcome, Tree):
                self.take(wanted, outcome.nodes)
                on_nodes(outcome.nodes)
            else:
                on_nodes(None)

        self.submit(ReadNodes(wanted, is_synced=True), on_reading)

    def take(self, paths: Iterable[str], nodes: Nodes) -> None:
        """What was read of these places is so."""
        self.changed.emit(self.image.take(paths, nodes))

    def on_reply(self, reply: StoreReply) -> None:
        self._pending.pop(reply.ticket)(reply.outcome)
