"""Every option of the source and the sink as a row: name, default, use, parser, meaning.

The names, defaults and refusals are those of Spark's Kafka connector, so that a query written for it works
with only its format changed; the last rows of `READ_ROWS` exist only in Tidelog.

**Invariant:** an invalid value raises `OptionError`, which names the option, the value and what is
allowed.
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
    """An invalid option; the message can be shown to users."""


class Use(Flag):
    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


class Given:
    """The options of one query, by lower-case names."""

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
        """Names of options that have no effect for this kind of query."""
        return tuple(row.name for row in rows if self.text(row.name) is not None and not row.uses & self.use)


@dataclass(frozen=True, slots=True)
class Option(Generic[Value]):
    name: str
    default: str | None
    uses: Use
    form: Form[Value]
    meaning: str
    shown_default: str | None = None  # if the default is not a text that could be given

    def maybe(self, given: Given) -> Value | None:
        """The value, the default's value, or None if there is neither."""
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
    'Partitions to read, for example `{"clicks":[0,1],"views":[2]}`. Exactly one of `assign`, `subscribe` '
    "and `subscribePattern` must be given.",
)
SUBSCRIBE = Option("subscribe", None, Use.READ, forms.topics, "Topics to read, separated by commas.")
SUBSCRIBE_PATTERN = Option(
    "subscribePattern",
    None,
    Use.READ,
    forms.pattern,
    "Regular expression; topics whose name contains a match are read, including topics created later.",
)
BOOTSTRAP_SERVERS = Option(
    "kafka.bootstrap.servers",
    None,
    Use.READ | Use.WRITE,
    forms.nonempty("host:port, separated by commas"),
    "Brokers for the first connection. Required, except for reading `logDirs`.",
)
STARTING_TIMESTAMP = Option(
    "startingTimestamp",
    None,
    Use.READ,
    forms.whole(),
    "Milliseconds since 1970: each partition starts at its first record with this timestamp or a later one. "
    "Overrides `startingOffsetsByTimestamp` and `startingOffsets`.",
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    "startingOffsetsByTimestamp",
    None,
    Use.READ,
    forms.timestamps,
    'The same with a timestamp for each partition, for example `{"clicks":{"0":1700000000000}}`. '
    "Overrides `startingOffsets`.",
)
STARTING_OFFSETS = Option(
    "startingOffsets",
    None,
    Use.READ,
    forms.offsets,
    "`earliest`, `latest` (streaming only), or an offset for each partition, for example "
    '`{"clicks":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest (streaming only). For streams, only '
    "the start of a new query: a restarted query continues from its checkpoint, and reads new partitions "
    "from their earliest offset.",
    shown_default="`earliest` for batch, `latest` for streaming",
)
ENDING_TIMESTAMP = Option(
    "endingTimestamp",
    None,
    Use.BATCH_READ,
    forms.whole(),
    "Milliseconds since 1970: each partition ends before its first record with this timestamp or a later "
    "one, and at its latest offset if it has none. Overrides `endingOffsetsByTimestamp` and "
    "`endingOffsets`. Ignored by streams.",
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    "endingOffsetsByTimestamp",
    None,
    Use.BATCH_READ,
    forms.timestamps,
    "The same with a timestamp for each partition. Overrides `endingOffsets`. Refused by streams.",
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
    "For a partition without a record of the starting timestamp or later: `error` fails the query, `latest` "
    "starts at the end of the partition.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    "true",
    Use.READ,
    forms.boolean,
    "Whether a query fails when records may have been deleted before it read them, by retention or with "
    "their topic. With `false` it logs a warning and reads the remaining records.",
)
POLL_TIMEOUT_MS = Option(
    "kafkaConsumer.pollTimeoutMs",
    "120000",
    Use.READ,
    forms.whole(1),
    "How many milliseconds a task waits for existing records before it fails.",
)
FETCH_OFFSET_NUM_RETRIES = Option(
    "fetchOffset.numRetries",
    "3",
    Use.READ,
    forms.whole(1, forms.INT_MAX),
    "How often the request for offsets is retried before the query fails.",
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
    "The approximate maximum of offsets in one micro-batch, divided among the partitions in proportion to "
    "their unread offsets.",
)
MIN_OFFSETS_PER_TRIGGER = Option(
    "minOffsetsPerTrigger",
    None,
    Use.STREAM_READ,
    forms.whole(0),
    "A micro-batch waits for this many offsets, but not longer than `maxTriggerDelay`.",
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay",
    "15m",
    Use.STREAM_READ,
    forms.duration_ms,
    "How long `minOffsetsPerTrigger` may delay a micro-batch, for example `90s`, `15m`, `1h`.",
)
MIN_PARTITIONS = Option(
    "minPartitions",
    None,
    Use.READ,
    forms.whole(1, forms.INT_MAX),
    "The approximate minimum of tasks: large partitions are divided into several ranges.",
)
MAX_RECORDS_PER_PARTITION = Option(
    "maxRecordsPerPartition",
    None,
    Use.READ,
    forms.whole(1),
    "No task gets more offsets than this: partitions are divided into ranges of about equal size.",
)
GROUP_ID_PREFIX = Option(
    "groupIdPrefix",
    None,
    Use.READ,
    forms.nonempty("the beginning of a group's name"),
    "The prefix of generated group names. Not used with `kafka.group.id`.",
    shown_default="`spark-kafka-source` for streaming, `spark-kafka-relation` for batch",
)
GROUP_ID = Option(
    "kafka.group.id",
    None,
    Use.READ,
    forms.nonempty("the name of a group"),
    "The name of the consumer group, for brokers that authorize groups. Use a different one for each query.",
)
INCLUDE_HEADERS = Option(
    "includeHeaders", "false", Use.READ, forms.boolean, "Whether rows have a column `headers`."
)
ISOLATION_LEVEL = Option(
    "kafka.isolation.level",
    "read_uncommitted",
    Use.READ,
    forms.choice("read_uncommitted", "read_committed"),
    "With `read_committed`, records of aborted or open transactions are not read.",
)
LOG_DIRS = Option(
    "logDirs",
    None,
    Use.READ,
    forms.directories,
    "Only in Tidelog: log directories, or copies of them, separated by commas; their segment files are read "
    "without a broker. `kafka.bootstrap.servers` is then not needed.",
)
COMMIT_GROUP = Option(
    "commitGroup",
    None,
    Use.STREAM_READ,
    forms.group_or_off,
    "Only in Tidelog: the consumer group to which progress is committed, so that consoles show the query's "
    "lag; `false` or an empty value disables it.",
    shown_default="`kafka.group.id`, else a name made from `groupIdPrefix` and the query",
)
PUSH_FILTERS = Option(
    "pushFilters",
    "false",
    Use.BATCH_READ,
    forms.boolean,
    "Only in Tidelog: whether filters on `topic`, `partition`, `offset` and `timestamp` reduce the fetched "
    "ranges. Works in a session of `tidelog.spark.session` or `tidelog.spark.register`; in others Spark "
    "filters the rows.",
)

