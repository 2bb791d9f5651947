"""What `/metrics` says: the broker's state and the shell's numbers as Prometheus families.

Names that begin with `kafka_` are those that the JMX exporter's usual rules give Kafka's own metrics, so
that dashboards made for Kafka find them; what Kafka has no word for begins with `tidelog_`. Series of
topics and partitions are made here from what the partitions count; nothing is kept for them elsewhere.

**Invariant:** a piece of text is made of at most `SERIES_PER_PIECE` series or looks at as many partitions,
so that the sender can let the loop go on between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import tidelog
from tidelog.base.limits import API_VERSION_BITS, SERIES_PER_PIECE
from tidelog.base.metrics import (
    MILLISECOND_NS,
    Family,
    Histogram,
    histogram_lines,
    labels_of,
    summary_lines,
)
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.protocol.apis import APIS, FETCH, PRODUCE
from tidelog.replication.partition import Partition, Role
from tidelog.server.disk_space import DiskSpace, Space
from tidelog.server.process import process_numbers
from tidelog.server.watch.cleaner_metrics import cleaner_lines
from tidelog.server.watch.client_metrics import client_pieces
from tidelog.server.watch.group_metrics import group_pieces
from tidelog.server.watch.quota_metrics import quota_pieces
from tidelog.server.watch.transaction_metrics import transaction_pieces
from tidelog.server.watch.vitals import Vitals

SHARES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")  # as Kafka's percentiles are spelled
RUNNING, STARTING, FAILED = 3, 1, 6  # states of a broker, by Kafka's numbers
LATE_TRANSACTION_MS = 300_000  # beyond the longest timeout, as in Kafka


Topics = list[tuple[str, list[Partition]]]


class Clients(Protocol):
    """What is shown of the connections."""

    @property
    def counts(self) -> Mapping[str, int]: ...

    @property
    def buffered_size(self) -> int: ...

    @property
    def unsent_size(self) -> int: ...


class Watched(NamedTuple):
    """What is looked at."""

    broker: Broker
    vitals: Vitals
    clients: Clients
    disk_space: DiskSpace


def request_name(api_key: int) -> str:
    """Kafka's name of an API."""
    return _NAMES[api_key]


_NAMES = {api.key: api.name for api in APIS}

_TOPIC = "kafka_server_brokertopicmetrics_"
# Of each topic and, without a label, of all of them since the start: what its partitions have counted.
TRAFFIC = tuple(
    (Family(f"{_TOPIC}{name}_total", "counter", meaning), counters)
    for name, meaning, counters in (
        ("messagesin", "Records appended.", ("record_count",)),
        ("bytesin", "Bytes of batches appended.", ("appended_size",)),
        ("bytesout", "Bytes of batches fetched.", ("sent_size",)),
        ("totalproducerequests", "Batches appended or refused.", ("append_count", "refused_count")),
        ("failedproducerequests", "Batches refused.", ("refused_count",)),
        ("totalfetchrequests", "Reads of a partition for a fetch.", ("read_count",)),
        ("failedfetchrequests", "Reads that ended in an error.", ("failed_read_count",)),
    )
)


_LOG = "kafka_log_log_"
PER_PARTITION: tuple[tuple[Family, Callable[[Partition], int]], ...] = (
    (Family(f"{_LOG}size", "gauge", "Bytes of a partition's segments."), lambda p: p.log.size),
    (Family(f"{_LOG}logstartoffset", "gauge", "First offset of a log."), lambda p: p.log.start_offset),
    (Family(f"{_LOG}logendoffset", "gauge", "Offset of the next record."), lambda p: p.log.end_offset),
    (Family(f"{_LOG}numlogsegments", "gauge", "Segments of a log."), lambda p: len(p.log.segments)),
    (
        Family("tidelog_log_cleaned_offset", "gauge", "Compacted up to."),
        lambda p: p.log.cleaned_offset,
    ),
    (
        Family("kafka_cluster_partition_atminisr", "gauge", "1: in-sync replicas are just enough."),
        lambda p: p.is_at_minimum,
    ),
    (
        Family("kafka_cluster_partition_underminisr", "gauge", "1: in-sync replicas are too few."),
        lambda p: p.is_under_minimum,
    ),
    (
        Family("kafka_cluster_partition_laststableoffsetlag", "gauge", "Committed, and not decided yet."),
        lambda p: p.high_watermark - p.last_stable_offset if p.role is Role.LEADER else 0,
    ),
)


