"""Where Tidelog may answer otherwise than Apache Kafka 4.3.1, each row reviewed.

**Invariant:** no row covers an error where Kafka has none, or another error, unless its reason says why
Tidelog's answer is the better one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.compare import MISSING, Difference
from tests.differential.plain import SOMETHING

NO_COORDINATOR = "coordinator_not_available"


def always(_: Difference) -> bool:
    return True


def kafka_broke(difference: Difference) -> bool:
    return bool(difference.kafka == "unknown_server_error" and difference.tidelog != "none")


def only_kafka_has_it(difference: Difference) -> bool:
    return bool(difference.tidelog == MISSING)


def in_scenarios(*names: str) -> Callable[[Difference], bool]:
    return lambda difference: difference.scenario in names


def is_internal(difference: Difference) -> bool:
    return re.search(r"[\[,]__", difference.place) is not None


def setting_of(difference: Difference) -> str:
    """The setting that a difference of DescribeConfigs is about."""
    found = re.search(r"configs\[([^\]]*)\]", difference.place)
    return found[1] if found else ""


def is_of_other_coordinators(difference: Difference) -> bool:
    told = difference.tidelog["error_code"] if isinstance(difference.tidelog, dict) else difference.tidelog
    is_none = told in (NO_COORDINATOR, -1, "", MISSING)
    is_asked = re.search(r"key_type=2\b", difference.request) is not None
    return is_none and (is_asked or difference.scenario == "damaged")


def asks_for_controllers(difference: Difference) -> bool:
    """Whether DescribeCluster has an endpoint type of 2, in words or as the byte behind the flag."""
    return re.search(r"endpoint_type=2\b|0[01]02[0-9a-f]*$", difference.request) is not None


# Of a broker: what two of different make cannot have alike.
OTHER_SETTINGS = frozenset(
    {
        "allow.insecure.listeners",
        "broker.id",
        "controller.quorum.voters",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "log.retention.hours",  # Kafka shows the default once log.retention.ms is changed
        "metric.reporters",
        "node.id",
        "operator.log.format",
        "operator.log.level",
        "principal.builder.class",
        "probe.listener",
        "producer.id.expiration.check.interval.ms",
        "remote.log.metadata.manager.class.name",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
        "zookeeper.password",
        "zookeeper.session.timeout.ms",
        "zookeeper.set.acl",
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.location",
        "zookeeper.username",
    }
)


def in_scenarios_with(*words: str) -> Callable[[Difference], bool]:
    return lambda difference: any(word in difference.scenario for word in words)


@dataclass(frozen=True)
class Accepted:
    api: str  # a pattern of the API's name
    path: str  # a pattern of the path; both must match in full
    reason: str
    when: Callable[[Difference], bool] = always

    def covers(self, difference: Difference) -> bool:
        return bool(
            re.fullmatch(self.api, difference.api)
            and re.fullmatch(self.path, difference.path)
            and self.when(difference)
        )


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        r"CreateTopics|DescribeConfigs",
        r".*configs\[\]",
        "How a partition recovers that no member is known to have whole is a setting of KIP-966 that Kafka "
        "does not have yet.",
        lambda difference: setting_of(difference) == "unclean.recovery.strategy",
    ),
    Accepted(
        r".*",
        r"(.*\.)?error_code",
        "Kafka failed by an exception of its own; Tidelog names what is wrong with the request.",
        kafka_broke,
    ),
    Accepted(
        r".*",
        r"(.*\.)?error_message",
        "Tidelog gives the reason where Kafka has only a code.",
        lambda difference: difference.kafka is None and difference.tidelog == SOMETHING,
    ),
    Accepted(
        r"DescribeCluster",
        r".*",
        "Brokers of Tidelog are its controllers too: asked for controllers, they name the one that decides.",
        asks_for_controllers,
    ),
    # Coordinators come with consumer groups and transactions.
    Accepted(
        r"FindCoordinator",
        r"(coordinators\[\]\.?)?(error_code|node_id|host|port)?",
        "There are no coordinators of transactions and of share groups yet.",
        is_of_other_coordinators,
    ),
    # Groups.
    Accepted(
        r"Offset(Commit|Delete)",
        r"topics\[\]",
        "Of a topic that was named without partitions Kafka says nothing.",
        lambda difference: difference.kafka == MISSING and difference.tidelog["partitions"] == [],
    ),
    Accepted(
        r"DescribeGroups",
        r"groups\[\]\.members\[\]\.member_assignment",
        "Of a group that became classic Kafka tells what members were to have, Tidelog what they have.",
        in_scenarios("described, classic again"),
    ),
    Accepted(
        r"ConsumerGroup(Describe|Heartbeat)",
        r"member_epoch|assignment(\..*)?|groups\[\]\.(group_epoch|assignment_epoch|members\[\]\.member_epoch)",
        "Kafka matches a pattern later, in an epoch of its own; Tidelog's first answer has its topics.",
        in_scenarios_with("by a pattern"),
    ),
    Accepted(
        r"ConsumerGroupHeartbeat",
        r"error_code",
        "A bad pattern of somebody who is no member: Kafka looks for the member first, Tidelog at it.",
        lambda difference: (
            difference.tidelog == "invalid_regular_expression"
            and difference.kafka in ("group_id_not_found", "unknown_member_id", "fenced_member_epoch")
        ),
    ),
    Accepted(
        r"ConsumerGroupHeartbeat",
        r"member_epoch",
        "Who subscribes to nothing raises no epoch of Kafka's.",
        in_scenarios("a member of no topics"),
    ),
    Accepted(
        r"ConsumerGroupHeartbeat",
        r"assignment",
        "A member that has not reported what it was told is told again; Kafka tells it once.",
        lambda difference: difference.kafka is None,
    ),
    Accepted(
        r"AddPartitionsToTxn",
        r".*partition_error_code",
        "What is only looked for is looked for in the transaction; the coordinator may know its topic later.",
        lambda difference: (
            "verify_only=True" in difference.request and difference.kafka == "unknown_topic_or_partition"
        ),
    ),
    Accepted(
        r"DescribeTransactions",
        r"transaction_states\[\].*",
        "An id that stands twice is described once: the size of an answer is bounded.",
        lambda difference: re.search(r"\('([^']*)', '\1'\)", difference.request) is not None,
    ),
    Accepted(
        r"WriteTxnMarkers",
        r"markers\[\]",
        "Kafka's answer leaves out a marker for no partitions.",
        in_scenarios("no partitions"),
    ),
    Accepted(
        r"AlterClientQuotas",
        r"entries\[\]\.error_(code|message)",
        "What is no number limits nothing, and stays in Kafka's store; here it is refused.",
        lambda difference: "nan" in difference.request,
    ),
    Accepted(
        r"ApiVersions",
        r"api_keys\[\]",
        "Not every API of Kafka's is served yet; one that is, has Kafka's versions.",
        only_kafka_has_it,
    ),
    Accepted(
        r"ApiVersions",
        r"(supported|finalized)_features\[\]",
        "Features are levels of a cluster's own records; Tidelog's records are its own.",
    ),
    # The broker keeps batches as they are, and refuses what it would have to look into or rewrite.
    Accepted(
        r"Produce",
        r".*",
        "A batch's header and checksum are checked in full, its records are the producer's own (L3).",
        in_scenarios("three with their delta", "one with its delta", "gzip announced, plain"),
    ),
    Accepted(
        r"Produce",
        r".*",
        "Kafka drops what it does not know of a batch in silence; Tidelog does not take it.",
        in_scenarios("append time set", "delete horizon", "unknown attribute", "one byte too many"),
    ),
    Accepted(
        r"Produce",
        r".*",
        "Kafka forgets the first of two batches for one partition; Tidelog appends and answers both.",
        in_scenarios("a topic twice", "a partition in two topics", "a partition twice"),
    ),
    Accepted(
        r"Produce",
        r"responses\[\]\.partition_responses\[\]\.error_code",
        "Bad acks and a bad batch: Kafka looks at the batch first, Tidelog at what is cheap.",
        lambda difference: (
            difference.kafka == "invalid_record" and difference.tidelog == "invalid_required_acks"
        ),
    ),
    Accepted(
        r"Produce",
        r"responses\[\]\.partition_responses\[\]\.log_append_time",
        "Of a duplicate Kafka tells the record's own timestamp as if it were the time of the append.",
        in_scenarios("a duplicate", "an old duplicate"),
    ),
    Accepted(
        r"Produce",
        r"responses\[\]\.partition_responses\[\]\.log_start_offset",
        "With an error Kafka tells the log start offset sometimes, Tidelog whenever there is a partition.",
        lambda difference: difference.kafka == -1,
    ),
    Accepted(
        r"Fetch|ListOffsets",
        r".*",
        "There is no such isolation level: Kafka fails by an exception where it reads, Tidelog refuses.",
        lambda difference: re.search(r"isolation_level=(?![01]\b)", difference.request) is not None,
    ),
    Accepted(
        r"Fetch",
        r".*",
        "Kafka fails by an exception of its own for some of the partitions; Tidelog takes -1 for 0.",
        in_scenarios("at most -1 bytes", "at most -1 bytes a partition"),
    ),
    Accepted(
        r"Metadata",
        r"topics\[\](\..*)?",
        "Kafka says that a topic is unknown and creates it; Tidelog's answer waits until it is there.",
        in_scenarios("an unknown one, to be created"),
    ),
    Accepted(
        r"DescribeLogDirs",
        r"partitions\[\]\.partition_size",
        "What the two have written of the same groups, and how it is laid out in batches, is their own.",
        is_internal,
    ),
    # Settings.
    Accepted(
        r"DescribeConfigs",
        r"results\[\]\.configs\[\](\..*)?",
        "Addresses, classes and buffers; settings of one of the two; what Kafka forgets (see below).",
        lambda difference: setting_of(difference) in OTHER_SETTINGS,
    ),
    Accepted(
        r"DescribeConfigs",
        r"results\[\]\.configs\[\](\.value)?",
        "Kafka's loggers are its classes, and set up by a file that this suite does not give it.",
        lambda difference: difference.place.startswith("results[8,1"),
    ),
    Accepted(
        r"(Incremental)?AlterConfigs",
        r"responses\[\]\.error_code",
        "Kafka keeps an unknown broker setting for a plugin that may know it; here it is an error.",
        lambda difference: (
            difference.place.startswith("responses[4,")
            and (difference.kafka, difference.tidelog) == ("none", "invalid_request")
        ),
    ),
    Accepted(
        r"(Incremental)?AlterConfigs",
        r"responses\[\]\.error_(code|message)",
        "Of a setting that changes nothing here only the type is checked, not the range.",
        in_scenarios_with("num.io.threads=0", "share.heartbeat.interval.ms=-5"),
    ),
    # Frames that are no requests.
    Accepted(
        r".*",
        r"",
        "Kafka takes every negative size for null; only -1 stands for it.",
        lambda difference: difference.scenario == "a negative size" and difference.tidelog == "closed",
    ),
    Accepted(
        r"ElectLeaders",
        r"replica_election_results\[\]",
        "A timeout of -1 ms has run out before Kafka's controller is asked; here nobody is asked.",
        in_scenarios("all bits set"),
    ),
    Accepted(
        r"ApiVersions",
        r"",
        "Whatever follows, a client that asks for versions wrongly is told them (KIP-511).",
        in_scenarios("ApiVersions 99 without a body"),
    ),
    Accepted(
        r"Produce",
        r"",
        "Kafka never answers a produce request without records; Tidelog says what is wrong with it.",
        lambda difference: difference.scenario == "null for records" and difference.kafka == "no answer",
    ),
    Accepted(
        r".*",
        r"",
        "Kafka takes text that is no UTF-8, and any byte for true; Tidelog closes, and never guesses.",
        lambda difference: difference.scenario == "damaged" and difference.tidelog == "closed",
    ),
)
