"""Every option of the source and the sink as a row: name, default, who takes it, its form, what it means.

The names, defaults and refusals are those of Spark's Kafka connector, so that a query written for it runs
with nothing but its format changed; the last rows of `READ_ROWS` are Tidelog's own.

**Invariant:** a value that cannot be used raises `OptionError`, which names the option, the value and what
is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Generic, TypeVar

from tidelog.spark import option_forms as forms
from tidelog.spark.option_forms import Form, Unfit

KAFKA_PREFIX = "kafka."

Value = TypeVar("Value")


class OptionError(ValueError):
    """An option that cannot be used; the message is fit to print."""


class Use(Flag):
    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


class Given:
    """The options of one query, by names in small letters."""

    def __init__(self, raw: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._texts = {name.lower(): text for name, text in raw.items()}

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def properties(self) -> dict[str, str]:
        """By Kafka's names, none of which has a capital letter."""
        return {
            name.removeprefix(KAFKA_PREFIX): text
            for name, text in sorted(self._texts.items())
            if name.startswith(KAFKA_PREFIX)
        }

    def ignored(self, rows: Iterable[Option[Any]]) -> tuple[str, ...]:
        """Names that mean something, but not to this kind of query."""
        return tuple(row.name for row in rows if self.text(row.name) is not None and not row.uses & self.use)


@dataclass(frozen=True, slots=True)
class Option(Generic[Value]):
    name: str
    default: str | None
    uses: Use
    form: Form[Value]
    meaning: str
    shown_default: str | None = None  # where the default is no text that could be given

    def maybe(self, given: Given) -> Value | None:
        """The value, the default's value, or None where there is neither."""
        text = given.text(self.name) if self.uses & given.use else None
        if text is None:
            text = self.default
        return None if text is None else self.read(text)

    def value(self, given: Given) -> Value:
        found = self.maybe(given)
        assert found is not None, f"{self.name} has no default"
        return found

    def read(self, text: str) -> Value:
        try:
            return self.form(text.strip())
        except Unfit as expected:
            raise OptionError(f"{self.name}={text}: expected {expected}") from None


