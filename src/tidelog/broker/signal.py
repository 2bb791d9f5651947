"""Facts that one part tells and others act on.

A part that finds something out (a directory has failed, a partition has advanced) does not know who must
hear of it. It emits a signal; `Broker` connects the listeners, in the order in which they must hear.

**Invariant:** listeners are connected while the broker is put together, never later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.replication.partition import Partition

T = TypeVar("T")


class Signal(Generic[T]):
    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[T], None]] = []

    def connect(self, *listeners: Callable[[T], None]) -> None:
        self._listeners += listeners

    def emit(self, fact: T) -> None:
        for listener in self._listeners:
            listener(fact)


class PartitionSignals:
    """What happens to partitions, and many must hear of."""

    def __init__(self) -> None:
        self.advanced: Signal[Partition] = Signal()  # more of it is there, committed, or on disk
        self.led: Signal[Partition] = Signal()  # this broker leads it from now on
        self.resigned: Signal[Partition] = Signal()  # it leads it no longer
