"""One fetch of a reader, consumer or follower: the partitions that are due, read in turn, and the answer made
of them.

A reader's `Terms` are what differs: how a partition is read, what is answered at once, and when there is
nothing more to say of a partition. A request without a session has one of its own: everything in it is due.

**Invariant:** a read looks at what is due and at nothing else. What it finds and does not send is released;
a partition is settled, and traffic counted, only when the answer is made.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.files import FileSlice
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.sessions import Session
from tidelog.broker.waiting import Parked
from tidelog.log.pages import Unready
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.protocol.fetch import FetchedPartition, FetchRequest, Records
from tidelog.replication.fetch_session import PartitionKey, SessionPartition, TopicKey
from tidelog.replication.partition import Partition

_STORAGE = int(ErrorCode.kafka_storage_error)

Topics = list[tuple[TopicKey, list[FetchedPartition]]]


# What a read has found of one partition, and its bytes. A plain tuple: one is made for each that is read.
Found = tuple[PartitionKey, SessionPartition, Partition | None, FetchedPartition, int]


class Terms(Protocol):
    """What differs between readers."""

    is_urgent: bool  # a read has found something that is answered at once, though it is no error
    size_max: int | None  # bytes that may be given at once; None for as many as are asked for

    def missing(self, key: PartitionKey) -> FetchedPartition:
        """The answer for a partition that is not here."""

    def read(
        self, partition: Partition, known: SessionPartition, left: int, is_first: bool
    ) -> FetchedPartition:
        """What there is to give, `left` bytes at most, or one batch where nothing was found before. OSError,
        CorruptBatch, or Unready."""

    def unready(self, partition: Partition, known: SessionPartition) -> FetchedPartition:
        """The answer for a partition whose records take longer to find than a request may."""

    def is_settled(self, known: SessionPartition, partition: Partition, fetched: FetchedPartition) -> bool:
        """Whether, once answered, there is nothing to say of a partition until it moves."""

    def is_enough(self, found: list[Found]) -> bool:
        """Whether something was found for which this reader does not wait."""

    def admit_fetched(self, found: list[Found]) -> bool:
        """Whether this may be sent now, by the reader's quota; asked only where there are quotas."""

    def note_answered(self, found: list[Found]) -> None:
        """Count what is about to be answered."""

    def encode(self, session_id: int, topics: Topics) -> Answer: ...