TOPIC = Option(
    "topic",
    None,
    Use.WRITE,
    forms.nonempty("the name of a topic"),
    "The topic of all rows; overrides a column `topic`, which is required without this option.",
)
WRITTEN_HEADERS = Option(
    "includeHeaders",
    "false",
    Use.WRITE,
    forms.boolean,
    "Accepted for compatibility, not needed: a column `headers` is written if there is one.",
)
ACKS = Option(
    "kafka.acks",
    "all",
    Use.WRITE,
    forms.acks,
    "The replicas that must have a record before it counts as written: `all` in-sync replicas, `1` the "
    "leader, `0` none.",
)
COMPRESSION_TYPE = Option(
    "kafka.compression.type",
    "none",
    Use.WRITE,
    forms.choice("none", "gzip", "snappy", "lz4", "zstd"),
    "The codec of record batches.",
)
BATCH_SIZE = Option(
    "kafka.batch.size",
    "524288",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "Bytes of a record batch before compression. Larger than the Java producer's 16384, because a task has "
    "all its rows available.",
)
LINGER_MS = Option(
    "kafka.linger.ms",
    "5",
    Use.WRITE,
    forms.whole(0),
    "Milliseconds that a batch may wait to become full; a task without more rows does not wait.",
)
ENABLE_IDEMPOTENCE = Option(
    "kafka.enable.idempotence",
    None,
    Use.WRITE,
    forms.boolean,
    "Whether a batch that is sent again is written only once. Needs `acks=all`, at most 5 requests in "
    "flight, retries.",
    shown_default="`true`, but `false` if `acks`, `retries` or the requests in flight exclude it",
)
MAX_IN_FLIGHT = Option(
    "kafka.max.in.flight.requests.per.connection",
    "5",
    Use.WRITE,
    forms.whole(1, forms.INT_MAX),
    "How many requests may be in flight to one broker.",
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
    "The time limit for a batch with all its attempts; then the task fails.",
)
REQUEST_TIMEOUT_MS = Option(
    "kafka.request.timeout.ms",
    "30000",
    Use.WRITE,
    forms.whole(0, forms.INT_MAX),
    "The time limit for one answer of a broker.",
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

# Properties of Kafka's clients that would break a query, and their alternatives.
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
