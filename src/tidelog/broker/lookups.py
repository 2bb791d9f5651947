"""Look-ups that are longer than a request may be: they go on in pieces, between which others are served. What
is not in memory is read by a thread first.

**Invariant:** one piece takes a few milliseconds at most, whatever is on the disk. Who waits for a look-up is
looked at again when it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.base.events import warning
from tidelog.base.files import File
from tidelog.base.limits import COLD_READ_SIZE
from tidelog.broker.waiting import Parked
from tidelog.log.pages import PageRead
from tidelog.log.segment import Unready
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

OnFound = Callable[[int], None]  # with the error code, if it failed


class Work(Protocol):
    def step(self) -> bool:
        """One piece; whether that was the last. OSError if the disk failed, CorruptBatch if the log is
        damaged."""


class _Search(NamedTuple):
    partition: Partition
    request: Parked | None  # whose it is, if it is not everybody's
    then: OnFound


class ColdRead(NamedTuple):
    """Pages to be read off the loop; the file is pinned."""

    partition: Partition
    file: File
    position: int
    size: int


class Lookups:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._searches: dict[Work, _Search] = {}
        self._reads: dict[tuple[File, int], list[tuple[Work, _Search]]] = {}  # and the searches that wait

    def wait_for(self, partition: Partition, lookup: Unready) -> None:
        """Requests that read the partition are looked at again when the look-up can go on."""
        work = lookup.work
        if isinstance(work, PageRead):
            self._read(partition, work)
        else:
            self._rebuild(partition, work)

    def _read(self, partition: Partition, page: PageRead) -> list[tuple[Work, _Search]]:
        key = (page.file, page.position)
        if key not in self._reads:
            self._reads[key] = []
            page.file.pin()
            size = max(page.size, COLD_READ_SIZE)
            self._broker.effects.append(ColdRead(partition, page.file, page.position, size))
        return self._reads[key]

    def on_read(self, read: ColdRead, failure: OSError | None) -> None:
        """The pages are in memory, or cannot be read."""
        read.file.unpin()
        for work, search in self._reads.pop((read.file, read.position)):
            self._searches[work] = search
        if failure is not None:
            self._broker.fail_directory(read.partition.directory, failure)
        self._broker.waiting.on_moved(read.partition)

    def _rebuild(self, partition: Partition, work: Work) -> None:

        def on_found(error: int) -> None:
            name = f"{partition.topic}-{partition.index}"
            self._broker.events.append(warning("index rebuilt", partition=name))
            self._broker.waiting.on_moved(partition)

        self._searches.setdefault(work, _Search(partition, None, on_found))

    def search(
        self, partition: Partition, work: Work, request: Parked, then: OnFound, is_at_once: bool
    ) -> None:
        """Go on until it has ended, or the request has left; with the first piece at once, if there is time
        for it."""
        search = _Search(partition, request, then)
        if is_at_once:
            self._go_on(work, search)
        else:
            self._searches[work] = search

    @property
    def has_work(self) -> bool:
        return bool(self._searches)

    def work(self) -> None:
        """One piece of the next one."""
        work, search = next(iter(self._searches.items()))
        del self._searches[work]
        if search.request is None or not search.request.is_gone:
            self._go_on(work, search)

    def _go_on(self, work: Work, search: _Search) -> None:
        error = int(ErrorCode.none)
        try:
            is_done = work.step()
        except Unready as lookup:
            assert isinstance(lookup.work, PageRead)
            self._read(search.partition, lookup.work).append((work, search))
            return
        except OSError as failure:
            self._broker.fail_directory(search.partition.directory, failure)
            is_done, error = True, int(ErrorCode.kafka_storage_error)
        except CorruptBatch as problem:
            is_done, error = True, self._broker.damaged.note(search.partition, problem)
        if is_done:
            search.then(error)
        else:
            self._searches[work] = search
