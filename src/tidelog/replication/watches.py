"""Who watches which partition, and which of the watched ones have moved.

**Invariant:** a watcher hears of a partition once for each round in which the partition has moved, however
often the partition moved in it; being told is an act, and finding the request to look at is a question.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tidelog.replication.partition import Partition

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)


class Watcher(Protocol[W_co]):
    def note_moved(self, partition: Partition) -> None:
        """Record that a watched partition has moved."""

    def woken_by(self, partition: Partition) -> W_co | None:
        """The request that may have an answer now, if there is one. Changes nothing."""


class Watches(Generic[W]):
    __slots__ = ("_by_partition", "moved")

    def __init__(self) -> None:
        self._by_partition: dict[Partition, dict[Watcher[W], None]] = {}
        self.moved: dict[Partition, None] = {}  # and its watchers are yet to be told

    def watch(self, partition: Partition, watcher: Watcher[W]) -> None:
        self._by_partition.setdefault(partition, {})[watcher] = None

    def unwatch(self, partition: Partition, watcher: Watcher[W]) -> None:
        others = self._by_partition.get(partition)
        if others is not None:
            others.pop(watcher, None)
            if not others:
                del self._by_partition[partition]

    def on_moved(self, partition: Partition) -> None:
        if partition in self._by_partition:
            self.moved[partition] = None

    def take_woken(self) -> list[W]:
        """Tell the watchers of all that has moved; the requests that may have an answer by that, some of
        them more than once."""
        moved, self.moved = self.moved, {}
        woken: list[W] = []
        for partition in moved:
            for watcher in tuple(self._by_partition.get(partition, ())):  # a watcher may unwatch
                watcher.note_moved(partition)
                request = watcher.woken_by(partition)
                if request is not None:
                    woken.append(request)
        return woken
