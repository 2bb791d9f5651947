"""Queries without Spark: drivers and tasks as plain objects, which write to a real broker.

A driver's process asks the broker through `Wire`, which knows every request before and after it is sent:
there a process is killed, or held until another one has done something.

**Invariant:** what is read back is decided by the records of the log alone: the batches of a producer count
when its marker says so.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.spark.programs import awaited
from tidelog.client.cluster import LATEST, Cluster, TopicPartition
from tidelog.client.exchange import LIST_TRANSACTIONS, KioExchange
from tidelog.client.reader import RangeReader
from tidelog.client.transaction_messages import Opened
from tidelog.protocol.batch import LENGTH_OVERHEAD, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make
from tidelog.protocol.records import build_batch, read_records
from tidelog.spark.exactly_once.decider import Clock, Decider, JobDecider, SinkMemory, SinkSettings
from tidelog.spark.exactly_once.tasks import Place, Slots, TaskReport, TaskTransaction
from tidelog.testing import Broker

PARTITIONS = 2
TIMEOUT_MS = 600_000
HELD_SECONDS_MAX = 120.0
LOADING = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available)
Rows = Sequence[str]


class Killed(BaseException):
    """A process was killed."""


class Wire:
    """The transactional requests of one process: `steps` has each, in order, before and after it is sent."""

    def __init__(self, cluster: Cluster) -> None:
        self._real = cluster.transactions
        self.steps: list[str] = []
        self.at: Callable[[str, int], None] = lambda step, number: None

    def reached(self, step: str) -> None:
        self.steps.append(step)
        self.at(step, len(self.steps))

    def _sent(self, name: str, send: Callable[[], Any]) -> Any:
        self.reached(f"before {name}")
        answer = send()
        self.reached(f"after {name}")
        return answer

    def begin(self, transactional_id: str, timeout_ms: int) -> Opened:
        role = "begin" if transactional_id.count("/") > 1 else "own"
        found: Opened = self._sent(role, lambda: self._real.begin(transactional_id, timeout_ms))
        return found

    def end(self, opened: Collection[Opened], *, commits: bool, timeout_ms: int) -> dict[Opened, int]:
        codes: dict[Opened, int] = {}
        for each in opened:  # one after the other, so that a process can be killed between two
            name = "decide" if each.transactional_id.count("/") == 1 else "commit" if commits else "abort"
            codes |= self._sent(name, partial(self._end, each, commits, timeout_ms))
        return codes

    def _end(self, opened: Opened, commits: bool, timeout_ms: int) -> dict[Opened, int]:
        return self._real.end([opened], commits=commits, timeout_ms=timeout_ms)

    def commit_offsets(self, *arguments: Any) -> None:
        self._sent("marker", lambda: self._real.commit_offsets(*arguments))

    def committed(self, *arguments: Any) -> Any:
        return self._sent("read", lambda: self._real.committed(*arguments))

    def describe(self, *arguments: Any) -> Any:
        return self._sent("describe", lambda: self._real.describe(*arguments))

    def list_open(self, *arguments: Any, **named: Any) -> Any:
        return self._sent("list", lambda: self._real.list_open(*arguments, **named))


@dataclass
class Query:
    """What stays when its driver dies: the checkpoint, the topic, and what each batch reads."""

    bootstrap: str
    folder: Path
    topic: str
    query_id: str = field(default_factory=lambda: uuid4().hex)
    name: str = "stream"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sink_id(self) -> str:
        return f"{self.query_id}/{self.name}"

    @property
    def offsets(self) -> Path:
        return self.folder / "offsets"

    def plan(self, batch: int, planned_ms: int) -> None:
        """As Spark does: once for each batch."""
        file = self.offsets / str(batch)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            note = {"batchTimestampMs": planned_ms, "salt": uuid4().hex}
            file.write_text(f"v1\n{json.dumps(note)}\n{batch}")

    def is_done(self, batch: int) -> bool:
        return (self.folder / "commits" / str(batch)).exists()

    def done(self, batch: int) -> None:
        file = self.folder / "commits" / str(batch)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("v1")

    def copied(self, folder: Path) -> Query:
        shutil.copytree(self.folder, folder)
        return Query(self.bootstrap, folder, self.topic, self.query_id, self.name)


class Driver:
    """One run of a query."""

    def __init__(self, query: Query, slots: Slots | None = None, now_ms: int = 1_800_000_000_000) -> None:
        self.query = query
        self.run = uuid4().hex
        self.cluster = Cluster({"bootstrap.servers": query.bootstrap})
        self.wire = Wire(self.cluster)
        self.cluster.transactions = self.wire  # type: ignore[assignment]
        self.slots = slots or Slots()
        self.warnings: list[str] = []
        self.now_ms = now_ms
        self._memory = SinkMemory()

    def decider(self) -> Decider:
        query = self.query
        settings: dict[str, Any] = {
            "sink_id": query.sink_id,
            "query": query.query_id,
            "marker_topic": query.topic,
            "timeout_ms": TIMEOUT_MS,
            "delivery_timeout_ms": 60_000,
            "checkpoint": str(query.folder),
        } | query.options
        kind = JobDecider if settings.pop("is_job", False) else Decider
        clock = Clock(lambda: self.now_ms, lambda: 0.0)
        return kind(self.cluster, SinkSettings(**settings), self._memory, clock, self.warnings.append)

    def task(
        self, batch: int, task: int, rows: Rows, attempt: int = 0, slots: Slots | None = None
    ) -> TaskReport:
        place = Place(self.query.sink_id, self.run, batch, task, attempt, self.now_ms)
        transaction = TaskTransaction(
            self.cluster, {}, place, self.query.options.get("timeout_ms", TIMEOUT_MS), slots or self.slots
        )
        for row in rows:
            key = row.split(":")[0].encode()
            partition = TopicPartition(self.query.topic, sum(key) % PARTITIONS)
            transaction.sender().send(partition, bytearray(build_batch([(key, row.encode(), [], 1)])), 1)
        self.wire.reached("before flush")
        report = transaction.finish(len(rows), sum(map(_number, rows)))
        self.wire.reached("after flush")
        return report

    def tasks(self, batch: int, rows_of_tasks: Sequence[Rows]) -> list[TaskReport]:
        self.query.plan(batch, self.now_ms)
        return [self.task(batch, number, rows) for number, rows in enumerate(rows_of_tasks)]

    def write(self, batch: int, rows_of_tasks: Sequence[Rows]) -> None:
        """One micro-batch, from the planning to Spark's own note that it is done."""
        reports = self.tasks(batch, rows_of_tasks)
        self.commit(batch, reports)

    def commit(self, batch: int, reports: Sequence[TaskReport]) -> None:
        try:
            self.decider().commit(batch, reports)
        except Exception:
            self.decider().abort(batch, reports)
            raise
        self.query.done(batch)


