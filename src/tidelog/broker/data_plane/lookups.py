"""Look-ups that are longer than a request may be: they go on in pieces, between which others are served. What
is not in memory is read by a thread first.

**Invariant:** one piece takes a few milliseconds at most, whatever is on the disk. Who waits for a look-up is
looked at again when it has ended, and hears of a bug that has ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.events import warning
from tidelog.base.files import File
from tidelog.base.limits import COLD_READ_SIZE
from tidelog.broker.data_plane.damaged import Damaged
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.outbox import Job, JobKind, Outbox
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.log.pages import PageRead, Unready, Work
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.replication.partition import Partition

OnFound = Callable[[int], None]  # with the error code, if it failed


class _Search(NamedTuple):
    partition: Partition
    request: Parked | None  # whose it is, if it is not everybody's
    then: OnFound


class ColdRead(Job):
    """Pages to be read off the loop; the file is pinned."""

    __slots__ = ("_lookups", "_size", "file", "partition", "position")

    kind = JobKind.SLOW_DISK

    def __init__(self, lookups: Lookups, partition: Partition, page: PageRead) -> None:
        self._lookups = lookups
        self.partition = partition
        self.file = page.file
        self.position = page.position
        self._size = max(page.size, COLD_READ_SIZE)
        self.file.pin()

    def run(self) -> None:
        self.file.read(self.position, self._size)

    def on_done(self, failure: OSError | None) -> None:
        self._lookups.on_read(self, failure)


class Lookups:
    def __init__(self, outbox: Outbox, disks: Disks, waiting: WaitingRoom, damaged: Damaged) -> None:
        self._outbox = outbox
        self._disks = disks
        self._waiting = waiting
        self.damaged = damaged
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
            self._outbox.effects.append(ColdRead(self, partition, page))
        return self._reads[key]

    def on_read(self, read: ColdRead, failure: OSError | None) -> None:
        """The pages are in memory, or cannot be read."""
        read.file.unpin()
        for work, search in self._reads.pop((read.file, read.position)):
            self._searches[work] = search
        if failure is not None:
            self._disks.fail(read.partition.directory, failure)
        self._waiting.on_moved(read.partition)

    def _rebuild(self, partition: Partition, work: Work) -> None:

        def on_found(error: int) -> None:
            name = f"{partition.topic}-{partition.index}"
            self._outbox.tell(warning("index rebuilt", partition=name))
            self._waiting.on_moved(partition)

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
        if search.request is not None and search.request.is_gone:
            return
        try:
            self._go_on(work, search)
        except Exception as bug:
            self._fail(search, bug)

    def _fail(self, search: _Search, bug: Exception) -> None:
        """A bug ends one search: its request fails. Of a search that is everybody's they all look again, and
        meet the bug themselves if it is still there."""
        if search.request is not None:
            self._waiting.fail(search.request, bug)
        else:
            self._waiting.on_moved(search.partition)

    def _go_on(self, work: Work, search: _Search) -> None:
        error = int(ErrorCode.none)
        try:
            is_done = work.step()
        except Unready as lookup:
            assert isinstance(lookup.work, PageRead)
            self._read(search.partition, lookup.work).append((work, search))
            return
        except OSError as failure:
            self._disks.fail(search.partition.directory, failure)
            is_done, error = True, int(ErrorCode.kafka_storage_error)
        except CorruptBatch as problem:
            is_done, error = True, self.damaged.note(search.partition, problem)
        if is_done:
            search.then(error)
        else:
            self._searches[work] = search
