"""A client's view of a cluster: topics, leaders, offsets by time, committed offsets of groups.

    with Cluster({"bootstrap.servers": "127.0.0.1:9092"}) as cluster:
        cluster.describe(["clicks"])
        cluster.list_offsets({TopicPartition("clicks", 0): LATEST})

Retriable problems (a leader that moved, a broker that restarts) are retried until `default.api.timeout.ms` is
over. A `Cluster` may be kept in a global of a process that forks: see `routes`.

**Invariant:** no call but `wake` creates a topic; each asks a leader once for all its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Self

from tidelog.base.limits import HERE_SECONDS, LIST_TIMEOUT_MS, ONCE_TIMEOUT_MS
from tidelog.client.attempts import Attempts
from tidelog.client.codes import name_of, passes
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    ClientError,
    ConnectionLost,
    MalformedAnswer,
    Refused,
    TopicGone,
    TopicPartition,
    UnsupportedByBroker,
)
from tidelog.client.exchange import LIST_OFFSETS, KioExchange
from tidelog.client.groups import (
    check_commit,
    commit_exchanges,
    committed_exchange,
    coordinator_exchange,
    read_committed,
    read_coordinator,
)
from tidelog.client.metadata import MetadataExchange
from tidelog.client.policies import policy_exchange, says_compact
from tidelog.client.properties import Address, Properties, read_number
from tidelog.client.routes import Routes
from tidelog.client.transactions import Transactions
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

__all__ = ["EARLIEST", "LATEST", "Cluster", "FoundOffset", "TopicFacts", "TopicPartition"]

LATEST = -1
EARLIEST = -2


class TopicFacts(NamedTuple):
    name: str
    id: bytes  # 16, zeros when unknown
    partitions: tuple[int, ...]  # sorted


class FoundOffset(NamedTuple):
    offset: int  # -1: none at or after that time
    timestamp: int
    leader_epoch: int


class Cluster:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties: Properties = dict(properties)
        self._timeout_ms = read_number(self.properties, "default.api.timeout.ms", 60_000)
        self._routes = Routes(self.properties)
        self._coordinator: tuple[str, Address] | None = None  # of the group that was asked about last
        self.transactions = Transactions(self._routes, self.properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._routes.close()

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        """The topics that exist, among the named ones or (None) all, internal topics included."""
        attempts = self.attempts("describing topics")
        while True:
            try:
                found = self._routes.refresh(topics, attempts) if topics is None or topics else {}
                return {
                    name: TopicFacts(name, topic.id, tuple(sorted(topic.leaders)))
                    for name, topic in found.items()
                }
            except ConnectionLost as problem:
                attempts.again(problem)

    def wake(self, topic: str) -> None:
        """Send a producer's first request: a broker with `auto.create.topics.enable` creates a missing topic.

        Returns when the topic exists; raises TopicGone if no broker creates it.
        """
        attempts = self.attempts(f"looking up topic {topic}")
        while not (self._routes.knows(topic) or self.describe([topic])):
            try:
                self._routes.ask(MetadataExchange([topic], may_create=True), attempts)
                hint = "create it, or let the broker do so with auto.create.topics.enable"
                attempts.again(TopicGone(f"topic {topic} does not exist: {hint}"))
            except ConnectionLost as problem:
                attempts.again(problem)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """The latest offset (-1), the earliest (-2), or the first offset at or after a time in ms.

        `committed_only`: no offset is at or after the start of a transaction that is still open.
        """
        attempts = self.attempts("listing offsets")
        found: dict[TopicPartition, FoundOffset] = {}
        while left := {place: time for place, time in wanted.items() if place not in found}:
            problem = self._list_once(left, int(committed_only), found, attempts)
            if problem is not None:
                attempts.again(problem)
            elif missing := left.keys() - found.keys():
                raise MalformedAnswer(f"{min(missing)}: missing in the answer to ListOffsets")
        return {partition: found[partition] for partition in wanted}

    def offsets_now(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> tuple[dict[TopicPartition, FoundOffset], ClientError | None]:
        """`list_offsets` with a single request to each leader: the offsets found, and why others were not."""
        attempts = self.attempts("listing offsets", min(self._timeout_ms, ONCE_TIMEOUT_MS))
        found: dict[TopicPartition, FoundOffset] = {}
        problem = self._list_once(wanted, int(committed_only), found, attempts) if wanted else None
        return found, problem

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as a consumer without members: refused while the group has members."""
        for exchange in commit_exchanges(group_id, offsets):
            self._at_coordinator(group_id, exchange, check_commit)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Every offset that the group has committed."""
        offsets: dict[TopicPartition, int] = self._at_coordinator(
            group_id, committed_exchange(group_id), read_committed
        )
        return offsets

    def is_compacted(self, topic: str, attempts: Attempts) -> bool:
        """Whether a topic is compacted; ConnectionLost if no broker can be reached."""
        try:
            return says_compact(self._routes.ask(policy_exchange(topic), attempts))
        except UnsupportedByBroker:
            return False

    def leader(self, partition: TopicPartition, timeout_ms: int | None = None) -> Connection:
        """A connection to the partition's leader."""
        attempts = self.attempts(f"finding the leader of {partition}", timeout_ms)
        while True:
            try:
                self._routes.learn([partition.topic], attempts)
                return self._routes.connect(self._routes.leader_address(partition), attempts)
            except (ConnectionLost, TopicGone) as problem:
                self._routes.forget_leaders([partition.topic])
                attempts.again(problem)

    def any_broker(self, exchange: KioExchange, attempts: Attempts) -> Any:
        """The answer of any broker; ConnectionLost if none can be reached."""
        return self._routes.ask(exchange, attempts)

    def leader_moved(self, topic: str) -> None:
        """Forget the topic's leaders, because one of them was wrong; they are looked up again at the next
        use."""
        self._routes.forget_leaders([topic])

    def attempts(self, what: str, timeout_ms: int | None = None) -> Attempts:
        return Attempts(what, self._timeout_ms if timeout_ms is None else timeout_ms, self.properties)

    def _list_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation_level: int,
        found: dict[TopicPartition, FoundOffset],
        attempts: Attempts,
    ) -> ClientError | None:
        """Ask each leader once; return the most important retriable problem."""
        try:
            self._routes.learn({partition.topic for partition in wanted}, attempts)
        except ConnectionLost as lost:
            return lost
        asked: list[tuple[Connection, int, list[TopicPartition]]] = []
        by_leader, problem = self._by_leader(wanted)
        try:
            for address, partitions in by_leader.items():
                times = [(partition, wanted[partition]) for partition in partitions]
                exchange = KioExchange(LIST_OFFSETS, partial(_build_list, times, isolation_level))
                try:
                    connection = self._routes.connect(address, attempts)
                    asked.append((connection, connection.send(exchange), partitions))
                except ConnectionLost as lost:
                    problem = self._lost_leader(lost, partitions)
            for connection, correlation, partitions in asked:
                try:
                    answer = connection.receive(correlation, max(attempts.seconds_left, HERE_SECONDS))
                    problem = _weightier(problem, self._read_list(answer, found))
                except ConnectionLost as lost:
                    problem = self._lost_leader(lost, partitions)
        finally:
            for connection, correlation, _ in asked:
                connection.forget(correlation)
        return problem

    def _lost_leader(self, lost: ConnectionLost, partitions: list[TopicPartition]) -> ConnectionLost:
        self._routes.forget_leaders({partition.topic for partition in partitions})
        return lost

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[Address, list[TopicPartition]], ClientError | None]:
        by_leader: dict[Address, list[TopicPartition]] = {}
        problem: ClientError | None = None
        unled: dict[str, None] = {}
        for partition in partitions:
            try:
                by_leader.setdefault(self._routes.leader_address(partition), []).append(partition)
            except (TopicGone, ConnectionLost) as missing:
                problem = _weightier(problem, missing)
                unled[partition.topic] = None
        self._routes.forget_leaders(unled)
        return by_leader, problem

    def _read_list(self, answer: Any, found: dict[TopicPartition, FoundOffset]) -> ClientError | None:
        problem: ClientError | None = None
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code == ErrorCode.none:
                    epoch = getattr(row, "leader_epoch", -1)
                    found[partition] = FoundOffset(row.offset, row.timestamp, epoch)
                    continue
                message = f"{partition}: ListOffsets: {name_of(row.error_code)}"
                if not passes(row.error_code):
                    raise Refused(message, row.error_code)
                self._routes.forget_leaders([topic.name])
                is_gone = row.error_code == ErrorCode.unknown_topic_or_partition
                problem = _weightier(problem, TopicGone(message) if is_gone else ConnectionLost(message))
        return problem

    def _at_coordinator(self, group_id: str, exchange: KioExchange, read: Callable[[str, Any], Any]) -> Any:
        """Retry until the coordinator's answer is not a retriable error; return `read(answer)`."""
        attempts = self.attempts(f"asking the coordinator of group {group_id}")
        while True:
            try:
                if self._coordinator is None or self._coordinator[0] != group_id:
                    found = self._routes.ask(coordinator_exchange(group_id), attempts)
                    self._coordinator = (group_id, read_coordinator(group_id, found))
                connection = self._routes.connect(self._coordinator[1], attempts)
                return read(group_id, connection.call(exchange, attempts.seconds_left))
            except ConnectionLost as problem:
                self._coordinator = None
                attempts.again(problem)


def _weightier(first: ClientError | None, second: ClientError | None) -> ClientError | None:
    """The problem to report: a retriable one rather than a missing topic, because the topic may appear when
    the retriable one is over; the first of two alike."""
    if first is None or (second is not None and isinstance(first, TopicGone)):
        return second
    return first


def _build_list(times: list[tuple[TopicPartition, int]], isolation_level: int, types: ModuleType) -> Any:
    topics: dict[str, list[Any]] = {}
    for partition, timestamp in times:
        row = make(
            types.ListOffsetsPartition,
            partition_index=partition.partition,
            current_leader_epoch=-1,
            timestamp=timestamp,
        )
        topics.setdefault(partition.topic, []).append(row)
    return make(
        types.ListOffsetsRequest,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=tuple(
            make(types.ListOffsetsTopic, name=name, partitions=tuple(rows)) for name, rows in topics.items()
        ),
        timeout=timedelta(milliseconds=LIST_TIMEOUT_MS),
    )