def _number(row: str) -> int:
    return int.from_bytes(row.encode().ljust(8)[:8], "big")


def killed_at(driver: Driver, step: str, nth: int = 1) -> None:
    """Kill the driver's process there."""
    left = [nth]

    def look(reached: str, _number: int) -> None:
        left[0] -= reached == step
        if reached == step and left[0] == 0:
            raise Killed

    driver.wire.at = look


@contextmanager
def killed() -> Iterator[None]:
    """The block must be left by a kill."""
    try:
        yield
    except Killed:
        return
    raise AssertionError("nobody was killed")


class Held:
    """A driver in a thread of its own, which stops at a step until `go` is called."""

    def __init__(self, driver: Driver, step: str, work: Callable[[], None], nth: int = 1) -> None:
        self._there, self._go = threading.Event(), threading.Event()
        self._work = work
        self.problem: BaseException | None = None
        left = [nth]

        def look(reached: str, _number: int) -> None:
            left[0] -= reached == step
            if reached == step and left[0] == 0:
                self._there.set()
                assert self._go.wait(HELD_SECONDS_MAX)

        driver.wire.at = look
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._there.wait(HELD_SECONDS_MAX), f"{step} was not reached: {self.problem}"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self.problem = problem
            self._there.set()

    def go(self) -> BaseException | None:
        """Let it go on to its end; how it failed."""
        self._go.set()
        self._thread.join(HELD_SECONDS_MAX)
        assert not self._thread.is_alive()
        return self.problem


