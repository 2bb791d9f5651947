"""The settings of a broker that do something, under Kafka's names with Kafka's defaults and bounds."""

from __future__ import annotations

from tidelog.base.forms import PROTOCOLS, read_address_limits, read_listener_protocols
from tidelog.base.setting import INT32_MAX, INT64_MAX, Change, Kind, Setting, Value

_UNLIMITED = 1.7976931348623157e308  # the largest double
DAY_MS = 24 * 60 * 60 * 1_000
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
POLICIES = ("delete", "compact")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_GZIP_LEVELS = ("-1", *(str(level) for level in range(1, 10)))
LEVELS = ("debug", "info", "warning", "error")

_I, _L, _B, _S = Kind.INT, Kind.LONG, Kind.BOOLEAN, Kind.STRING
_D, _LIST = Kind.DOUBLE, Kind.LIST


def _dynamic(
    name: str,
    kind: Kind,
    default: Value | None,
    meaning: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Setting:
    """A setting that may be changed while the broker runs."""
    return Setting(name, kind, default, meaning, minimum, maximum, choices, change=Change.ANYWHERE)


BROKER_ROWS = (
    Setting("node.id", _I, 1, "This broker's number in the cluster.", 0),
    Setting(
        "listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), "Addresses to serve on: name://host:port, …"
    ),
    Setting(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that clients are told, one for each listener; by default the listeners themselves.",
    ),
    Setting(
        "listener.security.protocol.map",
        _S,
        ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        "The protocol of each listener, name:protocol, …; only PLAINTEXT is served.",
        read=read_listener_protocols,
    ),
    Setting(
        "inter.broker.listener.name",
        _S,
        None,
        "Name of the listener between brokers; by default the value of security.inter.broker.protocol.",
    ),
    Setting(
        "security.inter.broker.protocol",
        _S,
        PROTOCOLS[0],
        "Protocol of the listener between brokers; only PLAINTEXT is served.",
        choices=PROTOCOLS,
    ),
    Setting("allow.insecure.listeners", _B, False, "Serve in plain text on addresses others can reach."),
    Setting("authorizer.class.name", _S, "", "Must be empty: requests are not authorized.", choices=("",)),
    Setting("log.dirs", _LIST, ("tidelog-data",), "Folders that hold the partitions."),
    Setting("broker.rack", _S, None, "The rack of this broker."),
    Setting("num.partitions", _I, 1, "Partitions of a topic created without a number.", 1),
    Setting("default.replication.factor", _I, 1, "Replicas of a topic created without a number.", 1),
    Setting("auto.create.topics.enable", _B, True, "Create a topic when a client first names it."),
    Setting("delete.topic.enable", _B, True, "Let clients delete topics."),
    Setting("socket.request.max.bytes", _I, 104_857_600, "The largest request.", 1),
    Setting("socket.send.buffer.bytes", _I, -1, "SO_SNDBUF; -1 leaves it to the OS.", -1),
    Setting("socket.receive.buffer.bytes", _I, -1, "SO_RCVBUF; -1 leaves it to the OS.", -1),
    Setting("socket.listen.backlog.size", _I, 1_024, "Connections that wait to be accepted.", 1),
    _dynamic("max.connections", _I, INT32_MAX, "Open connections, within the limit of the process.", 0),
    _dynamic("max.connections.per.ip", _I, INT32_MAX, "Open connections from one address.", 0),
    Setting(
        "max.connections.per.ip.overrides",
        _S,
        "",
        "The same for single addresses: address:number, … (host names are not resolved).",
        read=read_address_limits,
        change=Change.ANYWHERE,
    ),
    _dynamic("max.connection.creation.rate", _I, INT32_MAX, "Connections accepted in a second.", 0),
    Setting("quota.window.num", _I, 11, "Samples that quotas of clients are measured by.", 1),
    Setting("quota.window.size.seconds", _I, 1, "Seconds of each of them.", 1),
    Setting("controller.quota.window.num", _I, 11, "Samples of quotas for changes of topics.", 1),
    Setting("controller.quota.window.size.seconds", _I, 1, "Seconds of each of them.", 1),
    Setting("connections.max.idle.ms", _L, 600_000, "Close a connection that is idle this long; -1 never."),
    Setting("fetch.max.bytes", _I, 57_671_680, "The largest answer to a fetch.", 1024),
    Setting("max.incremental.fetch.session.cache.slots", _I, 1_000, "Fetch sessions kept.", 0),
    Setting("max.request.partition.size.limit", _I, 2_000, "Partitions described by one answer.", 1),
    # Kafka's minimum is 1 MiB; smaller segments are useful on small disks and in tests of rolling.
    _dynamic("log.segment.bytes", _I, 1_073_741_824, "Size at which a segment is rolled.", 1024),
    _dynamic("log.roll.ms", _L, None, "Age at which a segment is rolled.", 1),
    Setting("log.roll.hours", _I, 168, "The same in hours.", 1),
    _dynamic("log.roll.jitter.ms", _L, None, "How much the age is varied.", 0),
    Setting("log.roll.jitter.hours", _I, 0, "The same in hours.", 0),
    _dynamic("log.index.size.max.bytes", _I, 10_485_760, "The largest index file.", 4),
    _dynamic("log.index.interval.bytes", _I, 4_096, "Log bytes between two index entries.", 0),
    Setting(
        "log.retention.ms",
        _L,
        None,
        "Age at which records are deleted; -1: never.",
        excluded=(0,),
        change=Change.ANYWHERE,
    ),
    Setting("log.retention.minutes", _I, None, "The same in minutes.", excluded=(0,)),
    Setting("log.retention.hours", _I, 168, "The same in hours.", excluded=(0,)),
    _dynamic("log.retention.bytes", _L, -1, "Partition size above which the oldest segments are deleted."),
    Setting("log.retention.check.interval.ms", _L, 300_000, "How often retention runs.", 1),
    _dynamic(
        "log.segment.delete.delay.ms", _L, 60_000, "Delay before a deleted segment's file is removed.", 0
    ),
    _dynamic("log.cleanup.policy", _LIST, ("delete",), "How old records are removed.", choices=POLICIES),
    Setting("log.cleaner.enable", _B, True, "Compact topics with cleanup.policy=compact."),
    _dynamic("log.cleaner.backoff.ms", _L, 15_000, "Pause when there is nothing to compact.", 0),
    _dynamic("log.cleaner.dedupe.buffer.size", _L, 134_217_728, "Memory for the keys of a compaction."),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second", _D, _UNLIMITED, "Reads and writes of compaction, together."
    ),
    _dynamic("log.cleaner.delete.retention.ms", _L, DAY_MS, "How long a tombstone is kept.", 0, INT64_MAX),
    _dynamic("log.cleaner.min.compaction.lag.ms", _L, 0, "Minimum age for compaction.", 0, INT64_MAX),
    _dynamic(
        "log.cleaner.max.compaction.lag.ms",
        _L,
        INT64_MAX,
        "Maximum age of an uncompacted record.",
        1,
        INT64_MAX,
    ),
    _dynamic(
        "log.cleaner.min.cleanable.ratio",
        _D,
        0.5,
        "Share of dirty bytes above which a log is compacted.",
        0.0,
        1.0,
    ),
    _dynamic("log.flush.interval.messages", _L, INT64_MAX, "Records after which the log is fsynced.", 1),
    _dynamic("log.flush.interval.ms", _L, None, "Time after which the log is fsynced.", 0),
    Setting(
        "log.flush.scheduler.interval.ms", _L, INT64_MAX, "The same, if log.flush.interval.ms is not set.", 0
    ),
    Setting("log.flush.offset.checkpoint.interval.ms", _I, 60_000, "How often recovery points are saved.", 0),
    _dynamic(
        "log.message.timestamp.type",
        _S,
        "CreateTime",
        "The timestamp of records: set by producer or broker.",
        choices=TIMESTAMP_TYPES,
    ),
    _dynamic("log.message.timestamp.before.max.ms", _L, INT64_MAX, "How old a timestamp may be.", 0),
    _dynamic("log.message.timestamp.after.max.ms", _L, 3_600_000, "How far ahead a timestamp may be.", 0),
    Setting(
        "log.preallocate",
        _B,
        False,
        "Has no effect. A segment grows as it is written.",
        change=Change.ANYWHERE,
        has_effect=False,
    ),
    _dynamic("message.max.bytes", _I, 1_048_588, "The largest record batch.", 0),
    _dynamic("compression.type", _S, "producer", "The codec in which batches are stored.", choices=CODECS),
    _dynamic(
        "compression.gzip.level",
        _I,
        -1,
        "Level of gzip, where the broker compresses.",
        -1,
        9,
        _GZIP_LEVELS,
    ),
    _dynamic("compression.lz4.level", _I, 9, "The same for lz4.", 1, 17),
    _dynamic("compression.zstd.level", _I, 3, "The same for zstd.", -131_072, 22),
    _dynamic(
        "min.insync.replicas", _I, 1, "Replicas that must have a record before acks=all is answered.", 1
    ),
    _dynamic("producer.id.expiration.ms", _I, DAY_MS, "How long an idle producer is remembered.", 1),
    Setting(
        "producer.id.expiration.check.interval.ms", _I, 600_000, "How often idle producers are removed.", 1
    ),
    Setting(
        "probe.listener", _S, "", "host:port of /metrics and /health; empty: off; port 0: any free port."
    ),
    _dynamic("operator.log.level", _S, "info", "The lowest level that is logged.", choices=LEVELS),
    Setting("operator.log.format", _S, "text", "The format of log lines.", choices=("text", "json")),
    Setting(
        "zookeeper.connect",
        _S,
        "",
        "host:port,…/chroot of the ZooKeeper that brokers share; empty: a single broker with its own store.",
    ),
    Setting("zookeeper.session.timeout.ms", _I, 18_000, "Silence after which a broker counts as gone.", 500),
    Setting("zookeeper.connection.timeout.ms", _I, 18_000, "How long startup waits for ZooKeeper.", 1),
    Setting("zookeeper.set.acl", _B, False, "Create nodes that only this broker's user may read or change."),
    Setting("zookeeper.username", _S, "", "The broker's user in ZooKeeper (digest)."),
    Setting("zookeeper.password", Kind.PASSWORD, None, "The password of zookeeper.username."),
    Setting("zookeeper.ssl.client.enable", _B, False, "Connect to ZooKeeper with TLS."),
    Setting("zookeeper.ssl.truststore.location", _S, "", "Trusted certificates for ZooKeeper, as PEM."),
    Setting(
        "zookeeper.ssl.keystore.location", _S, "", "The broker's certificate and key for ZooKeeper, as PEM."
    ),
    Setting(
        "zookeeper.ssl.keystore.password",
        Kind.PASSWORD,
        None,
        "The password of the broker's key for ZooKeeper.",
    ),
    Setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _S,
        "HTTPS",
        "Empty: do not compare ZooKeeper's certificate with its host name.",
    ),
    Setting("telemetry.max.bytes", _I, 1_048_576, "The largest push of client metrics.", 1),
)
