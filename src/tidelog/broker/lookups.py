"""Look-ups that are longer than a request may be: they go on in pieces, between which others are served.

**Invariant:** one piece takes a few milliseconds at most, whatever is on the disk. Who waits for a look-up is
looked at again when it has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.base.events import warning
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class Work(Protocol):
    def step(self) -> bool:
        """One piece; whether that was the last. OSError if the disk failed."""


class Lookups:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._works: dict[Work, Partition] = {}

    def go_on(self, partition: Partition, work: Work) -> None:
        """An index is being rebuilt; requests that read the partition wait for it."""
        self._works.setdefault(work, partition)

    @property
    def has_work(self) -> bool:
        return bool(self._works)

    def work(self) -> None:
        """One piece of the next one."""
        work, partition = next(iter(self._works.items()))
        del self._works[work]
        try:
            is_done = work.step()
        except OSError as failure:
            self._broker.fail_directory(partition.directory, failure)
            return
        if not is_done:
            self._works[work] = partition
            return
        name = f"{partition.topic}-{partition.index}"
        self._broker.events.append(warning("index rebuilt", partition=name))
        self._broker.waiting.on_moved(partition)
