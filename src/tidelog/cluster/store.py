"""The coordination store: a small versioned tree, and the only state that brokers share.

The broker never calls a store. It returns `StoreRequest`s and `Watch`es, the shell passes them to the
store in use, and each request comes back as one `StoreReply`:

| outcome   | meaning                                                              |
|-----------|----------------------------------------------------------------------|
| `Tree`    | a read: the requested nodes, each as it was at some moment since     |
| `Done`    | all operations were applied, together                                |
| `Refused` | none was applied: the condition of the operation at `place` failed   |
| `Unknown` | the answer was lost; they may have been applied: read back           |

Requests of one session are carried out and answered in their order. A read may be older than the newest
state, but never older than what the session has seen; a *synced* reading shows everything written before it
was asked for, and settles what an `Unknown` left open. A `Changed` is delivered before anything of the change
can be read. Ephemeral nodes are removed with their session. `SessionEnded` reports that, after an `Unknown`
for each pending request; the next request begins a new session, without watches. An `Unknown` is delivered
when the store can be asked again, so a caller may retry at once.

**Invariant:** operations of one request are applied all or not at all.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

ANY_VERSION = -1
NOWHERE = -1


class Create(NamedTuple):
    """Create a node that must not exist. An ephemeral node is removed when its broker's session ends. To the
    path of a sequential node the store appends ten digits: a number higher than any before in that folder."""

    path: str
    data: bytes
    is_ephemeral: bool = False
    is_sequential: bool = False


class Write(NamedTuple):
    """Replace the data of a node that must exist at that version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole request unless the node exists at that version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Write | Delete | Check


class ReadTree(NamedTuple):
    """All nodes at and below a path."""

    path: str
    is_synced: bool = False


class ReadNodes(NamedTuple):
    """Those nodes, if they exist."""

    paths: tuple[str, ...]
    is_synced: bool = False


class Multi(NamedTuple):
    operations: tuple[Operation, ...]


class Node(NamedTuple):
    data: bytes
    version: int


class Tree(NamedTuple):
    nodes: dict[str, Node]


class Done(NamedTuple):
    pass


class Refused(NamedTuple):
    place: int  # or NOWHERE: the request is too large for the store
    reason: str


class Unknown(NamedTuple):
    reason: str


Outcome = Tree | Done | Refused | Unknown


def reason_of(outcome: Outcome) -> str:
    """Why a change was not made, or why its outcome is unknown, for people."""
    if isinstance(outcome, Refused | Unknown):
        return outcome.reason
    return f"the store answered {type(outcome).__name__}"


Action = ReadTree | ReadNodes | Multi


class StoreRequest(NamedTuple):
    ticket: int
    action: Action


class Watch(NamedTuple):
    """Report the next change at `path`, once: created, written or deleted; of a folder, also a child created
    or deleted."""

    path: str


class StoreReply(NamedTuple):
    ticket: int
    outcome: Outcome


class Changed(NamedTuple):
    """A watched node has changed, once or more often."""

    path: str


class SessionEnded(NamedTuple):
    """The store has ended this broker's session: ephemeral nodes and watches are gone."""


StoreEvent = StoreReply | Changed | SessionEnded


class Store(Protocol):
    """The shell's interface to a store. Results are collected with `receive`, in order."""

    @property
    def is_connected(self) -> bool: ...

    def submit(self, request: StoreRequest | Watch) -> None: ...

    def receive(self) -> list[StoreEvent]: ...

    def close(self) -> None: ...
