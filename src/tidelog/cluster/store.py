"""The coordination store: a small versioned tree, and the only thing that brokers share.

The broker never calls a store. It hands out `StoreRequest`s, the shell gives them to whichever store
there is, and each comes back as one `StoreReply`:

| outcome   | meaning                                                          |
|-----------|------------------------------------------------------------------|
| `Tree`    | a read: the nodes asked for, as they were at one moment          |
| `Done`    | all operations were applied, together                            |
| `Refused` | none was: the operation at `place` met what it must not          |
| `Unknown` | the answer was lost; they may have been applied: read back       |

**Invariant:** operations of one request are applied all or not at all.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

ANY_VERSION = -1


class Create(NamedTuple):
    """Make a node that must not exist. An ephemeral one goes when its broker's session ends."""

    path: str
    data: bytes
    is_ephemeral: bool = False


class Write(NamedTuple):
    """Replace the data of a node that must exist at that version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole request unless the node is at that version."""

    path: str
    version: int


Operation = Create | Write | Delete | Check


class ReadTree(NamedTuple):
    """All nodes at and below a path."""

    path: str


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
    place: int
    reason: str


class Unknown(NamedTuple):
    reason: str


Outcome = Tree | Done | Refused | Unknown


class StoreRequest(NamedTuple):
    ticket: int
    action: ReadTree | Multi


class StoreReply(NamedTuple):
    ticket: int
    outcome: Outcome


class Store(Protocol):
    """What the shell asks of a store. Replies and changes are taken with `receive`, in order."""

    def submit(self, request: StoreRequest) -> None: ...

    def watch(self, path: str) -> None:
        """Report, once, the next change at or below `path`."""

    def receive(self) -> list[StoreReply | str]:
        """Replies that have come, and paths that were watched and have changed."""

    def close(self) -> None: ...
