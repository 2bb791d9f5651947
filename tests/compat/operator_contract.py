"""What must hold for every admin client, written once; like `contract.py`, true of Apache Kafka as it stands.

A setting of the broker is put back by the test that changed it: the broker is shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.compat.client import (
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Client,
    Sent,
    eventually,
)
from tests.compat.conftest import NewTopic
from tests.compat.contract import LONG_AGO_MS, PLAIN, TIMED
from tests.compat.operator import (
    CLUSTER_DEFAULT,
    ELECTION_NOT_NEEDED,
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    LOG_DIR_NOT_FOUND,
    OFFSET_OUT_OF_RANGE,
    RESOURCE_NOT_FOUND,
    SECURITY_DISABLED,
    UNACCEPTABLE_CREDENTIAL,
    Change,
    Kind,
    Operator,
    Setting,
    Surveyor,
    is_refused,
    refusal,
)
from tests.compat.stored import fetch_error

LARGE = Sent(b"v" * 20_000)
TWO_MEGABYTES = Sent(b"v" * 2_000_000)
NOBODY = 4711


class Creation:
    """Topics in every shape, and what is wrong with a topic."""

    def test_a_validated_topic_is_not_created(self, operator: Operator, fresh_name: str) -> None:
        operator.create(fresh_name, partitions=2, validate_only=True)
        assert fresh_name not in operator.topics()
        operator.create(fresh_name, partitions=2)
        assert is_refused(TOPIC_ALREADY_EXISTS, operator.create, fresh_name, validate_only=True)

    def test_replicas_may_be_named(self, operator: Operator, fresh_name: str) -> None:
        node = operator.cluster().nodes[0][0]
        operator.create(fresh_name, assignment=[[node], [node]])
        eventually(lambda: operator.topics().get(fresh_name) == 2, "the topic has not 2 partitions")
        assert [each.replicas for each in operator.partitions(fresh_name)] == [(node,), (node,)]

    def test_a_topic_that_cannot_be_is_refused(self, operator: Operator, fresh_name: str) -> None:
        create, name = operator.create, fresh_name
        assert is_refused(INVALID_PARTITIONS, create, name, partitions=0)
        assert is_refused(INVALID_REPLICATION_FACTOR, create, name, replicas=2)
        assert is_refused(INVALID_REPLICA_ASSIGNMENT, create, name, assignment=[[NOBODY]])
        assert is_refused(INVALID_CONFIG, create, name, settings={"no.such.key": "1"})
        assert is_refused(INVALID_CONFIG, create, name, settings={"retention.ms": "long"})
        assert is_refused(INVALID_TOPIC_EXCEPTION, create, "a" * 250)
        assert fresh_name not in operator.topics()


class Growth:
    """A topic gets more partitions, and never fewer."""

    def test_a_topic_grows(self, operator: Operator, topic: str) -> None:
        (first,) = operator.partitions(topic)
        operator.grow(topic, 4)
        eventually(lambda: operator.topics().get(topic) == 4, "the topic has not 4 partitions")
        partitions = operator.partitions(topic)
        assert partitions[0] == first
        assert [each.index for each in partitions] == [0, 1, 2, 3]
        assert all(each.leader in each.in_sync_replicas for each in partitions)

    def test_a_validated_growth_adds_nothing(self, operator: Operator, topic: str) -> None:
        operator.grow(topic, 4, validate_only=True)
        assert len(operator.partitions(topic)) == 1

    def test_a_topic_cannot_shrink_or_stay(self, operator: Operator, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=3)
        for count in (1, 3):
            assert is_refused(INVALID_PARTITIONS, operator.grow, topic, count)
        assert len(operator.partitions(topic)) == 3

    def test_an_unknown_topic_cannot_grow(self, operator: Operator, fresh_name: str) -> None:
        assert is_refused(UNKNOWN_TOPIC_OR_PARTITION, operator.grow, fresh_name, 2)


class DeletedRecords:
    """Records before an offset are gone for everybody."""

    def test_the_low_watermark_moves_and_nothing_before_it_is_read(
        self, operator: Operator, writer: Client, topic: str, bootstrap: str
    ) -> None:
        writer.produce(topic, PLAIN)
        assert operator.delete_records(topic, 13) == 13
        assert operator.edges(topic) == (13, 20)
        assert operator.offset(topic, "earliest")[0] == 13
        assert fetch_error(bootstrap, topic, 12) == OFFSET_OUT_OF_RANGE
        assert [record.offset for record in operator.consume(topic, 7)] == list(range(13, 20))
        assert operator.delete_records(topic, 5) == 13, "what is gone stays gone"

    def test_minus_one_is_all_there_is(self, operator: Operator, writer: Client, topic: str) -> None:
        writer.produce(topic, PLAIN)
        assert operator.delete_records(topic, -1) == 20
        assert operator.edges(topic) == (20, 20)
        writer.produce(topic, [Sent(b"after")])
        assert [(record.offset, record.value) for record in operator.consume(topic, 1)] == [(20, b"after")]

    def test_beyond_the_end_is_refused(self, operator: Operator, writer: Client, topic: str) -> None:
        writer.produce(topic, PLAIN)
        assert is_refused(OFFSET_OUT_OF_RANGE, operator.delete_records, topic, 21)
        assert operator.edges(topic) == (0, 20)


class Listing:
    """Places in a partition, and the cluster that has it."""

    def test_each_place_has_its_offset(self, operator: Operator, writer: Client, topic: str) -> None:
        writer.produce(topic, [*TIMED, Sent(b"an older one", timestamp_ms=LONG_AGO_MS)])
        assert operator.offset(topic, "earliest")[0] == 0
        assert operator.offset(topic, "latest")[0] == 11
        assert operator.offset(topic, "max_timestamp") == (9, LONG_AGO_MS + 9000)
        assert operator.offset(topic, LONG_AGO_MS + 2500) == (3, LONG_AGO_MS + 3000)
        assert operator.offset(topic, LONG_AGO_MS + 9001)[0] == -1

    def test_an_empty_partition_has_no_newest_record(self, operator: Operator, topic: str) -> None:
        assert operator.offset(topic, "max_timestamp") == (-1, -1)

    def test_the_cluster_has_the_node_that_we_talk_to(self, operator: Operator, bootstrap: str) -> None:
        cluster = operator.cluster()
        host, _, port = bootstrap.partition(":")
        assert (host, int(port)) in [(host, port) for _, host, port in cluster.nodes]
        assert cluster.controller in [node for node, _, _ in cluster.nodes]
        assert len(cluster.id) == 22

    def test_every_partition_is_led_by_a_node_of_the_cluster(
        self, operator: Operator, new_topic: NewTopic
    ) -> None:
        nodes = {node for node, _, _ in operator.cluster().nodes}
        partitions = operator.partitions(new_topic(partitions=5))
        assert [each.index for each in partitions] == list(range(5))
        assert all({each.leader, *each.replicas, *each.in_sync_replicas} <= nodes for each in partitions)

    def test_an_unknown_topic_is_not_described(self, operator: Operator, fresh_name: str) -> None:
        assert is_refused(UNKNOWN_TOPIC_OR_PARTITION, operator.partitions, fresh_name)

    def test_a_leader_that_is_preferred_needs_no_election(self, operator: Operator, topic: str) -> None:
        for unclean in (False, True):
            assert is_refused(ELECTION_NOT_NEEDED, operator.elect, topic, unclean=unclean)

    def test_an_unknown_partition_has_no_election(self, operator: Operator, fresh_name: str) -> None:
        assert is_refused(UNKNOWN_TOPIC_OR_PARTITION, operator.elect, fresh_name)


class TopicSettings:
    """Settings of a topic: described in full, changed at once."""

    def test_a_setting_tells_where_it_comes_from(self, operator: Operator, new_topic: NewTopic) -> None:
        settings = operator.settings("TOPIC", new_topic({"max.message.bytes": "4000"}))
        ours, default = settings["max.message.bytes"], settings["segment.bytes"]
        assert (ours.value, ours.source) == ("4000", "DYNAMIC_TOPIC_CONFIG")
        assert ("max.message.bytes", "4000", "DYNAMIC_TOPIC_CONFIG") in ours.synonyms
        assert ("message.max.bytes", "1048588", "DEFAULT_CONFIG") in ours.synonyms
        assert (default.value, default.source) == ("1073741824", "DEFAULT_CONFIG")
        assert not ours.is_read_only and not ours.is_sensitive
        assert_documented(settings)

    def test_a_new_size_holds_for_the_next_batch(self, operator: Operator, topic: str) -> None:
        operator.alter("TOPIC", topic, ("SET", "max.message.bytes", "10000"))
        assert is_refused(MESSAGE_TOO_LARGE, operator.produce, topic, [LARGE])
        operator.alter("TOPIC", topic, ("DELETE", "max.message.bytes", None))
        operator.produce(topic, [LARGE])
        assert operator.edges(topic) == (0, 1)

    def test_a_new_kind_of_timestamp_holds_for_the_next_batch(self, operator: Operator, topic: str) -> None:
        operator.produce(topic, TIMED[:1])
        operator.alter("TOPIC", topic, ("SET", "message.timestamp.type", "LogAppendTime"))
        operator.produce(topic, TIMED[1:2])
        before, after = operator.consume(topic, 2)
        assert before.timestamp_ms == TIMED[0].timestamp_ms
        assert after.timestamp_ms > LONG_AGO_MS + 1_000_000

    def test_lists_are_added_to_and_taken_from(self, operator: Operator, topic: str) -> None:
        def policy() -> set[str]:
            return set((operator.settings("TOPIC", topic)["cleanup.policy"].value or "").split(","))

        operator.alter("TOPIC", topic, ("APPEND", "cleanup.policy", "compact"))
        eventually(lambda: policy() == {"delete", "compact"}, "compact was not added to the policy")
        operator.alter("TOPIC", topic, ("SUBTRACT", "cleanup.policy", "delete"))
        eventually(lambda: policy() == {"compact"}, "delete was not taken from the policy")

    def test_a_validated_change_changes_nothing(self, operator: Operator, topic: str) -> None:
        operator.alter("TOPIC", topic, ("SET", "max.message.bytes", "10"), validate_only=True)
        operator.produce(topic, [LARGE])
        wrong: Change = ("SET", "max.message.bytes", "many")
        assert is_refused(INVALID_CONFIG, operator.alter, "TOPIC", topic, wrong, validate_only=True)

    def test_a_change_with_a_fault_changes_nothing(self, operator: Operator, topic: str) -> None:
        def alter(*changes: Change) -> int:
            return refusal(operator.alter, "TOPIC", topic, *changes)

        good: Change = ("SET", "flush.ms", "5000")
        assert alter(("SET", "no.such.key", "1")) == INVALID_CONFIG
        assert alter(good, ("SET", "max.message.bytes", "-1")) == INVALID_CONFIG
        assert alter(("SET", "cleanup.policy", "burn")) == INVALID_CONFIG
        assert alter(good, ("APPEND", "max.message.bytes", "1")) == INVALID_CONFIG
        assert operator.settings("TOPIC", topic)["flush.ms"].source == "DEFAULT_CONFIG"

    def test_an_unknown_topic_has_no_settings(self, operator: Operator, fresh_name: str) -> None:
        change: Change = ("SET", "max.message.bytes", "10000")
        assert is_refused(UNKNOWN_TOPIC_OR_PARTITION, operator.alter, "TOPIC", fresh_name, change)


class BrokerSettings:
    """Settings of one broker and of all: over its file, under the topic's own."""

    def test_every_setting_of_a_broker_is_described(self, operator: Operator) -> None:
        node = operator.cluster().nodes[0][0]
        settings = operator.settings("BROKER", str(node))
        assert settings["node.id"].value == str(node) and settings["node.id"].is_read_only
        assert settings["log.dirs"].source == "STATIC_BROKER_CONFIG"
        size = settings["message.max.bytes"]
        assert (size.value, size.source, size.is_read_only) == ("1048588", "DEFAULT_CONFIG", False)
        assert size.synonyms == {("message.max.bytes", "1048588", "DEFAULT_CONFIG")}
        assert_documented(settings)

    def test_a_change_for_one_broker_is_under_that_of_a_topic(
        self, operator: Operator, new_topic: NewTopic
    ) -> None:
        node = str(operator.cluster().nodes[0][0])
        theirs, plain = new_topic({"index.interval.bytes": "1000"}), new_topic()
        with changed(operator, node, "log.index.interval.bytes", "2000"):
            eventually(
                lambda: index_interval(operator, plain) == ("2000", "DYNAMIC_BROKER_CONFIG"),
                "the broker's setting does not reach the topic",
            )
            assert index_interval(operator, theirs) == ("1000", "DYNAMIC_TOPIC_CONFIG")
        eventually(
            lambda: index_interval(operator, plain) == ("4096", "DEFAULT_CONFIG"),
            "the setting was not put back",
        )

    def test_a_change_for_all_brokers_is_under_that_of_one(self, operator: Operator, topic: str) -> None:
        if not operator.knows_cluster_default:
            pytest.skip(f"{operator.name} cannot name all brokers")
        node = str(operator.cluster().nodes[0][0])
        with changed(operator, CLUSTER_DEFAULT, "log.index.interval.bytes", "3000"):
            eventually(
                lambda: index_interval(operator, topic) == ("3000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
                "the setting of all brokers does not reach the topic",
            )
            described = operator.settings("BROKER", CLUSTER_DEFAULT)
            assert described["log.index.interval.bytes"].value == "3000"
            with changed(operator, node, "log.index.interval.bytes", "2000"):
                eventually(
                    lambda: index_interval(operator, topic) == ("2000", "DYNAMIC_BROKER_CONFIG"),
                    "the setting of one broker does not win",
                )

    def test_a_larger_size_for_a_broker_is_taken_at_once(self, operator: Operator, topic: str) -> None:
        assert is_refused(MESSAGE_TOO_LARGE, operator.produce, topic, [TWO_MEGABYTES])
        node = str(operator.cluster().nodes[0][0])
        with changed(operator, node, "message.max.bytes", "3000000"):
            operator.produce(topic, [TWO_MEGABYTES])
        assert operator.edges(topic) == (0, 1)

    def test_what_cannot_change_while_it_runs_is_refused(self, operator: Operator) -> None:
        node = str(operator.cluster().nodes[0][0])
        for key, value in {"node.id": "9", "log.dirs": "/elsewhere"}.items():
            assert is_refused(INVALID_REQUEST, operator.alter, "BROKER", node, ("SET", key, value))
        unknown: Change = ("SET", "log.index.interval.bytes", "lots")
        assert refusal(operator.alter, "BROKER", node, unknown) in (
            INVALID_REQUEST,
            INVALID_CONFIG,
        )


class Credentials:
    """SCRAM credentials are kept, and shown without their secrets."""

    def test_a_credential_is_kept_changed_and_removed(self, operator: Operator) -> None:
        user = f"user-{uuid4().hex[:8]}"
        operator.set_credential(user, "SCRAM-SHA-256", 4096, "secret")
        operator.set_credential(user, "SCRAM-SHA-512", 8192, "secret")
        both = {("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)}
        eventually(lambda: operator.credentials(user) == {user: both}, "the credentials are not there")
        assert operator.credentials()[user] == both
        operator.set_credential(user, "SCRAM-SHA-256", 5000, "another")
        operator.remove_credential(user, "SCRAM-SHA-512")
        one = {("SCRAM-SHA-256", 5000)}
        eventually(lambda: operator.credentials(user) == {user: one}, "the credential was not changed")
        operator.remove_credential(user, "SCRAM-SHA-256")
        eventually(lambda: user not in operator.credentials(), "the user is still there")

    def test_a_credential_too_weak_or_unknown_is_refused(self, operator: Operator) -> None:
        user = f"user-{uuid4().hex[:8]}"
        for iterations in (4095, 16385):
            assert is_refused(
                UNACCEPTABLE_CREDENTIAL, operator.set_credential, user, "SCRAM-SHA-256", iterations, "s"
            )
        assert is_refused(RESOURCE_NOT_FOUND, operator.credentials, user)
        assert is_refused(RESOURCE_NOT_FOUND, operator.remove_credential, user, "SCRAM-SHA-256")


class AccessControl:
    """Without an authorizer there is nothing to ask, and the answer says so."""

    def test_every_call_says_that_security_is_disabled(self, operator: Operator) -> None:
        for call in (operator.acls, operator.create_acl, operator.delete_acls):
            assert is_refused(SECURITY_DISABLED, call)


class Survey:
    """Directories, features, producers, resources."""

    def test_a_partition_is_in_one_directory_with_its_size(self, operator: Surveyor, topic: str) -> None:
        operator.produce(topic, PLAIN)
        node = operator.cluster().nodes[0][0]
        directories = operator.log_directories(node)
        sizes = [each.sizes[f"{topic}-0"] for each in directories if f"{topic}-0" in each.sizes]
        assert len(sizes) == 1 and 4000 < sizes[0] < 10_000
        assert all(0 < each.usable_size < each.total_size for each in directories)

    def test_a_replica_stays_where_it_is_and_cannot_move_to_nowhere(
        self, operator: Surveyor, topic: str
    ) -> None:
        node = operator.cluster().nodes[0][0]
        (place,) = [each for each in operator.log_directories(node) if f"{topic}-0" in each.sizes]
        operator.move(topic, node, place.path)
        assert refusal(operator.move, topic, node, "/no/such/directory") == LOG_DIR_NOT_FOUND

    def test_what_is_finalized_is_supported(self, operator: Surveyor) -> None:
        features = operator.features()
        assert features.finalized
        for name, (level, _) in features.finalized.items():
            lowest, highest = features.supported[name]
            assert lowest <= level <= highest
            operator.update_feature(name, level, validate_only=True)

    def test_a_feature_cannot_be_what_nobody_supports(self, operator: Surveyor) -> None:
        features = operator.features()
        name = next(iter(features.finalized))
        for feature, level in {name: features.supported[name][1] + 1, "no.such.feature": 1}.items():
            assert is_refused(INVALID_UPDATE_VERSION, operator.update_feature, feature, level)
        assert operator.features() == features

    def test_an_idempotent_producer_is_described(self, operator: Surveyor, topic: str) -> None:
        assert operator.producers(topic) == []
        operator.produce(topic, PLAIN, idempotent=True)
        (producer,) = operator.producers(topic)
        assert (producer.epoch, producer.last_sequence, producer.is_in_transaction) == (0, 19, False)

    def test_what_has_settings_is_listed(self, operator: Surveyor, topic: str) -> None:
        name = f"metrics-{uuid4().hex[:8]}"
        operator.alter("CLIENT_METRICS", name, ("SET", "interval.ms", "60000"))
        eventually(lambda: ("CLIENT_METRICS", name) in operator.resources(), "the subscription is not listed")
        assert operator.resources("CLIENT_METRICS") >= {("CLIENT_METRICS", name)}
        assert ("TOPIC", topic) in operator.resources("TOPIC")
        assert {kind for kind, _ in operator.resources("TOPIC")} == {"TOPIC"}
        assert ("BROKER", str(operator.cluster().nodes[0][0])) in operator.resources("BROKER")
        operator.alter("CLIENT_METRICS", name, ("DELETE", "interval.ms", None))
        eventually(lambda: ("CLIENT_METRICS", name) not in operator.resources(), "it is still listed")

    @pytest.mark.parametrize(
        ("kind", "key", "good", "bad"),
        [
            ("CLIENT_METRICS", "interval.ms", "60000", "1"),
            ("GROUP", "consumer.session.timeout.ms", "50000", "soon"),
        ],
    )
    def test_settings_of_clients_and_groups_are_kept(
        self, operator: Surveyor, kind: Kind, key: str, good: str, bad: str
    ) -> None:
        name = f"named-{uuid4().hex[:8]}"
        operator.alter(kind, name, ("SET", key, good))
        eventually(lambda: operator.settings(kind, name)[key].value == good, f"{key} was not set")
        assert operator.settings(kind, name)[key].source == f"DYNAMIC_{kind}_CONFIG"
        assert refusal(operator.alter, kind, name, ("SET", key, bad)) in (
            INVALID_CONFIG,
            INVALID_REQUEST,
        )
        operator.alter(kind, name, ("DELETE", key, None))

    def test_a_logger_changes_its_level(self, operator: Surveyor) -> None:
        node = str(operator.cluster().nodes[0][0])
        logger, level = next(iter(operator.settings("BROKER_LOGGER", node).items()))
        operator.alter("BROKER_LOGGER", node, ("SET", logger, "DEBUG"))
        assert operator.settings("BROKER_LOGGER", node)[logger].value == "DEBUG"
        operator.alter("BROKER_LOGGER", node, ("SET", logger, level.value))
        loud: Change = ("SET", logger, "LOUD")
        assert is_refused(INVALID_CONFIG, operator.alter, "BROKER_LOGGER", node, loud)

    def test_nothing_is_being_reassigned(self, operator: Surveyor) -> None:
        assert operator.reassignment_count() == 0


@contextmanager
def changed(operator: Operator, broker: str, key: str, value: str) -> Iterator[None]:
    operator.alter("BROKER", broker, ("SET", key, value))
    try:
        yield
    finally:
        operator.alter("BROKER", broker, ("DELETE", key, None))


def index_interval(operator: Operator, topic: str) -> tuple[str | None, str]:
    setting = operator.settings("TOPIC", topic)["index.interval.bytes"]
    return setting.value, setting.source


def assert_documented(settings: dict[str, Setting]) -> None:
    """Where the client tells types and documentation, every setting has both."""
    for key, setting in settings.items():
        assert setting.type is None or setting.type != "UNKNOWN", key
        assert setting.documentation is None or len(setting.documentation) > 10, key
