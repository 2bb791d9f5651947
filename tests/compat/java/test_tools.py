"""Kafka's own command line tools, 4.3: exit status, what they print, and that it came true.

Those that join or ask for groups are in `test_group_tools.py`. `kafka-metadata-quorum` asks for a quorum that
is not there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest

from tests.compat.client import CODECS, Client, eventually
from tests.compat.conftest import NewTopic
from tests.compat.contract import PLAIN, TIMED
from tests.compat.java.jvm import Jvm
from tests.compat.java.shell import CONFIGS, PACKAGE, TOPICS, Shell
from tests.compat.stored import stored_batches

SERVED = re.compile(r"^\s(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\],?$")


@pytest.fixture
def shell(jvm: Jvm, bootstrap: str) -> Shell:
    return Shell(jvm, bootstrap)


def test_topics_are_created_listed_described_grown_and_deleted(shell: Shell, fresh_name: str) -> None:
    options = ("--topic", fresh_name)
    made = shell.run(TOPICS, "--create", *options, "--partitions", "2", "--config", "flush.ms=5000")
    assert f"Created topic {fresh_name}." in made
    assert "already exists" in shell.fail(TOPICS, "--create", *options)
    shell.run(TOPICS, "--create", *options, "--if-not-exists")
    assert fresh_name in shell.run(TOPICS, "--list")
    first, *partitions = shell.run(TOPICS, "--describe", *options)
    assert re.search(r"PartitionCount: 2\tReplicationFactor: 1\tConfigs: .*flush.ms=5000", first)
    assert [re.findall(r"Partition: (\d+)\tLeader: (\d+)", line) for line in partitions] == [
        [("0", "1")],
        [("1", "1")],
    ]
    shell.run(TOPICS, "--alter", *options, "--partitions", "4")
    assert "currently has 4 partition(s)" in shell.fail(TOPICS, "--alter", *options, "--partitions", "3")
    assert len(shell.run(TOPICS, "--describe", *options)) == 5
    assert shell.run(TOPICS, "--describe", "--unavailable-partitions") == []
    shell.run(TOPICS, "--delete", *options)
    eventually(lambda: fresh_name not in shell.run(TOPICS, "--list"), "the topic is still listed")
    assert "does not exist" in shell.fail(TOPICS, "--delete", *options)


def test_settings_of_a_topic_are_described_and_changed(shell: Shell, topic: str) -> None:
    entity = ("--entity-name", topic)
    assert "  retention.ms=-1 " in shell.configs("topics", *entity)
    changes = "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    with shell.configured("topics", *entity, add=changes):
        described = shell.configs("topics", *entity)
        assert "  cleanup.policy=compact,delete " in described
        assert (
            "  max.message.bytes=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, "
            "DEFAULT_CONFIG:message.max.bytes=1048588}"
        ) in described
    assert "max.message.bytes" not in shell.configs("topics", *entity)
    everything = shell.configs("topics", *entity, "--all")
    assert "  segment.bytes=1073741824 " in everything and "  max.message.bytes=1048588 " in everything
    unknown = ("--alter", "--entity-type", "topics", *entity, "--add-config", "no.such.key=1")
    assert "InvalidConfigurationException: Unknown topic config name: no.such.key" in shell.fail(
        CONFIGS, *unknown
    )


def test_settings_of_one_broker_and_of_all_are_described_and_changed(shell: Shell) -> None:
    one, default = ("--entity-name", "1"), ("--entity-default",)
    with (
        shell.configured("brokers", *default, add="log.index.interval.bytes=6000"),
        shell.configured("brokers", *one, add="log.index.interval.bytes=5000"),
    ):
        assert (
            "  log.index.interval.bytes=5000 sensitive=false synonyms={"
            "DYNAMIC_BROKER_CONFIG:log.index.interval.bytes=5000, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.index.interval.bytes=6000, "
            "DEFAULT_CONFIG:log.index.interval.bytes=4096}"
        ) in shell.configs("brokers", *one)
        assert "  log.index.interval.bytes=6000 " in shell.configs("brokers", *default)
    assert "log.index.interval.bytes" not in shell.configs("brokers", *one)
    assert "  log.index.interval.bytes=4096 " in shell.configs("brokers", *one, "--all")
    assert "root=" in shell.configs("broker-loggers", *one)
    read_only = ("--alter", "--entity-type", "brokers", *one, "--add-config", "node.id=9")
    assert re.search("InvalidRequestException: .*node.id", shell.fail(CONFIGS, *read_only))


def test_subscriptions_to_the_metrics_of_clients_are_kept(shell: Shell) -> None:
    name = f"metrics-{uuid4().hex[:8]}"
    entity, metrics = ("--entity-name", name), f"{PACKAGE}.ClientMetricsCommand"
    with shell.configured("client-metrics", *entity, add="interval.ms=90000,metrics=[org.apache.]"):
        assert f"Dynamic configs for client-metric {name} are:" in shell.configs("client-metrics")
        assert name in shell.run(metrics, "--list")
        described = shell.run(metrics, "--describe", "--name", name)
        assert {"  interval.ms=90000", "  metrics=org.apache."} <= set(described)
    eventually(lambda: name not in shell.run(metrics, "--list"), "the subscription is still listed")


def test_credentials_of_users_are_kept_and_shown_without_secrets(shell: Shell) -> None:
    user = f"user-{uuid4().hex[:8]}"
    entity, secret = ("--entity-name", user), "SCRAM-SHA-256=[iterations=5000,password=hidden]"
    with shell.configured("users", *entity, add=secret):
        shown = f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=5000"
        eventually(lambda: shell.configs("users", *entity) == shown, "the credential is not shown")
        assert shown in shell.configs("users").splitlines()
    eventually(lambda: user not in shell.configs("users"), "the user is still there")


def test_directories_are_described_with_what_is_in_them(shell: Shell, writer: Client, topic: str) -> None:
    writer.produce(topic, PLAIN)
    lines = shell.run(f"{PACKAGE}.LogDirsCommand", "--describe", "--topic-list", topic)
    (broker,) = json.loads(lines[-1])["brokers"]
    (partition,) = [each for place in broker["logDirs"] for each in place["partitions"]]
    assert partition["partition"] == f"{topic}-0"
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)
    assert 4000 < partition["size"] < 10_000


def test_offsets_are_told_and_records_deleted(
    shell: Shell, writer: Client, topic: str, tmp_path: Path
) -> None:
    def at(time: str) -> list[str]:
        return shell.run(f"{PACKAGE}.GetOffsetShell", "--topic", topic, "--time", time)

    writer.produce(topic, TIMED)
    offsets = [(at(time), time) for time in ("earliest", "latest", "max-timestamp")]
    assert offsets == [
        ([f"{topic}:0:0"], "earliest"),
        ([f"{topic}:0:10"], "latest"),
        ([f"{topic}:0:9"], "max-timestamp"),
    ]
    request = tmp_path / "delete.json"
    request.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]})
    )
    deleted = shell.run(f"{PACKAGE}.DeleteRecordsCommand", "--offset-json-file", str(request))
    assert f"partition: {topic}-0\tlow_watermark: 7" in deleted
    assert at("earliest") == [f"{topic}:0:7"]


def test_the_producers_of_a_partition_are_shown(shell: Shell, writer: Client, topic: str) -> None:
    writer.produce(topic, PLAIN, idempotent=True)
    heads, row = shell.run(
        f"{PACKAGE}.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    )
    shown = dict(zip(heads.split(), row.split(), strict=True))
    assert (shown["ProducerEpoch"], shown["LastSequence"]) == ("0", "19")
    assert shown["CurrentTransactionStartOffset"] == "None"


def test_every_api_is_served_up_to_the_version_that_kafka_uses(shell: Shell) -> None:
    first, *lines = shell.run(f"{PACKAGE}.BrokerApiVersionsCommand")
    assert re.search(r"\(id: 1 rack: null isFenced: false\) -> \($", first)
    served = {found[1]: found for line in lines if (found := SERVED.match(line))}
    assert {
        "Produce",
        "Fetch",
        "DescribeConfigs",
        "DescribeTopicPartitions",
        "PushTelemetry",
    } <= served.keys() | {
        "PushTelemetry"  # Kafka serves it only with a plug-in
    }
    assert [name for name, found in served.items() if (found[4] or found[3]) != found[5]] == []
    assert not any("UNKNOWN" in line for line in lines), "an API that Kafka does not have"


def test_the_cluster_is_described(shell: Shell) -> None:
    features = shell.run(f"{PACKAGE}.FeatureCommand", "describe")
    assert all(re.match(r"Feature: [\w.]+\s+SupportedMinVersion: .*Epoch: \d+", line) for line in features)
    (said,) = shell.run(f"{PACKAGE}.ClusterTool", "cluster-id")
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", said)
    _, endpoint = shell.run(f"{PACKAGE}.ClusterTool", "list-endpoints")
    assert re.match(r"1\s+127.0.0.1\s+\d+\s+null\s+unfenced\s+broker", endpoint)
    assert shell.run(f"{PACKAGE}.reassign.ReassignPartitionsCommand", "--list") == [
        "No partition reassignments found."
    ]
    assert "No Authorizer is configured" in shell.fail(f"{PACKAGE}.AclCommand", "--list")


def test_elections_are_not_needed(shell: Shell, topic: str) -> None:
    elect = (f"{PACKAGE}.LeaderElectionCommand", "--election-type", "PREFERRED")
    assert shell.run(*elect, "--topic", topic, "--partition", "0") == [
        f"Valid replica already elected for partitions {topic}-0"
    ]
    shell.run(*elect, "--all-topic-partitions")
    unknown = shell.fail(*elect, "--topic", "no-such-topic", "--partition", "0")
    assert "UnknownTopicOrPartitionException" in unknown


def test_the_console_writes_and_reads(shell: Shell, topic: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    shell.run(f"{PACKAGE}.ConsoleProducer", "--topic", topic, *keyed, text="a:one\nb:two\nc:three\n")
    consume = (f"{PACKAGE}.consumer.ConsoleConsumer", "--topic", topic, "--partition", "0")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    bounds = ("--max-messages", "2", "--timeout-ms", "20000")
    read = shell.run(*consume, "--offset", "1", *bounds, *shown)
    assert read == ["Offset:1\tb\ttwo", "Offset:2\tc\tthree"]
    committed = ("--isolation-level", "read_committed", "--offset", "earliest", *bounds)
    assert shell.run(*consume, *committed) == ["one", "two"]


@pytest.mark.parametrize("codec", CODECS)
def test_producer_perf_writes_what_it_says(
    shell: Shell, new_topic: NewTopic, bootstrap: str, writer: Client, codec: str
) -> None:
    topic = new_topic()
    sizes = ("--num-records", "3000", "--record-size", "200", "--throughput", "-1")
    codecs = ("--command-property", f"compression.type={codec}", "acks=all")
    said = shell.run(f"{PACKAGE}.ProducerPerformance", "--topic", topic, *sizes, *codecs)
    assert re.match(r"3000 records sent, [\d.]+ records/sec", said[-1])
    assert writer.edges(topic) == (0, 3000)
    batches = stored_batches(bootstrap, topic)
    assert {batch.codec for batch in batches} == {codec}
    assert all(batch.producer_id >= 0 for batch in batches)


FAR_AWAY = 1e12  # nobody in this suite is throttled by it


def test_quotas_of_users_clients_and_addresses_are_set_and_shown(shell: Shell) -> None:
    name = f"quota-{uuid4().hex[:8]}"
    user, client = ("--entity-name", name), ("--entity-type", "clients", "--entity-name", f"{name}/c d")
    rates = f"producer_byte_rate={FAR_AWAY:.0f},request_percentage=1000"
    with shell.configured("users", *user, add=rates):
        shown = f"Quota configs for user-principal '{name}' are "
        eventually(lambda: shown in shell.configs("users", *user), "the quota is not shown")
        line = next(line for line in shell.configs("users").splitlines() if line.startswith(shown))
        assert {"producer_byte_rate=1.0E12", "request_percentage=1000.0"} == {*line[len(shown) :].split(", ")}
        with shell.configured("users", *user, *client, add="consumer_byte_rate=5000000000"):
            both = f"Quota configs for user-principal '{name}', client-id '{name}/c d' are "
            eventually(lambda: both in shell.configs("users", *user, *client), "that of both is not shown")
    eventually(lambda: name not in shell.configs("users"), "the quota is still shown")
    address = ("--entity-name", "127.0.0.77")
    with shell.configured("ips", *address, add="connection_creation_rate=9"):
        shown = "Quota configs for ip '127.0.0.77' are connection_creation_rate=9.0"
        eventually(lambda: shown in shell.configs("ips"), "the address's quota is not shown")
    refused = ("--alter", "--entity-type", "clients", "--entity-name", name, "--add-config")
    assert "greater than 0" in shell.fail(CONFIGS, *refused, "producer_byte_rate=0")


def test_quotas_of_all_others_are_set_and_shown(shell: Shell) -> None:
    with (
        shell.configured("clients", "--entity-default", add=f"controller_mutation_rate={FAR_AWAY:.0f}"),
        shell.configured("users", "--entity-default", add=f"consumer_byte_rate={FAR_AWAY:.0f}"),
    ):
        of_clients = "Quota configs for the default client-id are controller_mutation_rate=1.0E12"
        of_users = "Quota configs for the default user-principal are consumer_byte_rate=1.0E12"
        eventually(lambda: of_clients in shell.configs("clients"), "that of client ids is not shown")
        eventually(lambda: of_users in shell.configs("users", "--entity-default"), "nor that of users")
    eventually(lambda: "default" not in shell.configs("clients"), "it is still shown")
