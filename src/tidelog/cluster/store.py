"""The coordination store: a small versioned tree, and the only thing that brokers share.

The broker never calls a store. It hands out `StoreRequest`s and `Watch`es, the shell gives them to whichever
store there is, and each request comes back as one `StoreReply`:

| outcome   | meaning                                                          |
|-----------|------------------------------------------------------------------|
| `Tree`    | a read: the nodes asked for, each as it was at some moment since |
| `Done`    | all operations were applied, together                            |
| `Refused` | none was: the operation at `place` met what it must not          |
| `Unknown` | the answer was lost; they may have been applied: read back       |

Requests of one session are carried out in their order, and answered in it. What is read may be older than
the newest, but never older than what the session has seen; a *synced* reading shows all that was written
before it was asked for, and what an `Unknown` left open is decided then. A `Changed` comes before anything
of the change can be read. Ephemeral nodes go with their session. `SessionEnded` says that this has
happened, after an `Unknown` for all that was under way; the next request begins a new session, without
watches. An `Unknown` is told when the store can be asked again, so whoever asks at once does not ask in vain.

**Invariant:** operations of one request are applied all or not at all.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

ANY_VERSION = -1
NOWHERE = -1


class Create(NamedTuple):
    """Make a node that must not exist. An ephemeral one goes when its broker's session ends. To a sequential
    one's path the store adds ten digits: a number higher than any given before in that folder."""

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
    """Refuse the whole request unless the node exists, at that version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Write | Delete | Check


class ReadTree(NamedTuple):
    """All nodes at and below a path."""

    path: str
    is_synced: bool = False


class ReadNodes(NamedTuple):
    """Those nodes, as far as they exist."""

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
    place: int  # or NOWHERE: they are more than the store takes at once
    reason: str


class Unknown(NamedTuple):
    reason: str


Outcome = Tree | Done | Refused | Unknown


Action = ReadTree | ReadNodes | Multi


class StoreRequest(NamedTuple):
    ticket: int
    action: Action


class Watch(NamedTuple):
    """Report, once, the next change at `path`: made, written, deleted; or of what is right below it, if it is
    a folder: made or deleted."""

    path: str


class StoreReply(NamedTuple):
    ticket: int
    outcome: Outcome


class Changed(NamedTuple):
    """What was watched has changed, once or more often since."""

    path: str


class SessionEnded(NamedTuple):
    """The store has given this broker up: what was ephemeral is gone, and so are the watches."""


StoreEvent = StoreReply | Changed | SessionEnded


class Store(Protocol):
    """What the shell asks of a store. What comes of it is taken with `receive`, in order."""

    @property
    def is_connected(self) -> bool: ...

    def submit(self, request: StoreRequest | Watch) -> None: ...

    def receive(self) -> list[StoreEvent]: ...

    def close(self) -> None: ...