def expose(watched: Watched, open_files: int | None) -> Iterator[str]:
    """The whole text, piece by piece. A topic that comes or goes meanwhile is in some of it."""
    yield "".join(_process_lines(open_files))
    yield "".join(_shell_lines(watched))
    yield from _request_pieces(watched)
    here = watched.broker.partitions
    by_topic = [
        (topic, [found for found in here.of(topic) or () if found is not None])
        for topic in watched.broker.image.topics
    ]
    partitions = [partition for _, of_topic in by_topic for partition in of_topic]
    counts = yield from _count(watched.broker, partitions)
    yield "".join(_broker_lines(watched.broker, len(by_topic), counts))
    yield from _topic_pieces(watched.broker, by_topic)
    for family, value in PER_PARTITION:
        yield family.head()
        for start in range(0, len(partitions), SERIES_PER_PIECE):
            some = partitions[start : start + SERIES_PER_PIECE]
            yield "".join([f"{family.name}{_place(each)} {value(each):d}\n" for each in some])
    yield from group_pieces(watched.broker, SERIES_PER_PIECE)
    yield from transaction_pieces(watched.broker, SERIES_PER_PIECE)
    quotas = watched.broker.quotas
    yield from quota_pieces([*quotas.uses], quotas.uptime_ms, SERIES_PER_PIECE)
    yield from client_pieces(watched.broker.telemetry.rows(), SERIES_PER_PIECE)


def _place(partition: Partition) -> str:
    return labels_of(("topic", partition.topic), ("partition", str(partition.index)))


def _one(name: str, kind: str, meaning: str, value: float, labels: str = "") -> str:
    family = Family(name, kind, meaning)
    return family.head() + family.sample(value, labels)


def _process_lines(open_files: int | None) -> Iterator[str]:
    build = labels_of(("version", tidelog.__version__))
    yield _one("tidelog_build_info", "gauge", "The version that runs.", 1, build)
    for name, kind, meaning, value in process_numbers():
        yield _one(name, kind, meaning, value)
    if open_files is not None:
        yield _one("process_open_fds", "gauge", "Open file descriptors.", open_files)


def _shell_lines(watched: Watched) -> Iterator[str]:
    vitals = watched.vitals
    accepted, held = vitals.accepted_counts, watched.clients.counts
    now = {listener: held.get(listener, 0) for listener in accepted}
    for spelling in ("socketservermetrics", "socket_server_metrics"):  # dashboards have both
        yield from _by_listener(
            Family(f"kafka_server_{spelling}_connection_count", "gauge", "Connections."), now
        )
    creation = "kafka_server_socketservermetrics_connection_creation_total"
    yield from _by_listener(Family(creation, "counter", "Connections accepted."), accepted)
    for name, meaning, value in (
        ("connections_refused", "Connections closed at once: too many.", vitals.refused_count),
        ("connections_broken", "Connections closed for what the client sent.", vitals.broken_count),
    ):
        yield _one(f"tidelog_{name}_total", "counter", meaning, value)
    for name, meaning, size in (
        ("received_bytes_buffered", "Requests half received or held back.", watched.clients.buffered_size),
        ("answer_bytes_unsent", "Answers that clients have yet to take.", watched.clients.unsent_size),
    ):
        yield _one(f"tidelog_{name}", "gauge", f"Bytes in memory: {meaning}", size)
    for name in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    ):
        yield _one(name, "gauge", "Share of the last minutes that the loop was idle.", vitals.idle_share)
    yield from _disk_lines(watched.disk_space.spaces)
    connected = "1 while the coordination store can be reached."
    yield _one("tidelog_store_connected", "gauge", connected, watched.broker.standing.is_store_reached)
    yield from _durations(vitals)


def _disk_lines(spaces: Mapping[str, Space]) -> Iterator[str]:
    free = Family("tidelog_disk_free_bytes", "gauge", "Free bytes on the disk of a log directory.")
    size = Family("tidelog_disk_size_bytes", "gauge", "Bytes that the disk of a log directory has in all.")
    for family, place in ((free, 0), (size, 1)):
        yield family.head()
        for path, space in spaces.items():
            yield family.sample(space[place], labels_of(("logDirectory", path)))