class Reading:
    """What is wanted, and what the last read of it found."""

    __slots__ = ("_broker", "_fetch", "_found", "_has_error", "_is_full", "_size", "_terms", "session")

    def __init__(self, broker: Broker, fetch: FetchRequest, session: Session, terms: Terms) -> None:
        self._broker = broker
        self._fetch = fetch
        self._terms = terms
        self.session = session
        # A session's first answer and one without a session name every partition.
        self._is_full = fetch.session_epoch <= 0
        self._found: list[Found] = []
        self._size = 0
        self._has_error = False

    def read(self) -> None:
        """Read everything that is due, from the start; what an earlier read found is released."""
        if self._found:
            self.release()
        self._terms.is_urgent = False
        try:
            self._read_due()
        except BaseException:
            self.release()
            raise

    def _read_due(self) -> None:
        session, find, found = self.session, self._broker.partitions.find, self._found
        left = min(self._fetch.max_bytes, self._broker.settings.number("fetch.max.bytes"))
        if self._terms.size_max is not None:
            left = min(left, self._terms.size_max)
        for key in session.due:
            topic, index = key
            known, partition, size = session.partitions[key], find(topic, index), 0
            if partition is None:
                fetched = self._terms.missing(key)
            else:
                fetched = self._read_one(partition, known, left)
                if fetched.records is not None:
                    size = size_of(fetched.records)
                    left -= size
                    self._size += size
            if fetched.error_code:
                self._has_error = True
            found.append((key, known, partition, fetched, size))

    def _read_one(self, partition: Partition, known: SessionPartition, left: int) -> FetchedPartition:
        try:
            return self._terms.read(partition, known, left, self._size == 0)
        except OSError as failure:
            self._broker.disks.fail(partition.directory, failure)
            return FetchedPartition(known.request.index, _STORAGE)
        except CorruptBatch as problem:
            return FetchedPartition(
                known.request.index, self._broker.lookups.damaged.note(partition, problem)
            )
        except Unready as lookup:
            self._broker.lookups.wait_for(partition, lookup)
            return self._terms.unready(partition, known)

    def is_enough(self) -> bool:
        """Whether to answer now: enough bytes, an error to tell, or nothing that waiting would bring."""
        return (
            self._size >= self._fetch.min_bytes
            or (self._terms.size_max is not None and self._size >= self._terms.size_max)
            or self._has_error
            or self._terms.is_urgent
            or not self.session.partitions
            or self._terms.is_enough(self._found)
        )

    def is_replaced(self, watched: list[Partition]) -> bool:
        """Whether a partition was created again while the fetch waited: it does not watch the new one."""
        if self.session.session_id:
            return any(known.watched is not partition for _, known, partition, _, _ in self._found)
        return not all(partition.is_open for partition in watched)

    def encode(self) -> Answer:
        try:
            if self._broker.quotas.is_on and not self._terms.admit_fetched(self._found):
                return self.encode_nothing()
            return self._encode()
        except BaseException:
            self.release()
            raise

    def _encode(self) -> Answer:
        session, terms, is_full = self.session, self._terms, self._is_full
        session_id, has_error = session.session_id, self._has_error
        terms.note_answered(self._found)
        topics: Topics = []
        for key, known, partition, fetched, _ in self._found:
            if is_full or known.is_news(fetched):
                if topics and topics[-1][0] == key[0]:
                    topics[-1][1].append(fetched)
                else:
                    topics.append((key[0], [fetched]))
            if session_id:
                known.note_told(fetched)
                # A disk that has failed in this read takes along what was read from it before.
                if partition is None or (has_error and not partition.is_open):
                    continue
                if terms.is_settled(known, partition, fetched):
                    session.settle(key, partition)
                elif fetched.records is not None:
                    session.move_back(key)
        session.waiting = None
        return terms.encode(session_id, topics)

    def encode_nothing(self) -> Answer:
        """The answer to a reader that is over a quota: no topics. All that is due stays so, and its session
        goes on; one that was to begin does not (KIP-219)."""
        self.release()
        session = self.session
        session.waiting = None
        if not self._is_full:
            return self._terms.encode(session.session_id, [])
        if session.session_id:
            self._broker.sessions.drop(session)
        return self._terms.encode(0, [])

    def release(self) -> None:
        """Release the files that a read has pinned and that are not sent."""
        for _, _, _, fetched, _ in self._found:
            if isinstance(fetched.records, FileSlice):
                fetched.records.release()
        self._found = []
        self._size = 0
        self._has_error = False

    def wait(self, parked: ParkedFetch) -> list[Partition]:
        """Have the fetch answered when something is due; the partitions it watches itself, if its session
        does not."""
        self.release()
        session, find = self.session, self._broker.partitions.find
        if not session.session_id:
            return [partition for key in session.due if (partition := find(*key)) is not None]
        session.waiting = parked
        for key in session.due:
            partition = find(*key)
            if partition is not None:
                session.watch(key, partition)
        return []


def size_of(records: Records) -> int:
    if isinstance(records, FileSlice):
        return records.size
    return len(records) if isinstance(records, bytes) else 0


class ParkedFetch(Parked):
    """A fetch that waits until there is enough."""

    __slots__ = ("_reading",)

    def __init__(self, deadline_ms: int, reading: Reading) -> None:
        super().__init__(deadline_ms, reading.wait(self))
        self._reading = reading

    def try_finish(self) -> Answer | None:
        reading = self._reading
        reading.read()
        if reading.is_enough() or reading.is_replaced(self.partitions):
            return reading.encode()
        reading.release()
        return None

    def finish_late(self) -> Answer | None:
        self._reading.read()
        return self._reading.encode()