ASSIGN = Option(
    "assign",
    None,
    Use.READ,
    forms.assigned,
    'Partitions to read, e.g. `{"clicks":[0,1],"views":[2]}`. Exactly one of `assign`, `subscribe` and '
    "`subscribePattern` must be given.",
)
SUBSCRIBE = Option("subscribe", None, Use.READ, forms.topics, "Topics to read, with commas between them.")
SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    None,
    Use.READ,
    forms.pattern,
    "Regular expression; topics in whose name it is found are read, also those made later.",
)
BOOTSTRAP_SERVERS = Option(
    "kafka.bootstrap.servers",
    None,
    Use.READ | Use.WRITE,
    forms.nonempty("host:port, with commas between several"),
    "Brokers to ask first. Required, but not for reading `logDirs`.",
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    None,
    Use.READ,
    forms.whole(),
    "Milliseconds since 1970: each partition starts at its first record with this timestamp or a later one. "
    "Goes before `startingOffsetsByTimestamp` and `startingOffsets`.",
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    None,
    Use.READ,
    forms.timestamps,
    'The same with a timestamp for each partition, e.g. `{"clicks":{"0":1700000000000}}`. Goes before '
    "`startingOffsets`.",
)
STARTING_OFFSETS = Option(
    "startingOffsets",
    None,
    Use.READ,
    forms.offsets,
    "`earliest`, `latest` (streaming only), or an offset for each partition, e.g. "
    '`{"clicks":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest (streaming only). For streams, only '
    "where a new query starts: later it goes on from its checkpoint, and partitions that are new then are "
    "read from their earliest offset.",
    shown_default="`earliest` for batch, `latest` for streaming",
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    None,
    Use.BATCH_READ,
    forms.whole(),
    "Milliseconds since 1970: each partition ends before its first record with this timestamp or a later "
    "one, and at its latest offset if it has none. Goes before `endingOffsetsByTimestamp` and "
    "`endingOffsets`. Streams take no notice of it.",
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    None,
    Use.BATCH_READ,
    forms.timestamps,
    "The same with a timestamp for each partition. Goes before `endingOffsets`. Refused by streams.",
)
ENDING_OFFSETS = Option(
    "endingOffsets",
    None,
    Use.BATCH_READ,
    forms.offsets,
    "`latest`, or an offset for each partition, where -1 is latest; the record at the offset is not read. "
    "Refused by streams.",
    shown_default="`latest`",
)
STARTING_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    "error",
    Use.READ,
    forms.choice("error", "latest"),
    "Where a partition starts that has no record with the starting timestamp or a later one: `error` fails "
    "the query, `latest` starts at its end.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    "true",
    Use.READ,
    forms.boolean,
    "Whether a query fails when records may be gone before it read them: aged out, or their topic deleted. "
    "With `false` it says so and reads what there is.",
)
POLL_TIMEOUT_MS = Option(
    "kafkaConsumer.pollTimeoutMs",
    "120000",
    Use.READ,
    forms.whole(1),
    "How many milliseconds a task waits for records that are there before it fails.",
)
FETCH_OFFSET_NUM_RETRIES = Option(
    "fetchOffset.numRetries",
    "3",
    Use.READ,
    forms.whole(1, forms.INT_MAX),
    "How often offsets are asked for before the query fails.",
)
FETCH_OFFSET_RETRY_INTERVAL_MS = Option(
    "fetchOffset.retryIntervalMs",
    "1000",
    Use.READ,
    forms.whole(0),
    "Milliseconds between two such attempts.",
)
MAX_OFFSETS_PER_TRIGGER = Option(
    "maxOffsetsPerTrigger",
    None,
    Use.STREAM_READ,
    forms.whole(1),
    "At most about so many offsets in one micro-batch, shared out among partitions by what waits in each.",
)
MIN_OFFSETS_PER_TRIGGER = Option(
    "minOffsetsPerTrigger",
    None,
    Use.STREAM_READ,
    forms.whole(0),
    "A micro-batch waits for so many offsets, but not longer than `maxTriggerDelay`.",
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay",
    "15m",
    Use.STREAM_READ,
    forms.duration_ms,
    "How long `minOffsetsPerTrigger` may hold a micro-batch back, e.g. `90s`, `15m`, `1h`.",
)
MIN_PARTITIONS = Option(
    "minPartitions",
    None,
    Use.READ,
    forms.whole(1, forms.INT_MAX),
    "About so many tasks at least: large partitions are cut into several ranges.",
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition",
    None,
    Use.READ,
    forms.whole(1),
    "No task gets more offsets than this: partitions are cut into ranges of about equal size.",
)
GROUP_ID_PREFIX = Option(
    "groupIdPrefix",
    None,
    Use.READ,
    forms.nonempty("the beginning of a group's name"),
    "How the names of groups begin that are made up for a query. Not used with `kafka.group.id`.",
    shown_default="`spark-kafka-source` for streaming, `spark-kafka-relation` for batch",
)
GROUP_ID = Option(
    "kafka.group.id",
    None,
    Use.READ,
    forms.nonempty("the name of a group"),
    "The group's name, for brokers that let only certain groups read. Give each query one of its own.",
)
INCLUDE_HEADERS = Option(
    "includeHeaders", "false", Use.READ, forms.boolean, "Whether rows have a column `headers`."
)
ISOLATION_LEVEL = Option(
    "kafka.isolation.level",
    "read_uncommitted",
    Use.READ,
    forms.choice("read_uncommitted", "read_committed"),
    "With `read_committed`, records of transactions that were aborted or are still open are not read.",
)
LOG_DIRS = Option(
    "logDirs",
    None,
    Use.READ,
    forms.directories,
    "Tidelog's own: log directories, or copies of them, with commas between them; their segment files are "
    "read without a broker. `kafka.bootstrap.servers` is then not needed.",
)
COMMIT_GROUP = Option(
    "commitGroup",
    None,
    Use.STREAM_READ,
    forms.group_or_off,
    "Tidelog's own: the consumer group to which progress is committed, so that consoles show the query's "
    "lag; `false` or nothing turns it off.",
    shown_default="`kafka.group.id`, else a name made from `groupIdPrefix` and the query",
)
PUSH_FILTERS = Option(
    "pushFilters",
    "false",
    Use.BATCH_READ,
    forms.boolean,
    "Tidelog's own: whether filters on `topic`, `partition`, `offset` and `timestamp` narrow what is "
    "fetched. Needs `spark.sql.python.filterPushdown.enabled`.",
)