class World:
    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self.bootstrap = bootstrap
        self.cluster = Cluster({"bootstrap.servers": self.bootstrap})

    def query(self, **options: Any) -> Query:
        topic = f"out-{uuid4().hex[:10]}"
        self.cluster.wake(topic)
        return Query(self.bootstrap, self._folder / topic, topic, options=options)

    def rows(self, query: Query) -> list[str]:
        """What a reader with `read_committed` sees when nothing is open any more, sorted."""
        return sorted(row for rows in self.log(query).committed.values() for row in rows)

    def open_count(self, query: Query) -> int:
        return self.log(query).open_count

    def _markers_are_written(self, query: Query) -> bool:
        """A broker may answer the end of a transaction before its markers are in the log."""
        exchange = KioExchange(
            LIST_TRANSACTIONS,
            lambda types: make(
                types.ListTransactionsRequest,
                state_filters=("PrepareCommit", "PrepareAbort"),
                producer_id_filters=(),
                duration_filter=-1,
                transactional_id_pattern=None,
            ),
        )
        answer = self.cluster.any_broker(exchange, self.cluster.attempts("listing transactions"))
        assert answer.error_code in (0, *LOADING), answer.error_code
        ids = [row.transactional_id for row in answer.transaction_states]
        return answer.error_code == 0 and not any(name.startswith(query.query_id) for name in ids)

    def log(self, query: Query) -> Log:
        awaited(lambda: self._markers_are_written(query), "the markers are not written")
        log = Log()
        for partition in range(PARTITIONS):
            place = TopicPartition(query.topic, partition)
            end = self.cluster.list_offsets({place: LATEST})[place].offset
            for batch in self._batches(place, end):
                log.add(partition, batch)
        return log

    def _batches(self, place: TopicPartition, end: int) -> Iterator[bytes]:
        topic_id = self.cluster.describe([place.topic])[place.topic].id
        reader = RangeReader(self.cluster, place, topic_id, 0, end, committed_only=False, timeout_ms=60_000)
        seen = -1
        for piece in reader if end else ():
            position = piece.start
            while position < piece.end:
                header = read_header(piece.data, position)
                size = header.length + LENGTH_OVERHEAD
                if header.base_offset > seen:
                    seen = header.base_offset
                    yield bytes(piece.data[position : position + size])
                position += size


class Log:
    """The records that count, of batches in the order of their log."""

    def __init__(self) -> None:
        self.committed: dict[int, list[str]] = {}
        self._open: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._placed: dict[int, list[tuple[int, str]]] = {}

    @property
    def open_count(self) -> int:
        return len(self._open)

    def add(self, partition: int, batch: bytes) -> None:
        header = read_header(batch)
        producer = partition, header.producer_id
        if not header.is_control:
            rows = [(record.offset, (record.value or b"").decode()) for record in read_records(batch)]
            self._open.setdefault(producer, []).extend(rows)
            return
        rows = self._open.pop(producer, [])
        is_commit = next(iter(read_records(batch))).key == b"\x00\x00\x00\x01"
        placed = self._placed.setdefault(partition, [])
        placed += rows if is_commit else []
        self.committed[partition] = [row for _, row in sorted(placed)]


@contextmanager
def world(folder: Path, properties: Mapping[str, object] | None = None) -> Iterator[World]:
    with Broker(num_partitions=PARTITIONS, **(properties or {})) as broker:
        yield World(folder, broker.bootstrap_servers)