def _by_listener(family: Family, counts: Mapping[str, int]) -> Iterator[str]:
    yield family.head()
    for listener, count in counts.items():
        yield family.sample(count, labels_of(("listener", listener), ("networkProcessor", "0")))


def _durations(vitals: Vitals) -> Iterator[str]:
    shown: tuple[tuple[str, str, Histogram], ...] = (
        ("loop_lag", "How late the loop came to a timer.", vitals.loop_lag),
        ("fsync", "Time of one flush of a log.", vitals.fsync_times),
        ("store", "Time until the coordination store answered.", vitals.store_times),
    )
    for name, meaning, histogram in shown:
        family = Family(f"tidelog_{name}_seconds", "histogram", meaning)
        yield family.head()
        yield from histogram_lines(family, histogram)
    flushes = Family("kafka_log_logflushstats_logflushrateandtimems", "summary", "Time of a flush, in ms.")
    yield flushes.head()
    yield from summary_lines(flushes, vitals.recent_fsyncs, SHARES, (), MILLISECOND_NS)


def _request_pieces(watched: Watched) -> Iterator[str]:
    served = watched.broker.served_counts
    totals = Family("kafka_network_requestmetrics_requests_total", "counter", "Requests, by API and version.")
    yield totals.head()
    for api in APIS:
        versions = range(api.oldest_version, api.newest_version + 1)
        counts = [(version, served[api.key << API_VERSION_BITS | version]) for version in versions]
        yield "".join(
            totals.sample(count, labels_of(*pair, ("version", str(version))))
            for pair in _request_labels(api.key)
            for version, count in counts
            if count
        )
    vitals = watched.vitals
    times = Family("tidelog_request_seconds", "histogram", "From a request's arrival to its answer.")
    quantiles = Family(
        "kafka_network_requestmetrics_totaltimems", "summary", "The same in ms, of the last five minutes."
    )
    used = [api.key for api in APIS if vitals.request_times[api.key].count]
    yield times.head()
    for key in used:
        name = (("request", request_name(key)),)
        yield "".join(histogram_lines(times, vitals.request_times[key], name))
    yield quantiles.head()
    for key in used:
        recent = vitals.recent_requests[key]
        for pair in _request_labels(key):
            yield "".join(summary_lines(quantiles, recent, SHARES, pair, MILLISECOND_NS))


def _request_labels(api_key: int) -> Iterator[tuple[tuple[str, str]]]:
    """Kafka counts a fetch twice: as such, and by who fetches."""
    yield (("request", request_name(api_key)),)
    if api_key == FETCH.key:
        yield (("request", "FetchConsumer"),)


class _Counts:
    """What is counted over all partitions."""

    __slots__ = (
        "_late_before_ms",
        "at_min_isr",
        "led",
        "offline",
        "partitions",
        "under_min_isr",
        "under_replicated",
        "with_late_transactions",
    )

    def __init__(self, partitions: int, late_before_ms: int) -> None:
        self.partitions = partitions
        self._late_before_ms = late_before_ms
        self.led = self.offline = self.with_late_transactions = 0
        self.at_min_isr = self.under_min_isr = self.under_replicated = 0

    def add(self, partition: Partition, replica_count: int) -> None:
        is_led = partition.role is Role.LEADER
        self.led += is_led
        self.offline += partition.role is Role.OFFLINE
        self.at_min_isr += partition.is_at_minimum
        self.under_min_isr += partition.is_under_minimum
        self.under_replicated += is_led and len(partition.in_sync_replicas) < replica_count
        writer = partition.log.producers.oldest_open if is_led else None
        self.with_late_transactions += writer is not None and 0 < writer.timestamp < self._late_before_ms


def _count(broker: Broker, partitions: Sequence[Partition]) -> Generator[str, None, _Counts]:
    late_ms = broker.settings.number("transaction.max.timeout.ms") + LATE_TRANSACTION_MS
    counts = _Counts(len(partitions), broker.clock.now_ms - late_ms)
    for place, partition in enumerate(partitions):
        topic = broker.image.topics.get(partition.topic)
        facts = topic.partitions.get(partition.index) if topic is not None else None
        counts.add(partition, len(facts.replicas) if facts is not None else 0)
        if place % SERIES_PER_PIECE == 0:
            yield ""
    return counts


def _leaderless_count(broker: Broker) -> int:
    """Told by the controller alone, as Kafka has it."""
    if not broker.control.is_controller:
        return 0
    topics, brokers = broker.image.topics.values(), broker.image.brokers
    return sum(facts.leader not in brokers for topic in topics for facts in topic.partitions.values())