TOPIC = Option(
    "topic",
    None,
    Use.WRITE,
    forms.nonempty("the name of a topic"),
    "The topic of all rows; goes before a column `topic`, which is needed without it.",
)
WRITTEN_HEADERS = Option(
    "includeHeaders",
    "false",
    Use.WRITE,
    forms.boolean,
    "Accepted as in the connector, and as little needed: a column `headers` is written if there is one.",
)
ACKS = Option(
    "kafka.acks",
    "all",
    Use.WRITE,
    forms.acks,
    "Who must have a record before it counts as written: `all` in-sync replicas, `1` the leader, `0` nobody.",
)
COMPRESSION_TYPE = Option(
    "kafka.compression.type",
    "none",
    Use.WRITE,
    forms.choice("none", "gzip", "snappy", "lz4", "zstd"),
    "How record batches are compressed.",
)
BATCH_SIZE = Option(
    "kafka.batch.size",
    "524288",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "Bytes of a record batch before it is compressed. More than a Java producer's 16384, for a task has its "
    "rows at hand.",
)
LINGER_MS = Option(
    "kafka.linger.ms",
    "5",
    Use.WRITE,
    forms.whole(0),
    "Milliseconds that a batch may wait to become full; a task that has no more rows does not wait.",
)
ENABLE_IDEMPOTENCE = Option(
    "kafka.enable.idempotence",
    None,
    Use.WRITE,
    forms.boolean,
    "Whether what is sent again is written once. Needs `acks=all`, at most 5 requests in flight, retries.",
    shown_default="`true`, but `false` where `acks`, `retries` or the requests in flight rule it out",
)
MAX_IN_FLIGHT = Option(
    "kafka.max.in.flight.requests.per.connection",
    "5",
    Use.WRITE,
    forms.whole(1, forms.INT_MAX),
    "How many requests are on their way to a broker at once.",
)
RETRIES = Option(
    "kafka.retries",
    str(forms.INT_MAX),
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "How often a batch is sent again, within `kafka.delivery.timeout.ms`.",
)
DELIVERY_TIMEOUT_MS = Option(
    "kafka.delivery.timeout.ms",
    "120000",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "How long a batch may take, all attempts together, before the task fails.",
)
REQUEST_TIMEOUT_MS = Option(
    "kafka.request.timeout.ms",
    "30000",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "How long a broker may take for one answer.",
)
MAX_REQUEST_SIZE = Option(
    "kafka.max.request.size",
    "1048576",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "Bytes of a request; a larger record is refused before it is sent.",
)

SELECTIONS: tuple[Option[Any], ...] = (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)
READ_ROWS: tuple[Option[Any], ...] = (
    *SELECTIONS,
    BOOTSTRAP_SERVERS,
    STARTING_TIMESTAMP,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_OFFSETS,
    STARTING_STRATEGY,
    ENDING_TIMESTAMP,
    ENDING_OFFSETS_BY_TIMESTAMP,
    ENDING_OFFSETS,
    FAIL_ON_DATA_LOSS,
    POLL_TIMEOUT_MS,
    FETCH_OFFSET_NUM_RETRIES,
    FETCH_OFFSET_RETRY_INTERVAL_MS,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    GROUP_ID_PREFIX,
    GROUP_ID,
    INCLUDE_HEADERS,
    ISOLATION_LEVEL,
    LOG_DIRS,
    COMMIT_GROUP,
    PUSH_FILTERS,
)
WRITE_ROWS: tuple[Option[Any], ...] = (
    BOOTSTRAP_SERVERS,
    TOPIC,
    WRITTEN_HEADERS,
    ACKS,
    COMPRESSION_TYPE,
    BATCH_SIZE,
    LINGER_MS,
    ENABLE_IDEMPOTENCE,
    MAX_IN_FLIGHT,
    RETRIES,
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    MAX_REQUEST_SIZE,
)

# Properties of Kafka's clients that would break a query, and what to do instead.
FORBIDDEN_TO_READ = {
    "auto.offset.reset": "set startingOffsets to earliest or latest instead; a query that goes on does so "
    "from its checkpoint",
    "key.deserializer": "keys are bytes; turn the column key into what you need with DataFrame operations",
    "value.deserializer": "values are bytes; turn the column value into what you need with DataFrame "
    "operations",
    "enable.auto.commit": "progress is in the checkpoint; set commitGroup to show it to a consumer group",
    "interceptor.classes": "nothing may change records on their way; use DataFrame operations instead",
}
FORBIDDEN_TO_WRITE = {
    "key.serializer": "keys are written as bytes; make the column key a string or binary",
    "value.serializer": "values are written as bytes; make the column value a string or binary",
    "interceptor.classes": "no Java runs in the sink; use DataFrame operations instead",
    "partitioner.class": "no Java runs in the sink; put the partition you want into a column partition",
    "transactional.id": "the sink names its producers itself",
}
