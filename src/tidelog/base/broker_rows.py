"""The settings of a broker that do something, under Kafka's names with Kafka's defaults and bounds."""

from __future__ import annotations

from tidelog.base.forms import PROTOCOLS, read_address_limits, read_listener_protocols
from tidelog.base.setting import INT32_MAX, INT64_MAX, Change, Kind, Setting, Value

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


def _later(name: str, kind: Kind, default: Value, meaning: str, minimum: float, maximum: float) -> Setting:
    """Kept and checked for the compaction of topics, which nothing does."""
    idle = f"{meaning} Has no effect: records are not compacted."
    return Setting(name, kind, default, idle, minimum, maximum, change=Change.ANYWHERE, has_effect=False)


BROKER_ROWS = (
    Setting("node.id", _I, 1, "This broker's number in the cluster.", 0),
    Setting(
        "listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), "Addresses to serve on: name://host:port, …"
    ),
    Setting(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses told to clients, each to those of the listener of its name; by default the listeners.",
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
        "The listener that brokers use; by default the one called as security.inter.broker.protocol says.",
    ),
    Setting(
        "security.inter.broker.protocol",
        _S,
        PROTOCOLS[0],
        "The listener that brokers use, by its protocol; only PLAINTEXT is served.",
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
    _dynamic("max.connections", _I, INT32_MAX, "Connections at a time, up to the process's own bound.", 0),
    _dynamic("max.connections.per.ip", _I, INT32_MAX, "Connections at a time from one address.", 0),
    Setting(
        "max.connections.per.ip.overrides",
        _S,
        "",
        "The same for some: address:number, … (the names of hosts are not looked up).",
        read=read_address_limits,
        change=Change.ANYWHERE,
    ),
    Setting("connections.max.idle.ms", _L, 600_000, "Close a connection that is idle this long; -1 never."),
    Setting("fetch.max.bytes", _I, 57_671_680, "The most bytes one fetch is answered with.", 1024),
    Setting("max.incremental.fetch.session.cache.slots", _I, 1_000, "Fetch sessions kept.", 0),
    Setting("max.request.partition.size.limit", _I, 2_000, "Partitions described by one answer.", 1),
    # Kafka's least is 1 MiB; smaller segments are of use on small disks and to see them rolled.
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
        "Age at which records may go; -1 never.",
        excluded=(0,),
        change=Change.ANYWHERE,
    ),
    Setting("log.retention.minutes", _I, None, "The same in minutes.", excluded=(0,)),
    Setting("log.retention.hours", _I, 168, "The same in hours.", excluded=(0,)),
    _dynamic("log.retention.bytes", _L, -1, "Size of a partition beyond which its oldest segments go."),
    Setting("log.retention.check.interval.ms", _L, 300_000, "How often retention looks.", 1),
    _dynamic("log.segment.delete.delay.ms", _L, 60_000, "How long a deleted file stays.", 0),
    _dynamic("log.cleanup.policy", _LIST, ("delete",), "How old records go.", choices=POLICIES),
    _later("log.cleaner.delete.retention.ms", _L, DAY_MS, "How long a tombstone stays.", 0, INT64_MAX),
    _later("log.cleaner.min.compaction.lag.ms", _L, 0, "Age before which a record stays.", 0, INT64_MAX),
    _later("log.cleaner.max.compaction.lag.ms", _L, INT64_MAX, "Age at which it must go.", 1, INT64_MAX),
    _later("log.cleaner.min.cleanable.ratio", _D, 0.5, "Dirty share that calls for compaction.", 0.0, 1.0),
    _dynamic("log.flush.interval.messages", _L, INT64_MAX, "Records after which the log is fsynced.", 1),
    _dynamic("log.flush.interval.ms", _L, None, "Time after which the log is fsynced.", 0),
    Setting("log.flush.scheduler.interval.ms", _L, INT64_MAX, "The same, where that is not set.", 0),
    Setting("log.flush.offset.checkpoint.interval.ms", _I, 60_000, "How often recovery points are kept.", 0),
    _dynamic("log.message.timestamp.type", _S, "CreateTime", "Whose clock counts.", choices=TIMESTAMP_TYPES),
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
    _dynamic("compression.type", _S, "producer", "The codec batches are kept in.", choices=CODECS),
    _dynamic(
        "compression.gzip.level",
        _I,
        -1,
        "How hard gzip tries, where the broker compresses.",
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
    Setting("producer.id.expiration.check.interval.ms", _I, 600_000, "How often that is looked at.", 1),
    Setting(
        "probe.listener", _S, "", "host:port of /metrics and /health; empty: none. Port 0 is a free one."
    ),
    _dynamic("operator.log.level", _S, "info", "The least that is written to the log.", choices=LEVELS),
    Setting("operator.log.format", _S, "text", "How a line of the log looks.", choices=("text", "json")),
    Setting(
        "zookeeper.connect",
        _S,
        "",
        "host:port,…/chroot of the ZooKeeper that brokers share; empty: this broker is alone.",
    ),
    Setting("zookeeper.session.timeout.ms", _I, 18_000, "How long a broker may be silent and live.", 500),
    Setting("zookeeper.connection.timeout.ms", _I, 18_000, "How long a start waits for ZooKeeper.", 1),
    Setting("zookeeper.set.acl", _B, False, "Let nobody else touch what this broker makes there."),
    Setting("zookeeper.username", _S, "", "By which it is known there (digest)."),
    Setting("zookeeper.password", Kind.PASSWORD, None, "The password that goes with it."),
    Setting("zookeeper.ssl.client.enable", _B, False, "Speak TLS with it."),
    Setting("zookeeper.ssl.truststore.location", _S, "", "Whom to trust there: certificates, as PEM."),
    Setting("zookeeper.ssl.keystore.location", _S, "", "Our certificate and its key, as PEM."),
    Setting("zookeeper.ssl.keystore.password", Kind.PASSWORD, None, "The password of that key."),
    Setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _S,
        "HTTPS",
        "Nothing: whatever host its certificate is of.",
    ),
    Setting("telemetry.max.bytes", _I, 1_048_576, "The most that a client's pushed metrics may take.", 1),
)