def _broker_lines(broker: Broker, topic_count: int, counts: _Counts) -> Iterator[str]:
    directories = broker.disks.directories
    failed = [directory for directory in directories if directory.failure is not None]
    state = FAILED if broker.is_failing else RUNNING if broker.is_serving else STARTING
    is_controller = broker.is_serving and (not broker.is_sharing or broker.control.is_controller)
    topics = broker.image.topics.values()
    partition_count = sum(len(topic.partitions) for topic in topics)
    leaderless = _leaderless_count(broker) if broker.is_sharing else counts.offline
    late_count = counts.with_late_transactions
    replicas, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
    for name, meaning, value in (
        ("kafka_server_kafkaserver_brokerstate", "3: running, 1: starting, 6: no disk is left.", state),
        (f"{replicas}partitioncount", "Partitions on this broker.", counts.partitions),
        (f"{replicas}leadercount", "Partitions led by this broker.", counts.led),
        (f"{replicas}offlinereplicacount", "Partitions here without a disk.", counts.offline),
        (f"{replicas}underreplicatedpartitions", "Led here, a replica missing.", counts.under_replicated),
        (f"{replicas}underminisrpartitioncount", "Led here, refusing acks=all.", counts.under_min_isr),
        (f"{replicas}atminisrpartitioncount", "Led here, one replica from that.", counts.at_min_isr),
        (f"{replicas}partitionswithlatetransactionscount", "Led here, open too long.", late_count),
        (f"{controller}activecontrollercount", "1 on the controller.", is_controller),
        (f"{controller}offlinepartitionscount", "Partitions without a leader.", leaderless),
        (f"{controller}globaltopiccount", "Topics of the cluster.", topic_count),
        (f"{controller}globalpartitioncount", "Partitions of the cluster.", partition_count),
        ("kafka_log_logmanager_offlinelogdirectorycount", "Log directories offline.", len(failed)),
        ("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Sessions.", len(broker.sessions)),
    ):
        yield _one(name, "gauge", meaning, value)
    offline = Family("kafka_log_logmanager_logdirectoryoffline", "gauge", "1 if the directory is offline.")
    yield offline.head()
    for directory in directories:
        yield offline.sample(directory.failure is not None, labels_of(("logDirectory", directory.path)))
    yield from _parked_lines(broker)
    yield from cleaner_lines(broker)


def _parked_lines(broker: Broker) -> Iterator[str]:
    waiting = broker.waiting
    size = Family("kafka_server_delayedoperationpurgatory_purgatorysize", "gauge", "Requests that wait.")
    yield size.head()
    for key in (PRODUCE.key, FETCH.key):
        labels = labels_of(("delayedOperation", request_name(key)))
        yield size.sample(waiting.counts.get(key, 0), labels)
    parked = Family("tidelog_requests_parked", "gauge", "Requests that wait, by API.")
    yield parked.head()
    for key, count in sorted(waiting.counts.items()):
        if key in _NAMES:
            yield parked.sample(count, labels_of(("request", request_name(key))))


def _topic_pieces(broker: Broker, by_topic: Topics) -> Iterator[str]:
    for family, counters in TRAFFIC:
        yield family.head()
        counted: list[int] = []
        lines: list[str] = []
        looked_at = 0
        for topic, partitions in by_topic:
            of_topic = sum(getattr(each.counters, name) for each in partitions for name in counters)
            counted.append(of_topic)
            lines.append(family.sample(of_topic, labels_of(("topic", topic))))
            looked_at += len(partitions)
            if looked_at >= SERIES_PER_PIECE:
                yield "".join(lines)
                lines, looked_at = [], 0
        total = _total(broker.partitions, counters, by_topic, counted)
        yield "".join([*lines, family.sample(total)])


def _total(here: Partitions, counters: Sequence[str], by_topic: Topics, counted: list[int]) -> int:
    """Of the topics that are still here and, in the same breath, of those that are gone: a topic that was
    deleted since it was counted would be in both, and the total would fall with the next page."""
    departed: int = sum(getattr(here.departed, name) for name in counters)
    here_now: int = sum(
        of_topic
        for (_, partitions), of_topic in zip(by_topic, counted, strict=True)
        if of_topic and here.of(partitions[0].topic_id) is not None
    )
    return departed + here_now
